//! Identity of static pods: name, namespace, uid and annotations, as the kubelet assigns them.
//!
//! A uid that the manifest does not set is the kubelet's ([`super::kubelet_uid`]); a pod that runs under
//! another one keeps that ([`super::adoption`]). What tells whether the manifest is still the same is its
//! fingerprint: the 128-bit FNV-1a hash of the pod followed by `host:<node>` and `file:<path>` or
//! `url:<url>`, in hexadecimal. It is of the canonical JSON of the pod as received, not of the typed pod:
//! defaults and fields added by a later build must not change it. A pod that no kubelet can decode has
//! its fingerprint as its uid.

use jiff::Timestamp;
use polylet_model::constants::pod_annotation::{
    CONFIG_HASH, CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE,
};
use polylet_model::hash::Fnv1a128;
use serde_json::{Map, Value, json};

use super::adoption::{Adoption, ManifestUids};
use super::decode::quoted;
use super::validate::names;
use super::{StaticPodSource, field};
use super::{canonical, kubelet_uid, typed};

/// The manifest that defines a pod.
#[derive(Clone, Debug)]
pub struct ManifestOrigin<'a> {
    /// This node's name.
    pub node: &'a str,
    /// Source of the manifest.
    pub source: StaticPodSource,
    /// File path or URL, which is part of the identity.
    pub origin: &'a str,
    /// The uids of pods that run.
    pub adoption: Option<&'a Adoption>,
}

/// The identity of a static pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPodIdentity {
    /// The uid.
    pub uid: String,
    /// The uids from the manifest; `None` if it sets one itself.
    pub from_manifest: Option<ManifestUids>,
    /// When the uid was first seen.
    pub first_seen: Timestamp,
}

/// The uid that a kubelet generates for a pod as received; `None` if the manifest sets one, or if no
/// kubelet can decode it.
pub fn generate_uid(pod: &Value, origin: &ManifestOrigin<'_>) -> Option<String> {
    if metadata_field(pod, "uid").is_some() {
        return None;
    }
    let mut pod = pod.clone();
    if let Some(volumes) = pod.pointer_mut("/spec/volumes") {
        typed::parse_octal_modes(volumes);
    }
    kubelet_uid::generate(pod, origin.node, origin.source, origin.origin).ok()
}

/// Removes fields that only the API server sets.
pub fn remove_server_fields(pod: &mut Value) {
    if let Value::Object(map) = pod {
        map.remove("status");
    }
    if let Some(Value::Object(meta)) = pod.get_mut("metadata") {
        for field in [
            "managedFields",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "resourceVersion",
            "selfLink",
        ] {
            meta.remove(field);
        }
        if let Some(Value::Object(annotations)) = meta.get_mut("annotations") {
            for key in [CONFIG_HASH, CONFIG_SOURCE, CONFIG_SEEN, CONFIG_MIRROR] {
                annotations.remove(key);
            }
        }
    }
}

/// Assigns the identity to a pod without server fields. `generated` is from [`generate_uid`].
pub fn assign(
    pod: &mut Value,
    origin: &ManifestOrigin<'_>,
    generated: Option<String>,
    seen: impl FnOnce(&str) -> Timestamp,
) -> Result<StaticPodIdentity, Vec<field::Error>> {
    let name = checked_name(pod, origin.node)?;
    let name = format!("{name}-{}", origin.node.to_lowercase());
    let namespace = metadata_field(pod, "namespace").unwrap_or_else(|| "default".to_owned());
    let (uid, from_manifest) = match metadata_field(pod, "uid") {
        Some(uid) => (uid, None),
        None => {
            let fingerprint = fingerprint(pod, origin);
            let own = ManifestUids {
                generated: generated.unwrap_or_else(|| fingerprint.clone()),
                fingerprint,
            };
            let uid = match origin.adoption {
                Some(adoption) => adoption.uid(&own, &namespace, &name),
                None => own.generated.as_str(),
            };
            (uid.to_owned(), Some(own))
        }
    };
    let seen = seen(&uid);
    let Value::Object(root) = pod else {
        return Err(vec![field::Error::new("", "expected a mapping")]);
    };
    let meta = object_in(root, "metadata")?;
    meta.insert("name".into(), name.into());
    if meta
        .get("namespace")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        meta.insert("namespace".into(), namespace.into());
    }
    meta.insert("uid".into(), uid.clone().into());
    let annotations = object_in(meta, "annotations")?;
    annotations.insert(CONFIG_HASH.into(), uid.clone().into());
    annotations.insert(CONFIG_SOURCE.into(), origin.source.annotation().into());
    annotations.insert(CONFIG_SEEN.into(), seen.to_string().into());
    let spec = object_in(root, "spec")?;
    spec.insert("nodeName".into(), origin.node.into());
    if origin.source == StaticPodSource::File {
        tolerate_no_execute(spec);
    }
    Ok(StaticPodIdentity {
        uid,
        from_manifest,
        first_seen: seen,
    })
}

fn checked_name(pod: &Value, node: &str) -> Result<String, Vec<field::Error>> {
    let mut errors = Vec::new();
    match pod.get("metadata") {
        None => return Err(vec![field::Error::new("metadata.name", "required")]),
        Some(Value::Object(_)) => {}
        Some(_) => return Err(vec![field::Error::new("metadata", "expected a mapping")]),
    }
    for name in ["annotations", "labels"] {
        if pod["metadata"].get(name).is_some_and(|v| !v.is_object()) {
            errors.push(field::Error::new(
                format!("metadata.{name}"),
                "expected a mapping of strings",
            ));
        }
    }
    if pod.get("spec").is_some_and(|v| !v.is_object()) {
        errors.push(field::Error::new("spec", "expected a mapping"));
    }
    let name = match pod["metadata"].get("name") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        Some(Value::String(_)) | None => {
            let hint = if metadata_field(pod, "generateName").is_some() {
                ": generateName needs the API server"
            } else {
                ""
            };
            errors.push(field::Error::new(
                "metadata.name",
                format!("required{hint}"),
            ));
            String::new()
        }
        Some(_) => {
            errors.push(field::Error::new(
                "metadata.name",
                "expected a string (use quotes)",
            ));
            String::new()
        }
    };
    if !name.is_empty() {
        if let Err(expected) = names::subdomain(&name) {
            errors.push(field::Error::new(
                "metadata.name",
                format!("{} is {expected}", quoted(&name)),
            ));
        } else if name.len() + 1 + node.len() > 253 {
            errors.push(field::Error::new(
                "metadata.name",
                "is longer than 253 characters with the node name appended",
            ));
        }
    }
    if let Some(uid) = metadata_field(pod, "uid") {
        // The uid is used in paths.
        let plain = uid.len() <= 128
            && uid
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !plain {
            errors.push(field::Error::new(
                "metadata.uid",
                format!(
                    "{} is not at most 128 letters, digits, '-' or '_'",
                    quoted(&uid)
                ),
            ));
        }
    }
    if errors.is_empty() {
        Ok(name)
    } else {
        Err(errors)
    }
}

fn fingerprint(pod: &Value, origin: &ManifestOrigin<'_>) -> String {
    let ManifestOrigin {
        node,
        source,
        origin,
        ..
    } = origin;
    let mut hash = Fnv1a128::default();
    hash.update(&canonical::to_bytes(pod));
    hash.update(format!("host:{node}{}{origin}", source.hash_prefix()).as_bytes());
    format!("{:032x}", hash.finish())
}

/// Adds the kubelet's toleration; one with the same key, operator, value and effect is replaced.
fn tolerate_no_execute(spec: &mut Map<String, Value>) {
    let toleration = json!({"operator": "Exists", "effect": "NoExecute"});
    match spec.get_mut("tolerations") {
        Some(Value::Array(tolerations)) => {
            let blank = |t: &Value, field: &str| {
                t.get(field)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .is_empty()
            };
            let same = |t: &Value| {
                blank(t, "key")
                    && blank(t, "value")
                    && t.get("operator") == toleration.get("operator")
                    && t.get("effect") == toleration.get("effect")
            };
            match tolerations.iter_mut().find(|t| same(t)) {
                Some(existing) => *existing = toleration,
                None => tolerations.push(toleration),
            }
        }
        // Other types are rejected when the pod is decoded.
        Some(_) => {}
        None => {
            spec.insert("tolerations".into(), Value::Array(vec![toleration]));
        }
    }
}

fn metadata_field(pod: &Value, field: &str) -> Option<String> {
    pod.get("metadata")?
        .get(field)?
        .as_str()
        .filter(|t| !t.is_empty())
        .map(str::to_owned)
}

/// The object under a key, created if absent.
fn object_in<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> Result<&'a mut Map<String, Value>, Vec<field::Error>> {
    map.entry(key)
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
        .ok_or_else(|| vec![field::Error::new(key, "expected a mapping")])
}
