//! From received JSON to the typed pod, with the path of what is wrong or not known.

use k8s_openapi::api::core::v1::Pod;
use serde_ignored::Path;
use serde_json::Value;

use super::Finding;

/// The typed pod and the paths of fields that it has no place for.
pub fn pod(value: &Value) -> Result<(Pod, Vec<String>), Finding> {
    let mut unknown = Vec::new();
    let mut note = |path: Path<'_>| unknown.push(dotted(&path));
    let reader = serde_ignored::Deserializer::new(value, &mut note);
    match serde_path_to_error::deserialize::<_, Pod>(reader) {
        Ok(pod) => Ok((pod, unknown)),
        Err(error) => {
            let path = error.path().to_string();
            let field = if path == "." { String::new() } else { path };
            Err(Finding::new(
                field,
                without_value(&error.into_inner().to_string()),
            ))
        }
    }
}

/// `spec.containers[0].foo`
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

/// Serde puts the value into its message; environment values are nobody's business.
fn without_value(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return if message.contains(['"', '`']) {
            "could not be read".to_owned()
        } else {
            message.to_owned()
        };
    };
    let found = found.split(['"', '`']).next().unwrap_or_default().trim();
    let found = found.rsplit(": ").next().unwrap_or(found);
    format!("{found} was found: {expected} was expected")
}

/// `defaultMode: 0644` is octal in the YAML that upstream reads; the YAML of today reads it as text.
pub fn octal_modes(value: &mut Value) {
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
                    None => octal_modes(item),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(octal_modes),
        _ => {}
    }
}
