//! Objects and events as lines that two agents can share: identities, times and lengths of time are
//! blanked.

use std::collections::BTreeSet;

use polylet_e2e::beside::words::{self, looks_like};
use serde_json::Value;

/// What is told, one fact a line.
pub(crate) type Lines = BTreeSet<String>;

/// A difference that is right: what lines that only one of them tells look like (`*` stands for
/// anything), and why.
pub(crate) type Right = (&'static str, &'static str);

/// The lines that only one of them has.
pub(crate) fn differences(expected: &Lines, found: &Lines, right: &[Right]) -> Vec<String> {
    let explained = |line: &&String| right.iter().any(|(pattern, _)| looks_like(line, pattern));
    let mut wrong: Vec<(&String, &str)> = Vec::new();
    let missing = expected.difference(found).filter(|line| !explained(line));
    wrong.extend(missing.map(|line| (line, "kubelet")));
    let more = found.difference(expected).filter(|line| !explained(line));
    wrong.extend(more.map(|line| (line, "polylet")));
    wrong.sort();
    let told = wrong.iter().map(|(line, who)| format!("{who}: {line}"));
    told.collect()
}

/// An object: every field by its path.
pub(crate) fn of_object(what: &str, mut object: Value) -> Lines {
    let mut lines = Lines::new();
    let metadata = &mut object["metadata"];
    for entry in metadata["managedFields"].as_array().into_iter().flatten() {
        let (who, how) = (&entry["manager"], &entry["operation"]);
        let of = entry["subresource"].as_str().unwrap_or_default();
        flat(
            &format!("{what} fields of {who} by {how} {of}:"),
            &entry["fieldsV1"],
            &mut lines,
        );
    }
    for own in ["managedFields", "uid", "resourceVersion"] {
        if let Some(fields) = metadata.as_object_mut() {
            fields.remove(own);
        }
    }
    flat(what, &object, &mut lines);
    lines
}

fn flat(path: &str, value: &Value, lines: &mut Lines) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                flat(&format!("{path} {name}"), value, lines);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (at, value) in list.iter().enumerate() {
                // Conditions are a map by type, and words a set.
                let key = value["type"].as_str().map_or(at.to_string(), str::to_owned);
                let key = if value.is_string() {
                    "has".to_owned()
                } else {
                    key
                };
                flat(&format!("{path} {key}"), value, lines);
            }
        }
        Value::String(text) => {
            lines.insert(blank(&format!("{path}: {text}")));
        }
        other => {
            lines.insert(blank(&format!("{path}: {other}")));
        }
    }
}

/// Words without what is never the same twice, and without what one pod in two namespaces differs in.
pub(crate) fn blank(text: &str) -> String {
    words::blank(text)
        .replace("first", "NS")
        .replace("second", "NS")
}
