use serde_json::Value;

use crate::constants::pod_annotation;
use crate::hash;

/// The digest of a pod in its JSON form: see [`Manifest::digest`](crate::Manifest::digest).
pub fn digest(pod: &Value) -> String {
    digest_of(pod.clone())
}

pub(super) fn digest_of(mut pod: Value) -> String {
    if let Some(fields) = pod.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            for bookkeeping in ["managedFields", "resourceVersion", "selfLink"] {
                metadata.remove(bookkeeping);
            }
            if let Some(annotations) = metadata
                .get_mut("annotations")
                .and_then(Value::as_object_mut)
            {
                annotations.remove(pod_annotation::CONFIG_SOURCE);
                annotations.remove(pod_annotation::CONFIG_MIRROR);
                annotations.remove(pod_annotation::CONFIG_SEEN);
                if annotations.is_empty() {
                    metadata.remove("annotations");
                }
            }
        }
    }
    // serde_json sorts maps: equal content has equal text.
    format!("{:032x}", hash::fnv1a_128(pod.to_string().as_bytes()))
}
