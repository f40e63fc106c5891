//! Serde of shared bytes that are UTF-8 text, as a string.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(text: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(text))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    String::deserialize(from).map(|text| text.into_boxed_str().into_boxed_bytes().into())
}
