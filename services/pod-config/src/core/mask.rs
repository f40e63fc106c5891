//! Field masks on manifests: consumers that need a few fields of each pod are sent these only.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Fields that identify a pod, which every mask includes.
const IDENTITY: [&str; 3] = ["metadata.uid", "metadata.namespace", "metadata.name"];

/// A set of field paths such as `spec.containers.image`. A path selects the field with all that is
/// below it; on its way it traverses lists element by element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestMask(Selection);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    /// The value as a whole.
    All,
    /// Some fields of an object, or of each element of a list.
    Fields(BTreeMap<String, Selection>),
}

/// A path that selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid path in manifest_mask: {0:?}")]
pub struct InvalidPath(String);

impl ManifestMask {
    /// The mask of some paths; `None` when there are none, which selects everything.
    pub fn new<'a>(
        paths: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<ManifestMask>, InvalidPath> {
        let mut paths = paths.into_iter().peekable();
        if paths.peek().is_none() {
            return Ok(None);
        }
        let mut root = Selection::Fields(BTreeMap::new());
        for path in IDENTITY.into_iter().chain(paths) {
            if path.split('.').any(str::is_empty) {
                return Err(InvalidPath(path.to_owned()));
            }
            root.add(path);
        }
        Ok(Some(ManifestMask(root)))
    }

    /// The selected fields of a manifest, as JSON in the order of the manifest. One pass over the
    /// text: values are copied or skipped, never decoded.
    pub fn prune(&self, manifest: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        let mut out = Vec::new();
        let mut deserializer = serde_json::Deserializer::from_slice(manifest);
        let pruner = Pruner {
            selection: &self.0,
            out: &mut out,
        };
        if !pruner.deserialize(&mut deserializer)? {
            return Err(Error::custom("not an object"));
        }
        deserializer.end()?;
        Ok(out)
    }
}

impl Selection {
    fn add(&mut self, path: &str) {
        let Selection::Fields(fields) = self else {
            return;
        };
        match path.split_once('.') {
            Some((field, rest)) => fields
                .entry(field.to_owned())
                .or_insert_with(|| Selection::Fields(BTreeMap::new()))
                .add(rest),
            None => drop(fields.insert(path.to_owned(), Selection::All)),
        }
    }
}

/// Writes the selected part of the next value; false when there is none.
struct Pruner<'a> {
    selection: &'a Selection,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Pruner<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        match self.selection {
            Selection::All => {
                let value = <&RawValue as serde::Deserialize>::deserialize(from)?;
                self.out.extend_from_slice(value.get().as_bytes());
                Ok(true)
            }
            Selection::Fields(_) => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Pruner<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let Selection::Fields(fields) = self.selection else {
            return Err(A::Error::custom("unexpected selection"));
        };
        self.out.push(b'{');
        let mut first = true;
        while let Some(key) = map.next_key::<FieldName<'de>>()? {
            let Some(selection) = fields.get(key.0.as_ref()) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let begin = self.out.len();
            if !first {
                self.out.push(b',');
            }
            serde_json::to_writer(&mut *self.out, key.0.as_ref()).map_err(A::Error::custom)?;
            self.out.push(b':');
            let out = &mut *self.out;
            if map.next_value_seed(Pruner { selection, out })? {
                first = false;
            } else {
                self.out.truncate(begin);
            }
        }
        self.out.push(b'}');
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        self.out.push(b'[');
        let mut first = true;
        loop {
            let begin = self.out.len();
            if !first {
                self.out.push(b',');
            }
            let (selection, out) = (self.selection, &mut *self.out);
            match seq.next_element_seed(Pruner { selection, out })? {
                Some(true) => first = false,
                Some(false) => self.out.truncate(begin),
                None => {
                    self.out.truncate(begin);
                    break;
                }
            }
        }
        self.out.push(b']');
        Ok(true)
    }

    // A scalar has none of the selected fields.

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}

/// A key of an object, borrowed unless it has escapes.
#[derive(serde::Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn mask(paths: &[&str]) -> ManifestMask {
        ManifestMask::new(paths.iter().copied()).unwrap().unwrap()
    }

    fn pruned(paths: &[&str], manifest: &Value) -> Value {
        let text = mask(paths).prune(manifest.to_string().as_bytes()).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn selected_fields_are_preserved() {
        let pod = json!({
            "metadata": {"uid": "u", "name": "n", "namespace": "ns", "labels": {"a": "b"}},
            "spec": {
                "containers": [
                    {"name": "a", "image": "i", "env": [{"name": "X"}]},
                    {"name": "b", "args": []},
                ],
                "volumes": [{"name": "v", "image": {"reference": "r", "pullPolicy": "Always"}}],
                "priority": 5,
            },
        });
        let identity = json!({"uid": "u", "name": "n", "namespace": "ns"});
        for (paths, spec) in [
            (
                &["spec.containers.image"][..],
                json!({"containers": [{"image": "i"}, {}]}),
            ),
            (
                &["spec.priority", "spec.volumes.image.reference"],
                json!({"priority": 5, "volumes": [{"image": {"reference": "r"}}]}),
            ),
            (
                &["spec.containers.env"],
                json!({"containers": [{"env": [{"name": "X"}]}, {}]}),
            ),
            (
                &["spec.absent", "spec.priority.x", "spec.containers.image.x"],
                json!({"containers": [{}, {}]}),
            ),
            (&["spec", "spec.priority"], pod["spec"].clone()),
            (&["spec.priority", "spec"], pod["spec"].clone()),
        ] {
            let expected = json!({"metadata": identity, "spec": spec});
            assert_eq!(pruned(paths, &pod), expected, "{paths:?}");
        }
        let labels = pruned(&["metadata.labels"], &pod);
        assert_eq!(labels, json!({"metadata": pod["metadata"]}));
    }

    #[test]
    fn masks_are_validated() {
        assert_eq!(ManifestMask::new([]), Ok(None));
        for path in ["", ".", "spec.", ".spec", "spec..x"] {
            assert!(ManifestMask::new([path]).is_err(), "{path:?}");
        }
        for text in ["", "{", "[", "5", "{} x", "\"x\""] {
            assert!(mask(&["spec"]).prune(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    /// The same by decoding everything.
    fn reference(selection: &Selection, value: &Value) -> Option<Value> {
        match (selection, value) {
            (Selection::All, value) => Some(value.clone()),
            (Selection::Fields(fields), Value::Object(map)) => Some(
                map.iter()
                    .filter_map(|(key, value)| {
                        Some((key.clone(), reference(fields.get(key)?, value)?))
                    })
                    .collect::<serde_json::Map<_, _>>()
                    .into(),
            ),
            (Selection::Fields(_), Value::Array(items)) => Some(Value::Array(
                items
                    .iter()
                    .filter_map(|item| reference(selection, item))
                    .collect(),
            )),
            _ => None,
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,6}".prop_map(Value::from),
        ];
        scalar.prop_recursive(5, 48, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"\\\\é]{1,2}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn pruning_matches_the_reference(
            fields in prop::collection::btree_map("[a-c]", value(), 0..4),
            paths in prop::collection::vec("[a-c](\\.[a-c\"é]){0,3}", 1..5),
        ) {
            let manifest = Value::Object(fields.into_iter().collect()).to_string();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let mask = mask(&paths);
            let text = mask.prune(manifest.as_bytes()).unwrap();
            let pruned: Value = serde_json::from_slice(&text).unwrap();
            // Numbers as read, which may differ from those written.
            let manifest: Value = serde_json::from_str(&manifest).unwrap();
            prop_assert_eq!(Some(pruned), reference(&mask.0, &manifest));
            let again = mask.prune(&text).unwrap();
            prop_assert_eq!(again, text, "pruning twice is pruning once");
        }
    }
}
