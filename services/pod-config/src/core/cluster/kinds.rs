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
    /// Older groups and versions, where a server may serve another than the first, or none: it is
    /// asked which.
    older: &'static [&'static str],
    /// All with this field's value are told as one list, in the place of one object by its name.
    pub set_by: Option<&'static str>,
}

const fn kind(name: &'static str, base: &'static str, plural: &'static str) -> Kind {
    Kind {
        name,
        base,
        plural,
        namespaced: false,
        watched: true,
        older: &[],
        set_by: None,
    }
}

const CORE: &str = "/api/v1";
const STORAGE: &str = "/apis/storage.k8s.io/v1";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1";
const OLDER_BUNDLES: &[&str] = &["/apis/certificates.k8s.io/v1alpha1"];

/// All of them. The Node authorizer lets a node get, but not watch, those that lead to volumes.
const KINDS: [Kind; 10] = [
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
    Kind {
        older: OLDER_BUNDLES,
        ..kind("ClusterTrustBundle", BUNDLES, "clustertrustbundles")
    },
    Kind {
        older: OLDER_BUNDLES,
        set_by: Some("spec.signerName"),
        ..kind("ClusterTrustBundleList", BUNDLES, "clustertrustbundles")
    },
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

    /// Whether a server may not serve it, or by another version.
    pub fn is_optional(&self) -> bool {
        !self.older.is_empty()
    }

    /// The same at each of its versions, the newest first, and where the server tells what it has
    /// of that version.
    pub fn versions(self) -> impl Iterator<Item = (&'static str, Kind)> {
        let bases = std::iter::once(self.base).chain(self.older.iter().copied());
        bases.map(move |base| (base, Kind { base, ..self }))
    }

    /// Whether it is among what a server tells of a version: an `APIResourceList`.
    pub fn is_in(&self, resources: &Value) -> bool {
        let all = resources.get("resources").and_then(Value::as_array);
        let mut names = all.into_iter().flatten().filter_map(|it| it.get("name"));
        names.any(|name| name == self.plural)
    }

    /// What is told where the server does not serve it; of trust bundles in upstream's words.
    pub fn unserved(&self) -> String {
        match self.plural {
            "clustertrustbundles" => {
                "ClusterTrustBundle projection is not supported in static kubelet mode".to_owned()
            }
            _ => format!("the API server does not serve {} objects", self.name),
        }
    }

    /// All of a set, as one object.
    pub fn list(items: impl IntoIterator<Item = Value>) -> Value {
        let mut items: Vec<Value> = items.into_iter().collect();
        items.iter_mut().for_each(without_bookkeeping);
        serde_json::json!({ "items": items })
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
    without_bookkeeping(object);
}

fn without_bookkeeping(object: &mut Value) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
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
    fn servers_say_which_version_they_have() {
        let bundles = Kind::of("ClusterTrustBundleList").unwrap();
        let resources = serde_json::json!({"resources": [
            {"name": "podcertificaterequests"}, {"name": "clustertrustbundles"}]});
        let other = serde_json::json!({"resources": [{"name": "podcertificaterequests"}]});
        assert!(bundles.is_in(&resources) && !bundles.is_in(&other));
        let bases: Vec<_> = bundles.versions().map(|(base, _)| base).collect();
        assert_eq!(bases, [BUNDLES, OLDER_BUNDLES[0]]);
        let (_, older) = bundles.versions().last().unwrap();
        let key = ObjectKey {
            kind: String::new(),
            namespace: String::new(),
            name: "example.com/s".into(),
        };
        let path = "/apis/certificates.k8s.io/v1alpha1/clustertrustbundles";
        assert_eq!(older.collection(&key), path);
        assert!(!Kind::of("Secret").unwrap().is_optional());
    }

    #[test]
    fn lists_say_nothing_of_when_they_were_written() {
        let item = serde_json::json!({"metadata": {"name": "b", "resourceVersion": "1"}});
        let bundles = Kind::of("ClusterTrustBundleList").unwrap();
        let told = bundles.reduce(Kind::list([item]));
        let base = "certificates.k8s.io/v1beta1";
        let expected = format!(
            r#"{{"apiVersion":"{base}","items":[{{"metadata":{{"name":"b"}}}}],"kind":"ClusterTrustBundleList"}}"#
        );
        assert_eq!(told, expected);
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
