//! Typed pods from received JSON, with the paths of invalid and unknown fields.

use k8s_openapi::api::core::v1::Pod;
use serde_ignored::Path;
use serde_json::Value;

use super::field;

/// The typed pod and the paths of its unknown fields.
pub fn pod(value: &Value) -> Result<(Pod, Vec<String>), field::Error> {
    let mut unknown = Vec::new();
    let mut record = |path: Path<'_>| unknown.push(dotted(&path));
    let reader = serde_ignored::Deserializer::new(value, &mut record);
    match serde_path_to_error::deserialize::<_, Pod>(reader) {
        Ok(pod) => Ok((pod, unknown)),
        Err(error) => {
            let path = error.path().to_string();
            let field = if path == "." { String::new() } else { path };
            Err(field::Error::new(
                field,
                without_value(&error.into_inner().to_string()),
            ))
        }
    }
}

/// A path as `spec.containers[0].foo`.
fn dotted(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", dotted(parent)),
        Path::Map { parent, key } => {
            let parent = dotted(parent);
            if parent.is_empty() {
                key.clone()
            } else {
                format!("{parent}.{key}")
            }
        }
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => dotted(parent),
    }
}

/// Serde's message without the value that it quotes: environment variables may hold secrets.
fn without_value(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return if message.contains(['"', '`']) {
            "invalid value".to_owned()
        } else {
            message.to_owned()
        };
    };
    let found = found.split(['"', '`']).next().unwrap_or_default().trim();
    let found = found.rsplit(": ").next().unwrap_or(found);
    format!("expected {expected}, found {found}")
}

/// Reads modes such as `defaultMode: 0644` as octal: they are octal in the YAML 1.1 that the kubelet
/// reads, and strings in YAML 1.2.
pub fn parse_octal_modes(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, item) in map.iter_mut() {
                let octal = match (key.as_str(), &*item) {
                    ("defaultMode" | "mode", Value::String(text))
                        if text.len() > 1 && text.starts_with('0') =>
                    {
                        i64::from_str_radix(text, 8).ok()
                    }
                    _ => None,
                };
                match octal {
                    Some(mode) => *item = mode.into(),
                    None => parse_octal_modes(item),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(parse_octal_modes),
        _ => {}
    }
}
