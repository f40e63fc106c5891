//! Which kinds of objects pods may refer to, and where the API has them.

use serde_json::Value;

use super::super::{ObjectKey, canonical};

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// As manifests say it.
    pub name: &'static str,
    /// Group and version.
    base: &'static str,
    plural: &'static str,
    /// It lives in a namespace.
    pub namespaced: bool,
    /// Whether a node may watch it. What may only be got is asked for again and again.
    pub watched: bool,
}

const fn kind(name: &'static str, base: &'static str, plural: &'static str) -> Kind {
    Kind {
        name,
        base,
        plural,
        namespaced: false,
        watched: true,
    }
}

const CORE: &str = "/api/v1";
const STORAGE: &str = "/apis/storage.k8s.io/v1";

/// All of them. The Node authorizer lets a node get, but not watch, those that lead to volumes.
const KINDS: [Kind; 9] = [
    Kind {
        namespaced: true,
        ..kind("Secret", CORE, "secrets")
    },
    Kind {
        namespaced: true,
        ..kind("ConfigMap", CORE, "configmaps")
    },
    Kind {
        namespaced: true,
        watched: false,
        ..kind("ServiceAccount", CORE, "serviceaccounts")
    },
    Kind {
        namespaced: true,
        watched: false,
        ..kind("PersistentVolumeClaim", CORE, "persistentvolumeclaims")
    },
    Kind {
        watched: false,
        ..kind("PersistentVolume", CORE, "persistentvolumes")
    },
    Kind {
        watched: false,
        ..kind("VolumeAttachment", STORAGE, "volumeattachments")
    },
    kind("CSIDriver", STORAGE, "csidrivers"),
    kind("RuntimeClass", "/apis/node.k8s.io/v1", "runtimeclasses"),
    kind(
        "ClusterTrustBundle",
        "/apis/certificates.k8s.io/v1beta1",
        "clustertrustbundles",
    ),
];

impl Kind {
    /// The kind of this name.
    pub fn of(name: &str) -> Option<Kind> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }

    /// The names of all.
    pub fn names() -> String {
        KINDS.map(|kind| kind.name).join(", ")
    }

    /// Whether an object will never change: its only end is its absence.
    pub fn is_final(&self, object: &Value) -> bool {
        let marked = object.get("immutable") == Some(&Value::Bool(true));
        marked && matches!(self.name, "Secret" | "ConfigMap")
    }

    /// The object as it is told.
    pub fn reduce(&self, mut object: Value) -> String {
        let base = self.base.trim_start_matches("/apis/");
        bare(&mut object, base.trim_start_matches("/api/"), self.name);
        canonical::text(&object)
    }

    /// The path of the collection that an object is in.
    pub fn collection(&self, key: &ObjectKey) -> String {
        let (base, plural) = (self.base, self.plural);
        if self.namespaced {
            format!("{base}/namespaces/{}/{plural}", encoded(&key.namespace))
        } else {
            format!("{base}/{plural}")
        }
    }
}

/// Takes away what only those who write need, and says what it is: items of lists do not.
pub fn bare(object: &mut Value, version: &str, kind: &str) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for (field, text) in [("apiVersion", version), ("kind", kind)] {
        fields.entry(field).or_insert_with(|| text.into());
    }
    let metadata = fields.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        for bookkeeping in ["managedFields", "resourceVersion", "selfLink"] {
            metadata.remove(bookkeeping);
        }
    }
}

/// A part of a path or query: everything that could mean something there is written as a number.
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_say_what_they_are_wherever_they_come_from() {
        let drivers = Kind::of("CSIDriver").unwrap();
        let item = serde_json::json!({"metadata": {"name": "d", "resourceVersion": "1"}});
        let told =
            r#"{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"d"}}"#;
        assert_eq!(drivers.reduce(item), told);
    }

    #[test]
    fn paths() {
        for (kind, namespace, path) in [
            ("Secret", "a", "/api/v1/namespaces/a/secrets"),
            ("PersistentVolume", "", "/api/v1/persistentvolumes"),
            ("Secret", "../x?y", "/api/v1/namespaces/..%2Fx%3Fy/secrets"),
        ] {
            let key = ObjectKey {
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: "n".to_owned(),
            };
            assert_eq!(Kind::of(kind).unwrap().collection(&key), path);
        }
        assert_eq!(encoded("a:b"), "a%3Ab");
        assert!(Kind::of("Pod").is_none());
    }
}
