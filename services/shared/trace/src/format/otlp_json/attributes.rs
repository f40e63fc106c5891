//! Attributes in OTLP's JSON: a list of keys with typed values. Here they are texts.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::encoding::{JsonText, cut};

/// Attributes by their keys.
pub(super) type OtlpAttributes = BTreeMap<String, String>;

/// Further attributes of a span or resource are dropped, as OpenTelemetry's SDKs do.
const MAX_ATTRIBUTES: usize = 128;

#[derive(Serialize)]
struct TextAttribute<'a> {
    key: &'a str,
    value: TextValue<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TextValue<'a> {
    string_value: &'a str,
}

#[derive(Deserialize)]
struct AnyAttribute<'a> {
    #[serde(borrow)]
    key: JsonText<'a>,
    #[serde(borrow, default)]
    value: AnyAttributeValue<'a>,
}

/// The one field that is set is the value.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyAttributeValue<'a> {
    #[serde(borrow)]
    string_value: Option<JsonText<'a>>,
    bool_value: Option<bool>,
    /// A string or a number.
    int_value: Option<Value>,
    /// A number, or `NaN` and `Infinity` as strings.
    double_value: Option<Value>,
    #[serde(borrow)]
    bytes_value: Option<JsonText<'a>>,
    #[serde(borrow)]
    array_value: Option<AnyAttributeList<'a>>,
    #[serde(borrow)]
    kvlist_value: Option<AnyAttributeMap<'a>>,
}

#[derive(Deserialize)]
struct AnyAttributeList<'a> {
    #[serde(borrow, default)]
    values: Vec<AnyAttributeValue<'a>>,
}

#[derive(Deserialize)]
struct AnyAttributeMap<'a> {
    #[serde(borrow, default)]
    values: Vec<AnyAttribute<'a>>,
}

impl AnyAttributeValue<'_> {
    fn into_json(self) -> Value {
        let text = self.string_value.or(self.bytes_value);
        let scalar = text.map(|text| Value::String(cut(&text.0)));
        let scalar = scalar.or(self.bool_value.map(Value::Bool));
        let scalar = scalar.or(self.int_value).or(self.double_value);
        let list = |list: AnyAttributeList<'_>| {
            Value::Array(
                list.values
                    .into_iter()
                    .map(AnyAttributeValue::into_json)
                    .collect(),
            )
        };
        let map = |map: AnyAttributeMap<'_>| {
            let entries = map.values.into_iter();
            let entries = entries.map(|entry| (cut(&entry.key.0), entry.value.into_json()));
            Value::Object(entries.collect())
        };
        let value = scalar.or_else(|| self.array_value.map(list));
        let value = value.or_else(|| self.kvlist_value.map(map));
        value.unwrap_or(Value::Null)
    }

    fn into_text(self) -> String {
        match self.into_json() {
            Value::String(text) => cut(&text),
            Value::Null => String::new(),
            other => cut(&other.to_string()),
        }
    }
}

pub(super) fn serialize<S: Serializer>(
    attributes: &OtlpAttributes,
    to: S,
) -> Result<S::Ok, S::Error> {
    let mut list = to.serialize_seq(Some(attributes.len()))?;
    for (key, value) in attributes {
        let value = TextValue {
            string_value: value,
        };
        list.serialize_element(&TextAttribute { key, value })?;
    }
    list.end()
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<OtlpAttributes, D::Error> {
    from.deserialize_seq(AttributesVisitor)
}

/// Attributes are converted one by one: a long line does not become a multiple of its length in memory.
struct AttributesVisitor;

impl<'de> Visitor<'de> for AttributesVisitor {
    type Value = OtlpAttributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of attributes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OtlpAttributes, A::Error> {
        let mut attributes = OtlpAttributes::new();
        while let Some(attribute) = list.next_element::<AnyAttribute<'de>>()? {
            if attribute.key.0.is_empty() {
                return Err(A::Error::custom("an attribute has an empty key"));
            }
            let key = cut(&attribute.key.0);
            if attributes.len() < MAX_ATTRIBUTES || attributes.contains_key(&key) {
                attributes.insert(key, attribute.value.into_text());
            }
        }
        Ok(attributes)
    }
}
