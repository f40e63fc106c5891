//! Inputs with one part repeated: work that grows faster than its input is slow at a size where
//! fuzzing would take too long to get to.

use serde_json::{Map, Value};

/// Repeats one part of an object until it has about this many bytes: the elements of an array, under
/// new names, the entries of a map, or a text. `part` chooses it.
pub fn scale(value: &mut Value, part: usize, bytes: usize) {
    let parts = count(value);
    let mut index = part % parts.max(1);
    visit(value, &mut index, bytes);
}

fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().into_iter().flatten();
    items.chain(value.as_object().into_iter().flat_map(Map::values))
}

fn count(value: &Value) -> usize {
    let own = usize::from(value.is_array() || value.is_object() || value.is_string());
    own + children(value).map(count).sum::<usize>()
}

/// Repeats the part with this index, counted down on the way.
fn visit(value: &mut Value, index: &mut usize, bytes: usize) -> bool {
    if value.is_array() || value.is_object() || value.is_string() {
        if *index == 0 {
            repeat(value, bytes);
            return true;
        }
        *index -= 1;
    }
    match value {
        Value::Array(items) => items.iter_mut().any(|item| visit(item, index, bytes)),
        Value::Object(fields) => fields.values_mut().any(|field| visit(field, index, bytes)),
        _ => false,
    }
}

fn repeat(value: &mut Value, bytes: usize) {
    let copies = bytes / value.to_string().len().max(1);
    match value {
        Value::Array(items) => {
            let originals = items.clone();
            for copy in 0..copies {
                let renamed = originals.iter().map(|item| renamed(item, copy));
                items.extend(renamed);
            }
        }
        Value::Object(fields) => {
            let originals = fields.clone();
            for copy in 0..copies {
                let renamed =
                    |(name, field): (&String, &Value)| (format!("{name}{copy}"), field.clone());
                fields.extend(originals.iter().map(renamed));
            }
        }
        Value::String(text) => *text = text.repeat(bytes / text.len().max(1)),
        _ => {}
    }
}

/// A copy of an element, whose name differs from the others'.
fn renamed(item: &Value, copy: usize) -> Value {
    let mut item = item.clone();
    match &mut item {
        Value::Object(fields) => {
            for name in ["name", "key", "path", "mountPath", "containerPort"] {
                match fields.get_mut(name) {
                    Some(Value::String(text)) => text.push_str(&copy.to_string()),
                    Some(port @ Value::Number(_)) => *port = (copy % 65_535 + 1).into(),
                    _ => {}
                }
            }
        }
        Value::String(text) => text.push_str(&copy.to_string()),
        _ => {}
    }
    item
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_part_is_repeated() {
        let pod = json!({"a": [{"name": "x"}], "b": {"c": "text"}, "d": 1});
        assert_eq!(count(&pod), 6);
        for part in 0..6 {
            let mut scaled = pod.clone();
            scale(&mut scaled, part, 1000);
            let length = scaled.to_string().len();
            assert!((800..3000).contains(&length), "part {part}: {length}");
        }
        let mut scaled = json!({"a": [{"name": "x"}]});
        scale(&mut scaled, 1, 30);
        assert_eq!(
            scaled,
            json!({"a": [{"name": "x"}, {"name": "x0"}, {"name": "x1"}]})
        );
    }
}
