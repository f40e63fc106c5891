//! Canonical JSON: one text per value, with sorted keys.

use std::ops::Range;

use bytes::Bytes;
use polylet_model::constants::pod_annotation::{CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE};
use polylet_model::hash::Fnv1a128;
use serde_json::{Map, Value};

/// Annotations that the node writes; they are no part of a pod's digest.
const NODE_ANNOTATIONS: [&str; 3] = [CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE];

/// JSON with sorted keys and without spaces: equal values give equal text on every build.
pub fn to_bytes(value: &Value) -> Bytes {
    let mut out = Vec::new();
    write(value, &mut out);
    shrunk(out)
}

/// The canonical text of a pod without status and bookkeeping fields. The digest is made of the same
/// text: it is that of [`polylet_model::pod::digest`], which leaves out the node's annotations.
#[derive(Default)]
pub struct PodText {
    text: Vec<u8>,
    /// Parts of the text that are not in the digest, in order.
    excluded: Vec<Range<usize>>,
}

impl PodText {
    /// Writes the text of a pod.
    pub fn new(pod: &Value) -> PodText {
        let mut text = PodText::default();
        match pod {
            Value::Object(pod) => text.object(pod, |_, _| false, PodText::root_field),
            other => text.value(other),
        }
        text
    }

    /// The JSON text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// The digest of the pod, in hexadecimal.
    pub fn digest(&self) -> String {
        let mut hash = Fnv1a128::default();
        let mut begin = 0;
        for excluded in &self.excluded {
            hash.update(self.text.get(begin..excluded.start).unwrap_or_default());
            begin = excluded.end;
        }
        hash.update(self.text.get(begin..).unwrap_or_default());
        format!("{:032x}", hash.finish())
    }

    /// The text, to be shared.
    pub fn into_bytes(self) -> Bytes {
        shrunk(self.text)
    }

    fn root_field(&mut self, key: &str, value: &Value) {
        match (key, value) {
            ("metadata", Value::Object(metadata)) => {
                // Without the node's annotations there may be none.
                let excluded = |key: &str, value: &Value| {
                    let annotations = value.as_object().filter(|_| key == "annotations");
                    annotations.is_some_and(|all| all.keys().all(|key| is_node_annotation(key)))
                };
                self.object(metadata, excluded, PodText::metadata_field);
            }
            _ => self.value(value),
        }
    }

    fn metadata_field(&mut self, key: &str, value: &Value) {
        match (key, value) {
            ("annotations", Value::Object(annotations)) => {
                let excluded = |key: &str, _: &Value| is_node_annotation(key);
                self.object(annotations, excluded, |text, _, value| text.value(value));
            }
            _ => self.value(value),
        }
    }

    fn object(
        &mut self,
        map: &Map<String, Value>,
        excluded: impl Fn(&str, &Value) -> bool,
        write_field: impl Fn(&mut Self, &str, &Value),
    ) {
        self.text.push(b'{');
        let mut included = 0;
        for (i, (key, value)) in sorted(map).into_iter().enumerate() {
            let begin = self.text.len();
            if i > 0 {
                self.text.push(b',');
            }
            if excluded(key, value) {
                write_key(key, &mut self.text);
                write(value, &mut self.text);
                self.excluded.push(begin..self.text.len());
                continue;
            }
            if included == 0 {
                // No comma before the first field of the digest.
                self.excluded.push(begin..self.text.len());
            }
            included += 1;
            write_key(key, &mut self.text);
            write_field(self, key, value);
        }
        self.text.push(b'}');
    }

    fn value(&mut self, value: &Value) {
        write(value, &mut self.text);
    }
}

fn is_node_annotation(key: &str) -> bool {
    NODE_ANNOTATIONS.contains(&key)
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            out.push(b'{');
            for (i, (key, value)) in sorted(map).into_iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_key(key, out);
                write(value, out);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        scalar => write_json(scalar, out),
    }
}

fn write_key(key: &str, out: &mut Vec<u8>) {
    write_json(key, out);
    out.push(b':');
}

fn write_json(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    // Neither writing to memory nor texts and numbers can fail.
    let _ = serde_json::to_writer(&mut *out, value);
}

/// The order of serde_json's maps depends on a feature that any dependency can enable.
fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

/// Texts are held for as long as their pod exists: without the spare capacity of the buffer.
fn shrunk(text: Vec<u8>) -> Bytes {
    text.into_boxed_slice().into()
}

/// Removes object fields that are null: the API treats them as unset.
pub fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

/// Merges the typed object, with its defaults, into the received one, so that fields unknown to this
/// build are preserved.
pub fn merge_defaults(received: &mut Value, typed: Value) {
    match (received, typed) {
        (Value::Object(received), Value::Object(typed)) => {
            for (key, value) in typed {
                match received.get_mut(&key) {
                    Some(field) => merge_defaults(field, value),
                    None => {
                        received.insert(key, value);
                    }
                }
            }
        }
        (Value::Array(received), Value::Array(typed)) if received.len() == typed.len() => {
            for (item, value) in received.iter_mut().zip(typed) {
                merge_defaults(item, value);
            }
        }
        (received, typed) => *received = typed,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted() {
        assert_eq!(
            to_bytes(&json!({"b": [1, {"d": "x\"y", "c": null}], "a": true})),
            r#"{"a":true,"b":[1,{"c":null,"d":"x\"y"}]}"#
        );
    }

    #[test]
    fn unknown_fields_are_preserved() {
        let mut received =
            json!({"spec": {"future": 1, "containers": [{"name": "a", "odd": true}]}});
        merge_defaults(
            &mut received,
            json!({"spec": {"containers": [{"name": "a", "image": "i"}], "dnsPolicy": "Default"}}),
        );
        assert_eq!(
            received,
            json!({"spec": {"future": 1, "dnsPolicy": "Default", "containers": [{"name": "a", "odd": true, "image": "i"}]}})
        );
    }

    proptest! {
        #[test]
        fn text_and_digest_match_the_separate_functions(
            annotations in prop::option::of(prop::collection::btree_map(
                prop::sample::select(vec!["a", "z", CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE]),
                "\\PC{0,6}",
                0..5,
            )),
            before in prop::option::of("[a-z]{0,4}"),
            name in "\\PC{0,8}",
        ) {
            let mut pod = json!({"kind": "Pod", "metadata": {"name": name}, "spec": {"n": [1, null]}});
            if let Some(annotations) = annotations {
                pod["metadata"]["annotations"] = json!(annotations);
            }
            if let Some(before) = before {
                pod["metadata"]["a"] = json!(before);
            }
            let text = PodText::new(&pod);
            prop_assert_eq!(text.digest(), polylet_model::pod::digest(&pod));
            prop_assert_eq!(&text.into_bytes(), &to_bytes(&pod));
        }

        #[test]
        fn any_value_has_text_and_digest(keys in prop::collection::vec("\\PC{0,6}", 0..4), text in "\\PC{0,8}") {
            let pod: Value = keys.into_iter().map(|key| (key, json!([text, {"x": 1.5}]))).collect();
            let text = PodText::new(&pod);
            prop_assert_eq!(serde_json::from_slice::<Value>(text.as_bytes()).unwrap(), pod.clone());
            prop_assert_eq!(text.digest(), polylet_model::pod::digest(&pod));
        }
    }
}
