//! Objects and events as lines that two agents can share: identities, times and lengths of time are
//! blanked.

use std::collections::BTreeSet;

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

fn looks_like(line: &str, pattern: &str) -> bool {
    let mut rest = line;
    for (at, part) in pattern.split('*').enumerate() {
        match rest.find(part) {
            Some(found) if at > 0 || found == 0 => rest = &rest[found + part.len()..],
            _ => return false,
        }
    }
    rest.is_empty() || pattern.ends_with('*')
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

/// Words without what is never the same twice.
pub(crate) fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_ascii_alphanumeric() || ".-_:+".contains(letter) {
            word.push(letter);
            continue;
        }
        out.push_str(&blank_word(&word));
        word.clear();
        out.push(letter);
    }
    out.pop();
    out
}

fn blank_word(word: &str) -> String {
    let core = word.trim_end_matches(['.', ':']);
    let rest = &word[core.len()..];
    let name = match core {
        // Of one pod in two namespaces.
        _ if core.len() >= 40 && hex(core) => "ID",
        _ if core.starts_with("sha256:") && hex(&core[7..]) => "DIGEST",
        _ if is_uid(core) => "UID",
        _ if is_time(core) => "TIME",
        _ if is_duration(core) => "LONG",
        _ if is_pod_ip(core) => "IP",
        _ => return word.replace("first", "NS").replace("second", "NS"),
    };
    let port = core.rsplit_once(':').filter(|_| name == "IP");
    match port {
        Some((_, port)) => format!("{name}:{port}{rest}"),
        None => format!("{name}{rest}"),
    }
}

fn hex(text: &str) -> bool {
    text.len() >= 12 && text.chars().all(|c| c.is_ascii_hexdigit())
}

fn is_uid(text: &str) -> bool {
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] || lengths == [32] && hex(text)
}

fn is_time(text: &str) -> bool {
    text.len() >= 19 && text.as_bytes().get(10) == Some(&b'T') && text.starts_with("20")
}

fn is_duration(text: &str) -> bool {
    let number = ["ms", "µs", "s"]
        .iter()
        .find_map(|unit| text.strip_suffix(unit));
    number.is_some_and(|number| number.contains('.') && number.parse::<f64>().is_ok())
        || text
            .strip_suffix("ms")
            .is_some_and(|n| n.parse::<u64>().is_ok())
}

fn is_pod_ip(text: &str) -> bool {
    let address = text.rsplit_once(':').map_or(text, |(address, _)| address);
    address.starts_with("10.") && address.parse::<std::net::Ipv4Addr>().is_ok()
}
