//! Kinds of objects that pods can refer to, and their API paths.

use bytes::Bytes;
use serde_json::Value;

use super::super::{ObjectId, canonical};

/// A kind of API object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKind {
    /// Kind, or `ClusterTrustBundleList` for all bundles of a signer.
    pub name: &'static str,
    /// Path of group and version.
    base: &'static str,
    plural: &'static str,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Whether nodes can watch objects; otherwise they are polled.
    pub watched: bool,
    /// Older versions, if a server may serve another than the first, or none: discovery decides.
    older: &'static [&'static str],
    /// Field that selects the objects of a list, which is published as one object.
    pub list_selector: Option<&'static str>,
}

const fn kind(name: &'static str, base: &'static str, plural: &'static str) -> ApiKind {
    ApiKind {
        name,
        base,
        plural,
        namespaced: false,
        watched: true,
        older: &[],
        list_selector: None,
    }
}

const CORE: &str = "/api/v1";
const STORAGE: &str = "/apis/storage.k8s.io/v1";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1";
const OLDER_BUNDLES: &[&str] = &["/apis/certificates.k8s.io/v1alpha1"];

/// All kinds. The Node authorizer allows nodes to get, but not to watch, those related to volumes.
const KINDS: [ApiKind; 10] = [
    ApiKind {
        namespaced: true,
        ..kind("Secret", CORE, "secrets")
    },
    ApiKind {
        namespaced: true,
        ..kind("ConfigMap", CORE, "configmaps")
    },
    ApiKind {
        namespaced: true,
        watched: false,
        ..kind("ServiceAccount", CORE, "serviceaccounts")
    },
    ApiKind {
        namespaced: true,
        watched: false,
        ..kind("PersistentVolumeClaim", CORE, "persistentvolumeclaims")
    },
    ApiKind {
        watched: false,
        ..kind("PersistentVolume", CORE, "persistentvolumes")
    },
    ApiKind {
        watched: false,
        ..kind("VolumeAttachment", STORAGE, "volumeattachments")
    },
    kind("CSIDriver", STORAGE, "csidrivers"),
    kind("RuntimeClass", "/apis/node.k8s.io/v1", "runtimeclasses"),
    ApiKind {
        older: OLDER_BUNDLES,
        ..kind("ClusterTrustBundle", BUNDLES, "clustertrustbundles")
    },
    ApiKind {
        older: OLDER_BUNDLES,
        list_selector: Some("spec.signerName"),
        ..kind("ClusterTrustBundleList", BUNDLES, "clustertrustbundles")
    },
];

impl ApiKind {
    /// The kind with a name.
    pub fn from_name(name: &str) -> Option<ApiKind> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }

    /// The names of all kinds, for messages.
    pub fn names() -> String {
        KINDS.map(|kind| kind.name).join(", ")
    }

    /// Whether an object is marked as immutable, so that it need not be watched.
    pub fn is_immutable(&self, object: &Value) -> bool {
        let marked = object.get("immutable") == Some(&Value::Bool(true));
        marked && matches!(self.name, "Secret" | "ConfigMap")
    }

    /// Whether a server may serve another version of the kind, or none.
    pub fn has_alternatives(&self) -> bool {
        !self.older.is_empty()
    }

    /// The kind in each version, newest first, with the discovery path of the version.
    pub fn versions(self) -> impl Iterator<Item = (&'static str, ApiKind)> {
        let bases = std::iter::once(self.base).chain(self.older.iter().copied());
        bases.map(move |base| (base, ApiKind { base, ..self }))
    }

    /// Whether the kind is in an `APIResourceList`.
    pub fn is_served_in(&self, resources: &Value) -> bool {
        let all = resources.get("resources").and_then(Value::as_array);
        let mut names = all.into_iter().flatten().filter_map(|it| it.get("name"));
        names.any(|name| name == self.plural)
    }

    /// The message when the server does not serve the kind; of trust bundles it is the kubelet's.
    pub fn unserved_message(&self) -> String {
        match self.plural {
            "clustertrustbundles" => {
                "ClusterTrustBundle projection is not supported in static kubelet mode".to_owned()
            }
            _ => format!("the API server does not serve {} objects", self.name),
        }
    }

    /// A list as one object.
    pub fn list(items: impl IntoIterator<Item = Value>) -> Value {
        let mut items: Vec<Value> = items.into_iter().collect();
        items.iter_mut().for_each(remove_bookkeeping);
        serde_json::json!({ "items": items })
    }

    /// The object as canonical JSON, without bookkeeping fields.
    pub fn to_json(&self, mut object: Value) -> Bytes {
        let base = self.base.trim_start_matches("/apis/");
        normalize(&mut object, base.trim_start_matches("/api/"), self.name);
        canonical::to_bytes(&object)
    }

    /// Path of the collection that contains an object.
    pub fn collection_path(&self, key: &ObjectId) -> String {
        let (base, plural) = (self.base, self.plural);
        if self.namespaced {
            format!(
                "{base}/namespaces/{}/{plural}",
                percent_encode(&key.namespace)
            )
        } else {
            format!("{base}/{plural}")
        }
    }
}

/// Removes bookkeeping fields and sets apiVersion and kind, which items of lists lack.
pub fn normalize(object: &mut Value, version: &str, kind: &str) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for (field, text) in [("apiVersion", version), ("kind", kind)] {
        fields.entry(field).or_insert_with(|| text.into());
    }
    remove_bookkeeping(object);
}

fn remove_bookkeeping(object: &mut Value) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        for field in ["managedFields", "resourceVersion", "selfLink"] {
            metadata.remove(field);
        }
    }
}

/// Percent-encodes a component of a path or query.
pub fn percent_encode(text: &str) -> String {
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
    fn api_version_and_kind_are_set() {
        let drivers = ApiKind::from_name("CSIDriver").unwrap();
        let item = serde_json::json!({"metadata": {"name": "d", "resourceVersion": "1"}});
        let expected =
            r#"{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"d"}}"#;
        assert_eq!(drivers.to_json(item), expected);
    }

    #[test]
    fn versions_are_found_by_discovery() {
        let bundles = ApiKind::from_name("ClusterTrustBundleList").unwrap();
        let resources = serde_json::json!({"resources": [
            {"name": "podcertificaterequests"}, {"name": "clustertrustbundles"}]});
        let other = serde_json::json!({"resources": [{"name": "podcertificaterequests"}]});
        assert!(bundles.is_served_in(&resources) && !bundles.is_served_in(&other));
        let bases: Vec<_> = bundles.versions().map(|(base, _)| base).collect();
        assert_eq!(bases, [BUNDLES, OLDER_BUNDLES[0]]);
        let (_, older) = bundles.versions().last().unwrap();
        let key = ObjectId {
            kind: String::new(),
            namespace: String::new(),
            name: "example.com/s".into(),
        };
        let path = "/apis/certificates.k8s.io/v1alpha1/clustertrustbundles";
        assert_eq!(older.collection_path(&key), path);
        assert!(!ApiKind::from_name("Secret").unwrap().has_alternatives());
    }

    #[test]
    fn lists_have_no_resource_versions() {
        let item = serde_json::json!({"metadata": {"name": "b", "resourceVersion": "1"}});
        let bundles = ApiKind::from_name("ClusterTrustBundleList").unwrap();
        let json = bundles.to_json(ApiKind::list([item]));
        let base = "certificates.k8s.io/v1beta1";
        let expected = format!(
            r#"{{"apiVersion":"{base}","items":[{{"metadata":{{"name":"b"}}}}],"kind":"ClusterTrustBundleList"}}"#
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn collection_paths_are_encoded() {
        for (kind, namespace, path) in [
            ("Secret", "a", "/api/v1/namespaces/a/secrets"),
            ("PersistentVolume", "", "/api/v1/persistentvolumes"),
            ("Secret", "../x?y", "/api/v1/namespaces/..%2Fx%3Fy/secrets"),
        ] {
            let key = ObjectId {
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: "n".to_owned(),
            };
            assert_eq!(
                ApiKind::from_name(kind).unwrap().collection_path(&key),
                path
            );
        }
        assert_eq!(percent_encode("a:b"), "a%3Ab");
        assert!(ApiKind::from_name("Pod").is_none());
    }
}
