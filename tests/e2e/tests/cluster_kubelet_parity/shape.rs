//! Objects and events as lines that two agents have in common: ids, times and durations are blanked.

use std::collections::BTreeSet;

use polylet_e2e::kubelet_parity::patterns::{self, matches};
use serde_json::Value;

/// Facts, one per line.
pub(crate) type Lines = BTreeSet<String>;

/// An expected difference: a pattern of lines that only one agent has (`*` matches any text), and the
/// reason.
pub(crate) type ExpectedDifference = (&'static str, &'static str);

/// Lines that only one agent has.
pub(crate) fn differences(
    expected: &Lines,
    found: &Lines,
    expected_differences: &[ExpectedDifference],
) -> Vec<String> {
    let covered = |line: &&String| {
        expected_differences
            .iter()
            .any(|(pattern, _)| matches(line, pattern))
    };
    let mut unexpected: Vec<(&String, &str)> = Vec::new();
    let missing = expected.difference(found).filter(|line| !covered(line));
    unexpected.extend(missing.map(|line| (line, "kubelet")));
    let more = found.difference(expected).filter(|line| !covered(line));
    unexpected.extend(more.map(|line| (line, "polylet")));
    unexpected.sort();
    let formatted = unexpected
        .iter()
        .map(|(line, who)| format!("{who}: {line}"));
    formatted.collect()
}

/// The fields of an object by their paths.
pub(crate) fn object_lines(what: &str, mut object: Value) -> Lines {
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
    for field in ["managedFields", "uid", "resourceVersion"] {
        if let Some(fields) = metadata.as_object_mut() {
            fields.remove(field);
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
                // Conditions are a map by type, strings a set.
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

/// A text with varying parts and the names that depend on the namespace blanked.
pub(crate) fn blank(text: &str) -> String {
    patterns::blank(text)
        .replace("first", "NS")
        .replace("second", "NS")
}
