//! Who a static pod is: name, namespace, uid, annotations, as upstream gives them.
//!
//! A uid that the manifest does not set is the FNV-1a hash (128 bits) of the pod, then of
//! `host:<node>` and `file:<path>` or `url:<url>`, in hexadecimal. Upstream hashes a dump of its Go
//! structures, which nothing but that Go program can repeat; here it is the canonical JSON of the
//! pod as it came. As it came, and not as typed: defaults and fields that a later build learns must
//! not change who a running pod is.

use jiff::Timestamp;
use polylet_model::constants::pod_annotation::{
    CONFIG_HASH, CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE,
};
use polylet_model::hash;
use serde_json::{Map, Value, json};

use super::canonical;
use super::decode::quoted;
use super::validate::names;
use super::{Finding, Source};

/// Where a pod was found.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// This node's name.
    pub node: &'a str,
    /// The source.
    pub source: Source,
    /// The file's path or the URL: part of the identity.
    pub origin: &'a str,
}

/// Takes out what only a server may say.
pub fn strip(pod: &mut Value) {
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

/// Gives a stripped pod its identity; returns the uid.
pub fn give(
    pod: &mut Value,
    place: &Place<'_>,
    seen: impl FnOnce(&str) -> Timestamp,
) -> Result<(String, Timestamp), Vec<Finding>> {
    let name = checked_name(pod, place.node)?;
    let uid = match text_of(pod, "uid") {
        Some(uid) => uid,
        None => fresh_uid(pod, place),
    };
    let seen = seen(&uid);
    let Value::Object(root) = pod else {
        return Err(vec![Finding::new("", "a mapping was expected")]);
    };
    let meta = object_in(root, "metadata")?;
    meta.insert(
        "name".into(),
        format!("{name}-{}", place.node.to_lowercase()).into(),
    );
    if meta
        .get("namespace")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        meta.insert("namespace".into(), "default".into());
    }
    meta.insert("uid".into(), uid.clone().into());
    let annotations = object_in(meta, "annotations")?;
    annotations.insert(CONFIG_HASH.into(), uid.clone().into());
    annotations.insert(CONFIG_SOURCE.into(), place.source.annotation().into());
    annotations.insert(CONFIG_SEEN.into(), seen.to_string().into());
    let spec = object_in(root, "spec")?;
    spec.insert("nodeName".into(), place.node.into());
    if place.source == Source::File {
        tolerate_no_execute(spec);
    }
    Ok((uid, seen))
}

fn checked_name(pod: &Value, node: &str) -> Result<String, Vec<Finding>> {
    let mut findings = Vec::new();
    match pod.get("metadata") {
        None => return Err(vec![Finding::new("metadata.name", "required")]),
        Some(Value::Object(_)) => {}
        Some(_) => return Err(vec![Finding::new("metadata", "a mapping was expected")]),
    }
    for part in ["annotations", "labels"] {
        if pod["metadata"].get(part).is_some_and(|v| !v.is_object()) {
            findings.push(Finding::new(
                format!("metadata.{part}"),
                "a mapping of texts was expected",
            ));
        }
    }
    if pod.get("spec").is_some_and(|v| !v.is_object()) {
        findings.push(Finding::new("spec", "a mapping was expected"));
    }
    let name = match pod["metadata"].get("name") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        Some(Value::String(_)) | None => {
            let hint = if text_of(pod, "generateName").is_some() {
                ": generateName is for the API server alone"
            } else {
                ""
            };
            findings.push(Finding::new("metadata.name", format!("required{hint}")));
            String::new()
        }
        Some(_) => {
            findings.push(Finding::new(
                "metadata.name",
                "a text was expected (put it in quotes)",
            ));
            String::new()
        }
    };
    if !name.is_empty() {
        if let Err(expected) = names::subdomain(&name) {
            findings.push(Finding::new(
                "metadata.name",
                format!("{} is {expected}", quoted(&name)),
            ));
        } else if name.len() + 1 + node.len() > 253 {
            findings.push(Finding::new(
                "metadata.name",
                "is longer than 253 characters once the node's name is put behind it",
            ));
        }
    }
    if let Some(uid) = text_of(pod, "uid") {
        // It becomes part of paths.
        let plain = uid.len() <= 128
            && uid
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !plain {
            findings.push(Finding::new(
                "metadata.uid",
                format!(
                    "{} is not at most 128 letters, digits, '-' or '_'",
                    quoted(&uid)
                ),
            ));
        }
    }
    if findings.is_empty() {
        Ok(name)
    } else {
        Err(findings)
    }
}

fn fresh_uid(pod: &Value, place: &Place<'_>) -> String {
    let Place {
        node,
        source,
        origin,
    } = place;
    let hashed = format!(
        "{}host:{node}{}{origin}",
        canonical::text(pod),
        source.hash_prefix()
    );
    format!("{:032x}", hash::fnv1a_128(hashed.as_bytes()))
}

/// As upstream: a toleration of the same key, operator, value and effect is replaced, not repeated.
fn tolerate_no_execute(spec: &mut Map<String, Value>) {
    let wanted = json!({"operator": "Exists", "effect": "NoExecute"});
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
                    && t.get("operator") == wanted.get("operator")
                    && t.get("effect") == wanted.get("effect")
            };
            match tolerations.iter_mut().find(|t| same(t)) {
                Some(there) => *there = wanted,
                None => tolerations.push(wanted),
            }
        }
        // Anything else than a list is refused by the typed reading that follows.
        Some(_) => {}
        None => {
            spec.insert("tolerations".into(), Value::Array(vec![wanted]));
        }
    }
}

fn text_of(pod: &Value, field: &str) -> Option<String> {
    pod.get("metadata")?
        .get(field)?
        .as_str()
        .filter(|t| !t.is_empty())
        .map(str::to_owned)
}

/// The object under a key, made when missing.
fn object_in<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> Result<&'a mut Map<String, Value>, Vec<Finding>> {
    map.entry(key)
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
        .ok_or_else(|| vec![Finding::new(key, "a mapping was expected")])
}
