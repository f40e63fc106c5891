//! The objects behind a claim, which no pod names: the claim names its persistent volume, and that what
//! its driver needs. Without them the volumes of a pod cannot be set up again.

use k8s_openapi::api::core::v1::{PersistentVolumeSpec, SecretReference};
use k8s_openapi::api::storage::v1::VolumeAttachmentSpec;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::ObjectId;
use super::references::{CLAIM, CSI_DRIVER, SECRET, object_id};

const ATTACHMENT: &str = "VolumeAttachment";
const PERSISTENT_VOLUME: &str = "PersistentVolume";

/// How an object is connected with others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VolumeReferences {
    /// The objects that it names, which are needed as long as it is.
    pub named: Vec<ObjectId>,
    /// The object that it is needed for, which does not name it.
    pub needed_for: Option<ObjectId>,
}

#[derive(Deserialize)]
struct ReferencingObject<T> {
    spec: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReferencingClaimSpec {
    volume_name: Option<String>,
}

/// What a cached object is connected with; nothing if it is of no volume, or invalid.
pub fn volume_references(object: &ObjectId, manifest: &[u8]) -> VolumeReferences {
    let references = match object.kind.as_str() {
        CLAIM => spec(manifest).map(claim_references),
        PERSISTENT_VOLUME => spec(manifest).map(persistent_volume_references),
        ATTACHMENT => spec(manifest).map(attachment_references),
        _ => None,
    };
    let mut references = references.unwrap_or_default();
    references.named.retain(|named| !named.name.is_empty());
    references
}

fn spec<T: DeserializeOwned>(manifest: &[u8]) -> Option<T> {
    let manifest: ReferencingObject<T> = serde_json::from_slice(manifest).ok()?;
    Some(manifest.spec)
}

fn claim_references(spec: ReferencingClaimSpec) -> VolumeReferences {
    let volume = spec.volume_name;
    let volume = volume.map(|name| object_id((PERSISTENT_VOLUME, &name), ""));
    VolumeReferences {
        named: volume.into_iter().collect(),
        needed_for: None,
    }
}

fn persistent_volume_references(spec: PersistentVolumeSpec) -> VolumeReferences {
    let csi = spec.csi.as_ref();
    let driver = csi.map(|csi| object_id((CSI_DRIVER, &csi.driver), ""));
    let secrets = csi.into_iter().flat_map(|csi| {
        let node_secrets = [
            &csi.node_stage_secret_ref,
            &csi.node_publish_secret_ref,
            &csi.node_expand_secret_ref,
        ];
        node_secrets.into_iter().flatten().filter_map(secret)
    });
    // Of a former in-tree plugin: its CSI driver gets the Secret.
    let share = spec.azure_file.as_ref().and_then(|share| {
        let claim = spec.claim_ref.as_ref();
        let namespace = share.secret_namespace.as_ref();
        let namespace = namespace.or(claim.and_then(|claim| claim.namespace.as_ref()))?;
        Some(object_id((SECRET, &share.secret_name), namespace))
    });
    VolumeReferences {
        named: driver.into_iter().chain(secrets).chain(share).collect(),
        needed_for: None,
    }
}

fn secret(reference: &SecretReference) -> Option<ObjectId> {
    let (name, namespace) = (reference.name.as_ref()?, reference.namespace.as_ref()?);
    Some(object_id((SECRET, name), namespace))
}

/// An attachment names the volume, which does not name it.
fn attachment_references(spec: VolumeAttachmentSpec) -> VolumeReferences {
    let volume = spec.source.persistent_volume_name;
    VolumeReferences {
        named: vec![object_id((CSI_DRIVER, &spec.attacher), "")],
        needed_for: volume.map(|name| object_id((PERSISTENT_VOLUME, &name), "")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text(id: &ObjectId) -> String {
        format!("{} {}/{}", id.kind, id.namespace, id.name)
    }

    #[test]
    fn objects_behind_a_claim_are_found() {
        let secret = |name: &str| json!({ "namespace": "s", "name": name });
        let csi = json!({ "csi": { "driver": "d", "volumeHandle": "h",
            "nodeStageSecretRef": secret("stage"), "nodePublishSecretRef": secret("publish"),
            "nodeExpandSecretRef": secret("expand"), "controllerPublishSecretRef": secret("no") } });
        let share = json!({ "azureFile": { "secretName": "a", "shareName": "x" },
            "claimRef": { "namespace": "ns", "name": "c" } });
        let attachment = json!({ "attacher": "d", "nodeName": "n",
            "source": { "persistentVolumeName": "pv" } });
        let inline = json!({ "attacher": "d", "nodeName": "n", "source": {} });
        let of_csi = [
            "CSIDriver /d",
            "Secret s/stage",
            "Secret s/publish",
            "Secret s/expand",
        ];
        for (kind, spec, named, needed_for) in [
            (
                CLAIM,
                json!({ "volumeName": "pv" }),
                &["PersistentVolume /pv"][..],
                None,
            ),
            (CLAIM, json!({ "volumeName": "" }), &[], None),
            (CLAIM, json!({}), &[], None),
            (PERSISTENT_VOLUME, csi, &of_csi, None),
            (PERSISTENT_VOLUME, share, &["Secret ns/a"], None),
            (
                PERSISTENT_VOLUME,
                json!({ "local": { "path": "/x" } }),
                &[],
                None,
            ),
            (
                ATTACHMENT,
                attachment,
                &["CSIDriver /d"],
                Some("PersistentVolume /pv"),
            ),
            (ATTACHMENT, inline, &["CSIDriver /d"], None),
            (SECRET, json!({ "volumeName": "pv" }), &[], None),
            (CLAIM, Value::Null, &[], None),
        ] {
            let object = object_id((kind, "o"), "ns");
            let manifest = json!({ "spec": spec }).to_string();
            let found = volume_references(&object, manifest.as_bytes());
            let all: Vec<String> = found.named.iter().map(text).collect();
            assert_eq!(all, named, "{kind} {spec}");
            let needed = found.needed_for.as_ref().map(text);
            assert_eq!(needed.as_deref(), needed_for, "{kind} {spec}");
        }
    }
}
