//! One text per meaning: JSON with sorted keys.

use serde_json::Value;

/// JSON with sorted keys and no spaces: equal values give equal text on every build.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(&map[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

/// Takes out object fields that are null: the API reads them as not set.
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

/// Puts what a typed object says (defaults filled in) over the received one, so that fields which
/// this build does not know still travel.
pub fn overlay(received: &mut Value, typed: Value) {
    match (received, typed) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                match under.get_mut(&key) {
                    Some(place) => overlay(place, value),
                    None => {
                        under.insert(key, value);
                    }
                }
            }
        }
        (Value::Array(under), Value::Array(over)) if under.len() == over.len() => {
            for (place, value) in under.iter_mut().zip(over) {
                overlay(place, value);
            }
        }
        (place, value) => *place = value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted() {
        assert_eq!(
            text(&json!({"b": [1, {"d": "x\"y", "c": null}], "a": true})),
            r#"{"a":true,"b":[1,{"c":null,"d":"x\"y"}]}"#
        );
    }

    #[test]
    fn unknown_fields_stay_under_the_typed_ones() {
        let mut received =
            json!({"spec": {"future": 1, "containers": [{"name": "a", "odd": true}]}});
        overlay(
            &mut received,
            json!({"spec": {"containers": [{"name": "a", "image": "i"}], "dnsPolicy": "Default"}}),
        );
        assert_eq!(
            received,
            json!({"spec": {"future": 1, "dnsPolicy": "Default", "containers": [{"name": "a", "odd": true, "image": "i"}]}})
        );
    }
}
