//! Validation of static pods with their defaults: the API server's `ValidatePodCreate`, and what the
//! kubelet rejects in static pods. References to Secrets and ConfigMaps are allowed, since manifests
//! can define these.

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

use super::decode::quoted;
use super::field;

/// The API server's limit on the annotations of an object.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// All errors of a pod.
pub fn pod(pod: &Pod) -> Vec<field::Error> {
    let mut errors = ErrorList::default();
    let meta = &pod.metadata;
    match meta.name.as_deref() {
        Some(name) => errors.name("metadata.name", name, names::subdomain),
        None => errors.add("metadata.name", "required"),
    }
    if let Some(namespace) = meta.namespace.as_deref() {
        errors.name("metadata.namespace", namespace, names::label);
    }
    labels(&mut errors, "metadata.labels", meta.labels.as_ref());
    let annotations = meta.annotations.iter().flatten();
    let mut bytes = 0;
    for (key, value) in annotations {
        bytes += key.len() + value.len();
        if let Err(expected) = names::qualified(&key.to_lowercase()) {
            errors.add(
                "metadata.annotations",
                format!("the key {} is {expected}", quoted(key)),
            );
        }
    }
    if bytes > MAX_ANNOTATION_BYTES {
        errors.add(
            "metadata.annotations",
            format!("have {bytes} bytes: at most {MAX_ANNOTATION_BYTES} are allowed"),
        );
    }
    match &pod.spec {
        Some(spec) => {
            spec::check(&mut errors, spec);
            references::check(&mut errors, spec);
        }
        None => errors.add("spec", "required"),
    }
    errors.0
}

fn labels(errors: &mut ErrorList, path: &str, labels: Option<&BTreeMap<String, String>>) {
    for (key, value) in labels.into_iter().flatten() {
        if let Err(expected) = names::qualified(key) {
            errors.add(path, format!("the key {} is {expected}", quoted(key)));
        }
        if let Err(expected) = names::label_value(value) {
            errors.add(
                format!("{path}[{key:?}]"),
                format!("{} is {expected}", quoted(value)),
            );
        }
    }
}

/// Collects errors.
#[derive(Default)]
struct ErrorList(Vec<field::Error>);

impl ErrorList {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(field::Error::new(field, message));
    }

    /// Checks a required name for its format.
    fn name(
        &mut self,
        field: impl Into<String>,
        name: &str,
        format: fn(&str) -> Result<(), &'static str>,
    ) {
        if name.is_empty() {
            self.add(field, "required");
        } else if let Err(expected) = format(name) {
            self.add(field, format!("{} is {expected}", quoted(name)));
        }
    }

    /// Checks an optional string for its format.
    fn format(
        &mut self,
        field: impl Into<String>,
        text: Option<&String>,
        format: fn(&str) -> Result<(), &'static str>,
    ) {
        if let Some(text) = text.filter(|t| !t.is_empty()) {
            self.name(field, text, format);
        }
    }

    /// Checks an optional string that is an enum.
    fn one_of(&mut self, field: impl Into<String>, value: Option<&String>, allowed: &[&str]) {
        if let Some(value) = value.filter(|v| !allowed.contains(&v.as_str())) {
            self.add(
                field,
                format!("{} is not one of {}", quoted(value), allowed.join(", ")),
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

    /// Checks that exactly one of several alternatives is set.
    fn exactly_one(&mut self, field: &str, what: &str, given: &[(&str, bool)]) {
        let set: Vec<&str> = given
            .iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(name, _)| *name)
            .collect();
        let all = || {
            given
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match set.as_slice() {
            [_] => {}
            [] => self.add(
                field,
                format!("has no {what}: expected exactly one of {}", all()),
            ),
            several => self.add(
                field,
                format!(
                    "has more than one {what} ({}): expected exactly one",
                    several.join(", ")
                ),
            ),
        }
    }
}
