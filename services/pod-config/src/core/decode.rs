//! From bytes to API objects: YAML with several documents, JSON, lists.

use serde::Deserialize;
use serde_json::Value;

use super::canonical::strip_nulls;
use super::field;

/// An object of a supported kind, as received.
#[derive(Clone, Debug, PartialEq)]
pub enum ManifestObject {
    /// A `v1.Pod`.
    Pod(Value),
    /// An object that pods refer to.
    Local(LocalKind, Value),
}

/// Kinds of objects that manifests can define besides pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalKind {
    /// A `v1.Secret`.
    Secret,
    /// A `v1.ConfigMap`.
    ConfigMap,
    /// A `node.k8s.io/v1.RuntimeClass`.
    RuntimeClass,
}

impl LocalKind {
    fn api_version(self) -> &'static str {
        match self {
            LocalKind::Secret | LocalKind::ConfigMap => "v1",
            LocalKind::RuntimeClass => "node.k8s.io/v1",
        }
    }
}

/// One object of a manifest, or the reason why it is invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestDocument {
    /// Position in the manifest; empty when the manifest is one object.
    pub location: String,
    /// The object.
    pub body: Result<ManifestObject, field::Error>,
}

impl ManifestDocument {
    fn invalid(location: &str, field: &str, message: impl Into<String>) -> Self {
        ManifestDocument {
            location: location.to_owned(),
            body: Err(field::Error::new(field, message)),
        }
    }
}

/// Limit of open brackets in a YAML document.
const MAX_DEPTH: usize = 1000;

const KINDS: &str =
    "Pod, PodList, List, Secret or ConfigMap of apiVersion v1, or RuntimeClass of node.k8s.io/v1";

/// All objects in `bytes`: at least one, valid or not, or none for an empty list.
pub fn decode(bytes: &[u8]) -> Vec<ManifestDocument> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let message = format!(
                "not UTF-8 text (byte {}): expected a YAML or JSON manifest",
                error.valid_up_to()
            );
            return vec![ManifestDocument::invalid("", "", message)];
        }
    };
    let values = if text.trim_start().starts_with('{') {
        json(text)
    } else {
        yaml(text)
    };
    if values.is_empty() {
        let message = "is empty: expected a manifest";
        return vec![ManifestDocument::invalid("", "", message)];
    }
    let several = values.len() > 1;
    let mut documents = Vec::new();
    for (i, value) in values.into_iter().enumerate() {
        let location = if several {
            format!("document {}", i + 1)
        } else {
            String::new()
        };
        match value {
            Ok(value) => expand_lists(value, &location, &mut documents),
            Err(message) => documents.push(ManifestDocument::invalid(&location, "", message)),
        }
    }
    documents
}

/// JSON first, which has the better error messages; what is not JSON can still be YAML in flow style.
fn json(text: &str) -> Vec<Result<Value, String>> {
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text)
        .into_iter::<Value>()
        .collect();
    match values {
        Ok(values) => values.into_iter().map(Ok).collect(),
        Err(error) => {
            let values = yaml(text);
            if values.iter().all(Result::is_ok) {
                values
            } else {
                vec![Err(format!("not JSON: {error}"))]
            }
        }
    }
}

/// Documents are parsed separately, so that an invalid one does not hide those after it.
fn yaml(text: &str) -> Vec<Result<Value, String>> {
    chunks(text)
        .filter(|(_, chunk)| !is_blank(chunk))
        .map(|(line, chunk)| {
            if is_too_deep(chunk) {
                return Err(format!("not YAML: nested deeper than {MAX_DEPTH} levels"));
            }
            Value::deserialize(serde_yaml_ng::Deserializer::from_str(chunk))
                .map_err(|error| yaml_message(&error, line))
        })
        .collect()
}

/// The parser's time per token grows with the depth: a few megabytes of brackets would take minutes.
/// Brackets within strings are counted as well; no real manifest comes near the limit.
fn is_too_deep(chunk: &str) -> bool {
    let mut depth = 0usize;
    chunk.bytes().any(|byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MAX_DEPTH
    })
}

/// Splits at document markers; each chunk comes with the number of lines before it. A marker at the
/// start of a line is always one: neither block nor quoted scalars can contain it there.
fn chunks(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut starts = vec![(0, 0)];
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if at > 0 && is_marker(line) {
            starts.push((number, at));
        }
        at += line.len();
    }
    let ends: Vec<usize> = starts
        .iter()
        .skip(1)
        .map(|(_, at)| *at)
        .chain([text.len()])
        .collect();
    starts
        .into_iter()
        .zip(ends)
        .map(|((number, from), to)| (number, text.get(from..to).unwrap_or_default()))
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn is_blank(chunk: &str) -> bool {
    chunk.lines().all(|line| {
        let line = line.strip_prefix("---").unwrap_or(line).trim();
        line.is_empty() || line.starts_with('#') || line.starts_with('%') || line == "..."
    })
}

/// The parser's message, with line numbers of the file instead of the chunk.
fn yaml_message(error: &serde_yaml_ng::Error, lines_before: usize) -> String {
    let mut message = error.to_string();
    if let Some(at) = error.location() {
        let in_chunk = format!("at line {} column {}", at.line(), at.column());
        let in_file = format!(
            "at line {} column {}",
            at.line() + lines_before,
            at.column()
        );
        message = message.replace(&in_chunk, &in_file);
    }
    format!("not YAML: {message}")
}

/// Adds the items of a list, or the value itself.
fn expand_lists(mut value: Value, location: &str, documents: &mut Vec<ManifestDocument>) {
    strip_nulls(&mut value);
    let kind = value
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let item_kind = match kind {
        "List" => Some(""),
        "PodList" => Some("Pod"),
        "SecretList" => Some("Secret"),
        "ConfigMapList" => Some("ConfigMap"),
        _ => None,
    };
    let Some(item_kind) = item_kind else {
        documents.push(ManifestDocument {
            location: location.to_owned(),
            body: object(value),
        });
        return;
    };
    if let Err(error) = check_version(&value, "v1") {
        documents.push(ManifestDocument {
            location: location.to_owned(),
            body: Err(error),
        });
        return;
    }
    let items = match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        None => Vec::new(),
        Some(_) => {
            let invalid = ManifestDocument::invalid(location, "items", "expected a list");
            return documents.push(invalid);
        }
    };
    let comma = if location.is_empty() { "" } else { ", " };
    for (i, mut item) in items.into_iter().enumerate() {
        // Items of a typed list may omit kind and version.
        if let (Value::Object(map), false) = (&mut item, item_kind.is_empty()) {
            map.entry("kind").or_insert_with(|| item_kind.into());
            map.entry("apiVersion").or_insert_with(|| "v1".into());
        }
        documents.push(ManifestDocument {
            location: format!("{location}{comma}item {}", i + 1),
            body: object(item),
        });
    }
}

fn object(value: Value) -> Result<ManifestObject, field::Error> {
    if !value.is_object() {
        return Err(field::Error::new(
            "",
            format!(
                "{} is not a manifest: expected a mapping with apiVersion, kind and metadata",
                type_name(&value)
            ),
        ));
    }
    let invalid = |message: String| Err(field::Error::new("kind", message));
    let kind = match value.get("kind") {
        None => return invalid(format!("required: {KINDS}")),
        Some(Value::String(kind)) => kind.as_str(),
        Some(other) => {
            return invalid(format!("expected {KINDS}, found {}", type_name(other)));
        }
    };
    let local = match kind {
        "Pod" => {
            check_version(&value, "v1")?;
            return Ok(ManifestObject::Pod(value));
        }
        "Secret" => LocalKind::Secret,
        "ConfigMap" => LocalKind::ConfigMap,
        "RuntimeClass" => LocalKind::RuntimeClass,
        other => {
            let kind = quoted(other);
            return invalid(format!("{kind} is not supported: expected {KINDS}"));
        }
    };
    check_version(&value, local.api_version())?;
    Ok(ManifestObject::Local(local, value))
}

fn check_version(value: &Value, expected: &str) -> Result<(), field::Error> {
    let invalid = |message: String| Err(field::Error::new("apiVersion", message));
    match value.get("apiVersion") {
        Some(Value::String(version)) if version == expected => Ok(()),
        Some(Value::String(version)) => invalid(format!(
            "{} is not supported: expected {expected}",
            quoted(version)
        )),
        Some(other) => invalid(format!("expected {expected}, found {}", type_name(other))),
        None => invalid(format!("required: {expected}")),
    }
}

/// The type of a value, for messages that must not quote it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// A user's text in quotes, truncated for messages.
pub fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    if text.chars().count() <= MAX_CHARS {
        return format!("{text:?}");
    }
    format!("{:?}…", text.chars().take(MAX_CHARS).collect::<String>())
}
