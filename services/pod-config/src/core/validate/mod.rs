//! Whether a pod, with its defaults filled in, may run: upstream's `ValidatePodCreate` and what it
//! refuses static pods for. References to Secrets and ConfigMaps are allowed: local manifests
//! serve them.

mod container;
mod env;
mod handler;
pub mod names;
mod network;
mod references;
mod resources;
mod security;
mod spec;
mod volume;

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;

use super::Finding;
use super::decode::quoted;

/// Upstream's bound on all annotations of an object.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// All that is wrong with a pod.
pub fn pod(pod: &Pod) -> Vec<Finding> {
    let mut out = Findings::default();
    let meta = &pod.metadata;
    match meta.name.as_deref() {
        Some(name) => out.name("metadata.name", name, names::subdomain),
        None => out.add("metadata.name", "required"),
    }
    if let Some(namespace) = meta.namespace.as_deref() {
        out.name("metadata.namespace", namespace, names::label);
    }
    labels(&mut out, "metadata.labels", meta.labels.as_ref());
    let annotations = meta.annotations.iter().flatten();
    let mut bytes = 0;
    for (key, value) in annotations {
        bytes += key.len() + value.len();
        if let Err(expected) = names::qualified(&key.to_lowercase()) {
            out.add(
                "metadata.annotations",
                format!("the key {} is {expected}", quoted(key)),
            );
        }
    }
    if bytes > MOST_ANNOTATION_BYTES {
        out.add(
            "metadata.annotations",
            format!("take {bytes} bytes: at most {MOST_ANNOTATION_BYTES} are allowed"),
        );
    }
    match &pod.spec {
        Some(spec) => {
            spec::check(&mut out, spec);
            references::check(&mut out, spec);
        }
        None => out.add("spec", "required"),
    }
    out.0
}

fn labels(out: &mut Findings, path: &str, labels: Option<&BTreeMap<String, String>>) {
    for (key, value) in labels.into_iter().flatten() {
        if let Err(expected) = names::qualified(key) {
            out.add(path, format!("the key {} is {expected}", quoted(key)));
        }
        if let Err(expected) = names::label_value(value) {
            out.add(
                format!("{path}[{key:?}]"),
                format!("{} is {expected}", quoted(value)),
            );
        }
    }
}

/// Collects.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding::new(field, message));
    }

    /// A name that must be there and have a form.
    fn name(
        &mut self,
        field: impl Into<String>,
        name: &str,
        form: fn(&str) -> Result<(), &'static str>,
    ) {
        if name.is_empty() {
            self.add(field, "required");
        } else if let Err(expected) = form(name) {
            self.add(field, format!("{} is {expected}", quoted(name)));
        }
    }

    /// A text that must have a form when it is there.
    fn form(
        &mut self,
        field: impl Into<String>,
        text: Option<&String>,
        form: fn(&str) -> Result<(), &'static str>,
    ) {
        if let Some(text) = text.filter(|t| !t.is_empty()) {
            self.name(field, text, form);
        }
    }

    /// One of a few words.
    fn word(&mut self, field: impl Into<String>, word: Option<&String>, allowed: &[&str]) {
        if let Some(word) = word.filter(|w| !allowed.contains(&w.as_str())) {
            self.add(
                field,
                format!("{} is not one of {}", quoted(word), allowed.join(", ")),
            );
        }
    }

    fn range(&mut self, field: impl Into<String>, number: Option<i64>, from: i64, to: i64) {
        if let Some(number) = number.filter(|n| !(from..=to).contains(n)) {
            let expected = if to == i64::MAX {
                format!("at least {from}")
            } else {
                format!("between {from} and {to}")
            };
            self.add(field, format!("{number} is not {expected}"));
        }
    }

    fn required(&mut self, field: impl Into<String>, text: &str) {
        if text.is_empty() {
            self.add(field, "required");
        }
    }

    fn ip(&mut self, field: impl Into<String>, text: &str) {
        if text.parse::<std::net::IpAddr>().is_err() {
            self.add(field, format!("{} is not an IP address", quoted(text)));
        }
    }

    /// Exactly one of several alternatives.
    fn exactly_one(&mut self, field: &str, what: &str, given: &[(&str, bool)]) {
        let there: Vec<&str> = given
            .iter()
            .filter(|(_, there)| *there)
            .map(|(name, _)| *name)
            .collect();
        let all = || {
            given
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match there.as_slice() {
            [_] => {}
            [] => self.add(
                field,
                format!("has no {what}: exactly one of {} was expected", all()),
            ),
            several => self.add(
                field,
                format!(
                    "has more than one {what} ({}): exactly one was expected",
                    several.join(", ")
                ),
            ),
        }
    }
}
