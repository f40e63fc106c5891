//! Objects that pods refer to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::facts::{self, Facts};

/// What kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A `v1.ConfigMap`.
    ConfigMap,
    /// A `v1.Secret`.
    Secret,
    /// A `v1.PersistentVolumeClaim`.
    Claim,
    /// A `v1.PersistentVolume`.
    Persistent,
    /// A `storage.k8s.io/v1.VolumeAttachment`.
    Attachment,
    /// A `storage.k8s.io/v1.CSIDriver`.
    CsiDriver,
    /// A `certificates.k8s.io` ClusterTrustBundle.
    TrustBundle,
    /// All ClusterTrustBundles of a signer, by the signer's name.
    TrustBundles,
}

impl ObjectKind {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Claim => "PersistentVolumeClaim",
            Self::Persistent => "PersistentVolume",
            Self::Attachment => "VolumeAttachment",
            Self::CsiDriver => "CSIDriver",
            Self::TrustBundle => "ClusterTrustBundle",
            Self::TrustBundles => "ClusterTrustBundleList",
        }
    }

    /// As messages write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::Claim => "persistentvolumeclaims",
            Self::Persistent => "persistentvolumes",
            Self::Attachment => "volumeattachments.storage.k8s.io",
            Self::CsiDriver => "csidrivers.storage.k8s.io",
            Self::TrustBundle => "clustertrustbundle.certificates.k8s.io",
            Self::TrustBundles => "clustertrustbundles of signer",
        }
    }
}

/// Names one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// What kind.
    pub kind: ObjectKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// It is the cluster's, and not one of the local manifests.
    pub cluster: bool,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} \"{}/{}\"",
            self.kind.word(),
            self.namespace,
            self.name
        )
    }
}

/// The bytes of one key. Not shown in any output.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(pub Arc<[u8]>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

/// What an object holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object {
    /// Its values by key.
    pub data: BTreeMap<String, Bytes>,
    /// It says of itself that it never changes: read once.
    pub immutable: bool,
    /// What else it says, of kinds that hold no values.
    pub facts: Facts,
}

/// What is known of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjectState {
    /// Nobody has said yet.
    Unheard,
    /// It cannot be told now; why.
    Unknown(String),
    /// There is no such object.
    Absent,
    /// It is there.
    Present(Arc<Object>),
    /// It cannot be read; why.
    Broken(String),
}

impl ObjectState {
    /// Reads an object as pod-config sends it. What is wrong is told without its content.
    pub fn from_json(kind: ObjectKind, json: &[u8]) -> Self {
        let object = match kind {
            ObjectKind::ConfigMap => serde_json::from_slice(json).map(config_map),
            ObjectKind::Secret => serde_json::from_slice(json).map(secret),
            kind => facts::read(kind, json).map(|facts| Object {
                facts,
                ..Object::default()
            }),
        };
        match object {
            Ok(object) => Self::Present(Arc::new(object)),
            // serde's own message may quote a value.
            Err(error) => Self::Broken(format!(
                "the {} is not one this node can read: line {}, column {}",
                kind.word(),
                error.line(),
                error.column()
            )),
        }
    }
}

fn config_map(object: ConfigMap) -> Object {
    let text = object.data.unwrap_or_default().into_iter();
    let binary = object.binary_data.unwrap_or_default().into_iter();
    let text = text.map(|(key, value)| (key, value.into_bytes().into()));
    Object {
        data: text
            .chain(binary.map(|(key, value)| (key, value.0.into())))
            .collect(),
        immutable: object.immutable.unwrap_or(false),
        facts: Facts::None,
    }
}

fn secret(object: Secret) -> Object {
    let data = object.data.unwrap_or_default().into_iter();
    let text = object.string_data.unwrap_or_default().into_iter();
    let data = data.map(|(key, value)| (key, value.0.into()));
    Object {
        data: data
            .chain(text.map(|(key, value)| (key, value.into_bytes().into())))
            .collect(),
        immutable: object.immutable.unwrap_or(false),
        facts: Facts::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_read() {
        let map = br#"{"metadata":{"name":"c"},"data":{"a":"1"},"binaryData":{"b":"AAE="},"immutable":true}"#;
        let ObjectState::Present(map) = ObjectState::from_json(ObjectKind::ConfigMap, map) else {
            panic!("not read")
        };
        assert_eq!(&*map.data["a"].0, b"1");
        assert_eq!(&*map.data["b"].0, [0, 1]);
        assert!(map.immutable);
        let secret = br#"{"metadata":{},"data":{"p":"cHc="}}"#;
        let ObjectState::Present(secret) = ObjectState::from_json(ObjectKind::Secret, secret)
        else {
            panic!("not read")
        };
        assert_eq!(&*secret.data["p"].0, b"pw");
    }

    #[test]
    fn nothing_secret_is_told() {
        let broken = br#"{"data":{"password":12345678}}"#;
        let told = format!("{:?}", ObjectState::from_json(ObjectKind::Secret, broken));
        assert!(
            told.contains("cannot") || told.contains("not one"),
            "{told}"
        );
        assert!(!told.contains("12345678"), "{told}");
        let fine = br#"{"data":{"password":"aHVudGVyMg=="}}"#;
        let told = format!("{:?}", ObjectState::from_json(ObjectKind::Secret, fine));
        assert!(
            told.contains("7 bytes") && !told.contains("hunter2"),
            "{told}"
        );
    }
}
