//! Local Secrets, ConfigMaps and RuntimeClasses: checked, completed, never quoted.

use k8s_openapi::ByteString;
use serde_json::{Map, Value};
use std::sync::Arc;

use super::decode::{a, quoted};
use super::validate::names;
use super::{Finding, ObjectItem, ObjectKey, canonical};

/// Upstream's bound on the data of one object.
const MOST_BYTES: usize = 1024 * 1024;

/// A Secret: `stringData` folded into `data`, type defaulted.
pub fn secret(value: Value) -> Result<ObjectItem, Vec<Finding>> {
    accept("Secret", value, |map, findings| {
        let mut data = Map::new();
        let mut total = 0;
        each_text(
            map,
            "data",
            findings,
            |key, text, findings| match decode64(text) {
                Some(bytes) => {
                    total += bytes.len();
                    data.insert(key.to_owned(), text.into());
                }
                None => findings.push(Finding::new(
                    field("data", key),
                    "is not base64: stringData takes plain text",
                )),
            },
        );
        each_text(map, "stringData", findings, |key, text, _| {
            total += text.len();
            data.insert(key.to_owned(), encode64(text.as_bytes()));
        });
        map.remove("stringData");
        let kind = map.entry("type").or_insert_with(|| "Opaque".into());
        match kind.as_str() {
            Some(kind) => {
                for key in needed(kind, &data) {
                    findings.push(Finding::new(
                        field("data", key),
                        format!("required in a Secret of type {}", quoted(kind)),
                    ));
                }
            }
            None => findings.push(Finding::new("type", "a text was expected")),
        }
        if !data.is_empty() {
            map.insert("data".into(), Value::Object(data));
        }
        total
    })
}

/// A ConfigMap.
pub fn config_map(value: Value) -> Result<ObjectItem, Vec<Finding>> {
    accept("ConfigMap", value, |map, findings| {
        let mut total = 0;
        let mut keys = Vec::new();
        each_text(map, "data", findings, |key, text, _| {
            total += text.len();
            keys.push(key.to_owned());
        });
        each_text(map, "binaryData", findings, |key, text, findings| {
            if keys.iter().any(|k| k == key) {
                findings.push(Finding::new(
                    field("binaryData", key),
                    "stands in data as well: a key may be in one of them only",
                ));
            }
            match decode64(text) {
                Some(bytes) => total += bytes.len(),
                None => findings.push(Finding::new(field("binaryData", key), "is not base64")),
            }
        });
        total
    })
}

/// A RuntimeClass: which handler of the runtime pods of this class get.
pub fn runtime_class(value: Value) -> Result<ObjectItem, Vec<Finding>> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let mut findings = Vec::new();
    let mut check =
        |field: &str, found: Option<&str>, form: fn(&str) -> Result<(), &'static str>| match found
            .filter(|text| !text.is_empty())
        {
            None => findings.push(Finding::new(field, "required")),
            Some(text) => {
                if let Err(expected) = form(text) {
                    let message = format!("{} is {expected}", quoted(text));
                    findings.push(Finding::new(field, message));
                }
            }
        };
    check("metadata.name", text("/metadata/name"), names::subdomain);
    check("handler", text("/handler"), names::label);
    if !findings.is_empty() {
        return Err(findings);
    }
    let name = text("/metadata/name").unwrap_or_default().to_owned();
    Ok(ObjectItem {
        key: ObjectKey {
            kind: "RuntimeClass".to_owned(),
            namespace: String::new(),
            name,
        },
        manifest: Arc::from(canonical::text(&value)),
        place: String::new(),
    })
}

fn accept(
    kind: &str,
    mut value: Value,
    check: impl FnOnce(&mut Map<String, Value>, &mut Vec<Finding>) -> usize,
) -> Result<ObjectItem, Vec<Finding>> {
    let mut findings = Vec::new();
    let (namespace, name) = identity(&mut value, &mut findings);
    if let Some(map) = value.as_object_mut() {
        if map.get("immutable").is_some_and(|v| !v.is_boolean()) {
            findings.push(Finding::new("immutable", "a boolean was expected"));
        }
        let total = check(map, &mut findings);
        if total > MOST_BYTES {
            findings.push(Finding::new(
                "data",
                format!("holds {total} bytes: at most {MOST_BYTES} are allowed"),
            ));
        }
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    let key = ObjectKey {
        kind: kind.to_owned(),
        namespace,
        name,
    };
    Ok(ObjectItem {
        key,
        manifest: Arc::from(canonical::text(&value)),
        place: String::new(),
    })
}

fn identity(value: &mut Value, findings: &mut Vec<Finding>) -> (String, String) {
    let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) else {
        findings.push(Finding::new("metadata.name", "required"));
        return Default::default();
    };
    meta.remove("managedFields");
    let mut name_of =
        |field: &str, fallback: Option<&str>, check: fn(&str) -> Result<(), &'static str>| {
            let path = format!("metadata.{field}");
            match (meta.get(field), fallback) {
                (Some(Value::String(name)), _) if !name.is_empty() => {
                    if let Err(expected) = check(name) {
                        findings.push(Finding::new(
                            path,
                            format!("{} is {expected}", quoted(name)),
                        ));
                    }
                    name.clone()
                }
                (None | Some(Value::String(_)), Some(fallback)) => fallback.to_owned(),
                (None | Some(Value::String(_)), None) => {
                    findings.push(Finding::new(path, "required"));
                    String::new()
                }
                (Some(other), _) => {
                    findings.push(Finding::new(
                        path,
                        format!("{} was found: a text was expected", a(other)),
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

/// Every entry of a mapping of texts; what is no text is found wrong, and never shown.
fn each_text(
    map: &Map<String, Value>,
    part: &str,
    findings: &mut Vec<Finding>,
    mut each: impl FnMut(&str, &str, &mut Vec<Finding>),
) {
    match map.get(part) {
        None => {}
        Some(Value::Object(entries)) => {
            for (key, value) in entries {
                if let Err(expected) = names::config_key(key) {
                    findings.push(Finding::new(
                        part,
                        format!("the key {} is {expected}", quoted(key)),
                    ));
                }
                match value {
                    Value::String(text) => each(key, text, findings),
                    other => findings.push(Finding::new(
                        field(part, key),
                        format!(
                            "{} was found: a text was expected (put it in quotes)",
                            a(other)
                        ),
                    )),
                }
            }
        }
        Some(other) => findings.push(Finding::new(
            part,
            format!("{} was found: a mapping of texts was expected", a(other)),
        )),
    }
}

/// Keys that upstream wants in Secrets of its own types.
fn needed(kind: &str, data: &Map<String, Value>) -> Vec<&'static str> {
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

fn field(part: &str, key: &str) -> String {
    format!("{part}[{}]", quoted(key))
}

/// As the API reads base64: line breaks within are fine.
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
            let findings = class(name, handler).expect_err("no class");
            assert_eq!(findings[0].field, field, "{name} {handler}");
        }
    }
}
