//! Secrets, ConfigMaps and RuntimeClasses of manifests: validated and defaulted. Their values appear
//! in no message.

use k8s_openapi::ByteString;
use serde_json::{Map, Value};

use super::decode::{LocalKind, quoted, type_name};
use super::validate::names;
use super::{LocalObject, ObjectId, canonical, field};

/// The API server's limit on the data of one object.
const MAX_DATA_BYTES: usize = 1024 * 1024;

/// Parses an object of one of the supported kinds.
pub fn parse(kind: LocalKind, value: Value) -> Result<LocalObject, Vec<field::Error>> {
    match kind {
        LocalKind::Secret => secret(value),
        LocalKind::ConfigMap => config_map(value),
        LocalKind::RuntimeClass => runtime_class(value),
    }
}

/// A Secret: `stringData` folded into `data`, type defaulted.
fn secret(value: Value) -> Result<LocalObject, Vec<field::Error>> {
    namespaced("Secret", value, |map, errors| {
        let mut data = Map::new();
        let mut total = 0;
        each_text(map, "data", errors, |key, text, errors| {
            match decode64(text) {
                Some(bytes) => {
                    total += bytes.len();
                    data.insert(key.to_owned(), text.into());
                }
                None => errors.push(field::Error::new(
                    key_path("data", key),
                    "is not base64: use stringData for plain text",
                )),
            }
        });
        each_text(map, "stringData", errors, |key, text, _| {
            total += text.len();
            data.insert(key.to_owned(), encode64(text.as_bytes()));
        });
        map.remove("stringData");
        let kind = map.entry("type").or_insert_with(|| "Opaque".into());
        match kind.as_str() {
            Some(kind) => {
                for key in required_keys(kind, &data) {
                    errors.push(field::Error::new(
                        key_path("data", key),
                        format!("required in a Secret of type {}", quoted(kind)),
                    ));
                }
            }
            None => errors.push(field::Error::new("type", "expected a string")),
        }
        if !data.is_empty() {
            map.insert("data".into(), Value::Object(data));
        }
        total
    })
}

/// A ConfigMap with a valid name, keys and size.
fn config_map(value: Value) -> Result<LocalObject, Vec<field::Error>> {
    namespaced("ConfigMap", value, |map, errors| {
        let mut total = 0;
        let mut keys = Vec::new();
        each_text(map, "data", errors, |key, text, _| {
            total += text.len();
            keys.push(key.to_owned());
        });
        each_text(map, "binaryData", errors, |key, text, errors| {
            if keys.iter().any(|k| k == key) {
                errors.push(field::Error::new(
                    key_path("binaryData", key),
                    "is also in data: a key must be in one of them only",
                ));
            }
            match decode64(text) {
                Some(bytes) => total += bytes.len(),
                None => errors.push(field::Error::new(
                    key_path("binaryData", key),
                    "is not base64",
                )),
            }
        });
        total
    })
}

/// A RuntimeClass, which selects a handler of the container runtime.
fn runtime_class(value: Value) -> Result<LocalObject, Vec<field::Error>> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let mut errors = Vec::new();
    let mut check =
        |field: &str, found: Option<&str>, form: fn(&str) -> Result<(), &'static str>| match found
            .filter(|text| !text.is_empty())
        {
            None => errors.push(field::Error::new(field, "required")),
            Some(text) => {
                if let Err(expected) = form(text) {
                    let message = format!("{} is {expected}", quoted(text));
                    errors.push(field::Error::new(field, message));
                }
            }
        };
    check("metadata.name", text("/metadata/name"), names::subdomain);
    check("handler", text("/handler"), names::label);
    if !errors.is_empty() {
        return Err(errors);
    }
    let name = text("/metadata/name").unwrap_or_default().to_owned();
    Ok(LocalObject {
        key: ObjectId {
            kind: "RuntimeClass".to_owned(),
            namespace: String::new(),
            name,
        },
        manifest: canonical::to_bytes(&value),
        location: String::new(),
    })
}

fn namespaced(
    kind: &str,
    mut value: Value,
    check: impl FnOnce(&mut Map<String, Value>, &mut Vec<field::Error>) -> usize,
) -> Result<LocalObject, Vec<field::Error>> {
    let mut errors = Vec::new();
    let (namespace, name) = identity(&mut value, &mut errors);
    if let Some(map) = value.as_object_mut() {
        if map.get("immutable").is_some_and(|v| !v.is_boolean()) {
            errors.push(field::Error::new("immutable", "expected a boolean"));
        }
        let total = check(map, &mut errors);
        if total > MAX_DATA_BYTES {
            errors.push(field::Error::new(
                "data",
                format!("has {total} bytes: at most {MAX_DATA_BYTES} are allowed"),
            ));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let key = ObjectId {
        kind: kind.to_owned(),
        namespace,
        name,
    };
    Ok(LocalObject {
        key,
        manifest: canonical::to_bytes(&value),
        location: String::new(),
    })
}

fn identity(value: &mut Value, errors: &mut Vec<field::Error>) -> (String, String) {
    let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) else {
        errors.push(field::Error::new("metadata.name", "required"));
        return Default::default();
    };
    meta.remove("managedFields");
    let mut name_of =
        |field: &str, fallback: Option<&str>, check: fn(&str) -> Result<(), &'static str>| {
            let path = format!("metadata.{field}");
            match (meta.get(field), fallback) {
                (Some(Value::String(name)), _) if !name.is_empty() => {
                    if let Err(expected) = check(name) {
                        errors.push(field::Error::new(
                            path,
                            format!("{} is {expected}", quoted(name)),
                        ));
                    }
                    name.clone()
                }
                (None | Some(Value::String(_)), Some(fallback)) => fallback.to_owned(),
                (None | Some(Value::String(_)), None) => {
                    errors.push(field::Error::new(path, "required"));
                    String::new()
                }
                (Some(other), _) => {
                    errors.push(field::Error::new(
                        path,
                        format!("expected a string, found {}", type_name(other)),
                    ));
                    String::new()
                }
            }
        };
    let name = name_of("name", None, names::subdomain);
    let namespace = name_of("namespace", Some("default"), names::label);
    meta.insert("namespace".into(), namespace.clone().into());
    (namespace, name)
}

/// Calls `each` for all entries of a mapping of strings. Other values are errors, without the value.
fn each_text(
    map: &Map<String, Value>,
    part: &str,
    errors: &mut Vec<field::Error>,
    mut each: impl FnMut(&str, &str, &mut Vec<field::Error>),
) {
    match map.get(part) {
        None => {}
        Some(Value::Object(entries)) => {
            for (key, value) in entries {
                if let Err(expected) = names::config_key(key) {
                    errors.push(field::Error::new(
                        part,
                        format!("the key {} is {expected}", quoted(key)),
                    ));
                }
                match value {
                    Value::String(text) => each(key, text, errors),
                    other => errors.push(field::Error::new(
                        key_path(part, key),
                        format!("expected a string (use quotes), found {}", type_name(other)),
                    )),
                }
            }
        }
        Some(other) => errors.push(field::Error::new(
            part,
            format!("expected a mapping of strings, found {}", type_name(other)),
        )),
    }
}

/// Keys that the API server requires in Secrets of built-in types.
fn required_keys(kind: &str, data: &Map<String, Value>) -> Vec<&'static str> {
    let all: &[&str] = match kind {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/basic-auth" if !data.contains_key("username") => &["password"],
        _ => &[],
    };
    all.iter()
        .copied()
        .filter(|key| !data.contains_key(*key))
        .collect()
}

fn key_path(part: &str, key: &str) -> String {
    format!("{part}[{}]", quoted(key))
}

/// Decodes base64 as the API server does, which allows line breaks.
fn decode64(text: &str) -> Option<Vec<u8>> {
    let joined: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    serde_json::from_value::<ByteString>(Value::String(joined))
        .ok()
        .map(|bytes| bytes.0)
}

fn encode64(bytes: &[u8]) -> Value {
    serde_json::to_value(ByteString(bytes.to_vec())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runtime_classes_name_a_handler() {
        let class = |name: &str, handler: &str| {
            runtime_class(json!({"metadata": {"name": name}, "handler": handler}))
        };
        let item = class("sand.box", "kata").expect("a class");
        assert_eq!(
            (item.key.namespace.as_str(), item.key.name.as_str()),
            ("", "sand.box")
        );
        for (name, handler, field) in [
            ("", "kata", "metadata.name"),
            ("a/b", "kata", "metadata.name"),
            ("a", "", "handler"),
            ("a", "Not.A.Label", "handler"),
        ] {
            let errors = class(name, handler).expect_err("no class");
            assert_eq!(errors[0].field, field, "{name} {handler}");
        }
    }
}
