//! Expositions of metrics, and JSON, without their values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A family of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilyShape {
    pub(crate) kind: String,
    pub(crate) help: String,
    /// The names of labels, in each combination that a series has.
    pub(crate) labels: BTreeSet<Vec<String>>,
    /// Upper bounds of the buckets of a histogram.
    pub(crate) buckets: BTreeSet<String>,
    /// Whether series have timestamps.
    pub(crate) is_timed: bool,
}

/// The families of an exposition by name.
pub(crate) fn parse(text: &str) -> BTreeMap<String, FamilyShape> {
    let mut families: BTreeMap<String, FamilyShape> = BTreeMap::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap_or((help, ""));
            families.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap_or((kind, ""));
            families.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if !line.starts_with('#') {
            sample(line, &mut families);
        }
    }
    families
}

fn sample(line: &str, families: &mut BTreeMap<String, FamilyShape>) {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let (labels, values) = match rest.rfind('}') {
        Some(end) => (&rest[1..end], &rest[end + 1..]),
        None => ("", rest),
    };
    let suffixes = ["", "_bucket", "_sum", "_count"].into_iter();
    let of_family = suffixes.filter_map(|suffix| name.strip_suffix(suffix));
    let mut of_family = of_family.filter(|name| families.contains_key(*name));
    let name = of_family.next().unwrap_or(name).to_owned();
    let family = families.entry(name).or_default();
    let mut names = label_names(labels);
    if let Some(at) = names.iter().position(|(name, _)| name == "le") {
        let (_, bound) = names.remove(at);
        // 1 and 1.0 are one bound.
        let number: f64 = bound.parse().unwrap_or(f64::NAN);
        family.buckets.insert(format!("{number}"));
    }
    let mut names: Vec<String> = names.into_iter().map(|(name, _)| name).collect();
    names.sort();
    family.labels.insert(names);
    family.is_timed |= values.split_whitespace().count() > 1;
}

/// Series that an exposition has more than once, for which Prometheus refuses it.
pub(crate) fn duplicates(text: &str) -> Vec<String> {
    let mut known = BTreeSet::new();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let names = series.map(|line| match line.rfind('}') {
        Some(end) => &line[..end],
        None => line.split(' ').next().unwrap_or_default(),
    });
    let twice = names.filter(|name| !known.insert(*name));
    twice.map(str::to_owned).collect()
}

/// Names and values of `a="b",c="d"`.
fn label_names(text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let end = end.unwrap_or(after.len());
        labels.push((name.trim_matches(',').to_owned(), after[..end].to_owned()));
        rest = after.get(end + 1..).unwrap_or_default();
    }
    labels
}

/// The paths of all fields, without the numbers of elements.
pub(crate) fn fields(value: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    collect(value, "", &mut found);
    found.into_iter().collect()
}

fn collect(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(value, &format!("{path}.{name}"), found);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                // System containers differ in what they have.
                let name = element["name"]
                    .as_str()
                    .filter(|_| path.ends_with("systemContainers"));
                collect(
                    element,
                    &format!("{path}[{}]", name.unwrap_or_default()),
                    found,
                );
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}
