//! The objects that volumes refer to, as received.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::api_objects::{self, ObjectDetails};
use super::bytes::Bytes;
use super::reference_key::ObjectKind;

/// The content of a referenced object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReferencedObject {
    /// The values of a ConfigMap or Secret.
    pub data: BTreeMap<String, Bytes>,
    /// `immutable`: received once, not watched.
    pub immutable: bool,
    /// The content of other kinds.
    pub details: ObjectDetails,
}

/// What has been received of an object.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ObjectState {
    /// Nothing yet.
    #[default]
    NotSynced,
    /// It cannot be had now, and why.
    Unknown(String),
    /// It does not exist.
    Absent,
    /// It exists.
    Present(Arc<ReferencedObject>),
    /// It cannot be parsed, and why.
    Invalid(String),
}

impl ObjectState {
    /// Whether there is a reason to follow the object.
    pub fn may_change(&self) -> bool {
        !matches!(self, Self::Present(object) if object.immutable)
    }

    /// Parses an object as pod-config sends it. The error does not show its content.
    pub fn from_json(kind: ObjectKind, json: &[u8]) -> Self {
        let object = match kind {
            ObjectKind::ConfigMap => serde_json::from_slice(json).map(config_map),
            ObjectKind::Secret => serde_json::from_slice(json).map(secret),
            kind => api_objects::parse(kind, json).map(|details| ReferencedObject {
                details,
                ..ReferencedObject::default()
            }),
        };
        match object {
            Ok(object) => Self::Present(Arc::new(object)),
            // serde's message may quote a value.
            Err(error) => Self::Invalid(format!(
                "the {} is not one this node can read: line {}, column {}",
                kind.resource(),
                error.line(),
                error.column()
            )),
        }
    }
}

fn config_map(object: ConfigMap) -> ReferencedObject {
    let text = object.data.unwrap_or_default().into_iter();
    let binary = object.binary_data.unwrap_or_default().into_iter();
    let text = text.map(|(key, value)| (key, value.into_bytes().into()));
    ReferencedObject {
        data: text
            .chain(binary.map(|(key, value)| (key, value.0.into())))
            .collect(),
        immutable: object.immutable.unwrap_or(false),
        details: ObjectDetails::Data,
    }
}

fn secret(object: Secret) -> ReferencedObject {
    let data = object.data.unwrap_or_default().into_iter();
    let text = object.string_data.unwrap_or_default().into_iter();
    let data = data.map(|(key, value)| (key, value.0.into()));
    ReferencedObject {
        data: data
            .chain(text.map(|(key, value)| (key, value.into_bytes().into())))
            .collect(),
        immutable: object.immutable.unwrap_or(false),
        details: ObjectDetails::Data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_config_maps_and_secrets() {
        let map = br#"{"metadata":{"name":"c"},"data":{"a":"1"},"binaryData":{"b":"AAE="},"immutable":true}"#;
        let ObjectState::Present(map) = ObjectState::from_json(ObjectKind::ConfigMap, map) else {
            panic!("not parsed")
        };
        assert_eq!(&*map.data["a"].0, b"1");
        assert_eq!(&*map.data["b"].0, [0, 1]);
        assert!(map.immutable);
        let secret = br#"{"metadata":{},"data":{"p":"cHc="}}"#;
        let ObjectState::Present(secret) = ObjectState::from_json(ObjectKind::Secret, secret)
        else {
            panic!("not parsed")
        };
        assert_eq!(&*secret.data["p"].0, b"pw");
    }

    #[test]
    fn debug_output_hides_values() {
        let invalid = br#"{"data":{"password":12345678}}"#;
        let text = format!("{:?}", ObjectState::from_json(ObjectKind::Secret, invalid));
        assert!(
            text.contains("cannot") || text.contains("not one"),
            "{text}"
        );
        assert!(!text.contains("12345678"), "{text}");
        let valid = br#"{"data":{"password":"aHVudGVyMg=="}}"#;
        let text = format!("{:?}", ObjectState::from_json(ObjectKind::Secret, valid));
        assert!(
            text.contains("7 bytes") && !text.contains("hunter2"),
            "{text}"
        );
    }
}
