//! From bytes to objects: YAML with several documents, JSON, lists.

use serde::Deserialize;
use serde_json::Value;

use super::Finding;
use super::canonical::strip_nulls;

/// An object of a kind that is understood, as it came.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A v1.Pod.
    Pod(Value),
    /// A v1.Secret.
    Secret(Value),
    /// A v1.ConfigMap.
    ConfigMap(Value),
    /// A node.k8s.io/v1.RuntimeClass.
    RuntimeClass(Value),
}

/// One object of an origin, or why it is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Where in the origin: empty when it is all of it.
    pub place: String,
    /// The object.
    pub body: Result<Object, Finding>,
}

/// Open brackets at one point of a document.
const MOST_DEPTH: usize = 1000;

const KINDS: &str =
    "Pod, PodList, List, Secret or ConfigMap of apiVersion v1, or RuntimeClass of node.k8s.io/v1";

/// Everything that some bytes hold: at least one document, right or wrong, or an empty list.
pub fn decode(bytes: &[u8]) -> Vec<Document> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let message = format!(
                "not UTF-8 text (byte {}): a YAML or JSON manifest was expected",
                error.valid_up_to()
            );
            return vec![Document {
                place: String::new(),
                body: Err(Finding::new("", message)),
            }];
        }
    };
    let values = if text.trim_start().starts_with('{') {
        json(text)
    } else {
        yaml(text)
    };
    if values.is_empty() {
        let body = Err(Finding::new("", "is empty: a manifest was expected"));
        return vec![Document {
            place: String::new(),
            body,
        }];
    }
    let many = values.len() > 1;
    let mut documents = Vec::new();
    for (i, value) in values.into_iter().enumerate() {
        let place = if many {
            format!("document {}", i + 1)
        } else {
            String::new()
        };
        match value {
            Ok(value) => sort_out(value, &place, &mut documents),
            Err(message) => documents.push(Document {
                place,
                body: Err(Finding::new("", message)),
            }),
        }
    }
    documents
}

/// JSON first, since its messages are better; what is not JSON may still be YAML in flow style.
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

/// Each document is parsed by itself, so that a broken one does not hide those after it.
fn yaml(text: &str) -> Vec<Result<Value, String>> {
    chunks(text)
        .filter(|(_, chunk)| !is_blank(chunk))
        .map(|(line, chunk)| {
            if is_too_deep(chunk) {
                return Err(format!("not YAML: nested deeper than {MOST_DEPTH} levels"));
            }
            Value::deserialize(serde_yaml_ng::Deserializer::from_str(chunk))
                .map_err(|error| yaml_message(&error, line))
        })
        .collect()
}

/// The parser's time grows with the depth for each token, so that junk of a few megabytes would
/// take it minutes. Brackets within texts count as well, which no sensible text comes near.
fn is_too_deep(chunk: &str) -> bool {
    let mut depth = 0usize;
    chunk.bytes().any(|byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MOST_DEPTH
    })
}

/// Splits at document markers, with the number of lines before each piece. A marker at the start
/// of a line is always one: neither block nor quoted text may hold it there.
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
        .map(|((number, from), to)| (number, &text[from..to]))
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

/// The parser's message with lines counted from the start of the file.
fn yaml_message(error: &serde_yaml_ng::Error, lines_before: usize) -> String {
    let told = error.to_string();
    let told = match error.location() {
        Some(at) => {
            let here = format!("at line {} column {}", at.line(), at.column());
            told.replace(
                &here,
                &format!(
                    "at line {} column {}",
                    at.line() + lines_before,
                    at.column()
                ),
            )
        }
        None => told,
    };
    format!("not YAML: {told}")
}

/// Opens lists and names kinds.
fn sort_out(mut value: Value, place: &str, documents: &mut Vec<Document>) {
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
        documents.push(Document {
            place: place.to_owned(),
            body: object(value),
        });
        return;
    };
    if let Err(finding) = check_version(&value, "v1") {
        documents.push(Document {
            place: place.to_owned(),
            body: Err(finding),
        });
        return;
    }
    let items = match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        None => Vec::new(),
        Some(_) => {
            let body = Err(Finding::new("items", "a list was expected"));
            documents.push(Document {
                place: place.to_owned(),
                body,
            });
            return;
        }
    };
    let comma = if place.is_empty() { "" } else { ", " };
    for (i, mut item) in items.into_iter().enumerate() {
        // Items of a typed list may leave out what the list has said.
        if let (Value::Object(map), false) = (&mut item, item_kind.is_empty()) {
            map.entry("kind").or_insert_with(|| item_kind.into());
            map.entry("apiVersion").or_insert_with(|| "v1".into());
        }
        documents.push(Document {
            place: format!("{place}{comma}item {}", i + 1),
            body: object(item),
        });
    }
}

fn object(value: Value) -> Result<Object, Finding> {
    if !value.is_object() {
        return Err(Finding::new(
            "",
            format!(
                "{} is not a manifest: a mapping with apiVersion, kind and metadata was expected",
                a(&value)
            ),
        ));
    }
    match value.get("kind") {
        None => Err(Finding::new("kind", format!("required: {KINDS}"))),
        Some(Value::String(kind)) => {
            let wrap = match kind.as_str() {
                "Pod" => Object::Pod,
                "Secret" => Object::Secret,
                "ConfigMap" => Object::ConfigMap,
                "RuntimeClass" => Object::RuntimeClass,
                other => {
                    return Err(Finding::new(
                        "kind",
                        format!(
                            "{} is not understood here: {KINDS} was expected",
                            quoted(other)
                        ),
                    ));
                }
            };
            let version = if kind == "RuntimeClass" {
                "node.k8s.io/v1"
            } else {
                "v1"
            };
            check_version(&value, version)?;
            Ok(wrap(value))
        }
        Some(other) => Err(Finding::new(
            "kind",
            format!("{} was found: {KINDS} was expected", a(other)),
        )),
    }
}

fn check_version(value: &Value, expected: &str) -> Result<(), Finding> {
    let wrong = |message: String| Err(Finding::new("apiVersion", message));
    match value.get("apiVersion") {
        Some(Value::String(version)) if version == expected => Ok(()),
        Some(Value::String(version)) => wrong(format!(
            "{} is not understood here: {expected} was expected",
            quoted(version)
        )),
        Some(other) => wrong(format!("{} was found: {expected} was expected", a(other))),
        None => wrong(format!("required: {expected}")),
    }
}

/// What sort of value it is, without the value.
pub fn a(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// A foreign text in quotes, cut to what a message can bear.
pub fn quoted(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return format!("{text:?}");
    }
    format!("{:?}…", text.chars().take(MOST).collect::<String>())
}
