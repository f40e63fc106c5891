//! Labels that a node may give itself.

use std::collections::BTreeMap;

use crate::config::problems::Problems;

/// Kubernetes' own labels that a node may say of itself.
const ALLOWED: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Below `kubernetes.io` and `k8s.io` a node may label itself in two corners only: labels decide
/// which pods it gets.
pub(super) fn node(labels: &BTreeMap<String, String>, problems: &mut Problems) {
    for (key, value) in labels {
        let field = format!("nodeLabels[{key}]");
        if !is_key(key) {
            let allowed = "allowed are up to 63 letters, digits, '-', '_' and '.', after a domain and '/' or not";
            problems.add(&field, format!("no label's name; {allowed}"));
        } else if !value.is_empty() && !is_word(value) {
            let allowed = "allowed are up to 63 letters, digits, '-', '_' and '.'";
            problems.not_allowed(&field, format!("{value:?}"), allowed);
        }
        let (namespace, _) = key.split_once('/').unwrap_or_default();
        let below =
            |domain: &str| namespace == domain || namespace.ends_with(&format!(".{domain}"));
        let reserved = below("kubernetes.io") || below("k8s.io");
        let own = below("kubelet.kubernetes.io") || below("node.kubernetes.io");
        if reserved && !own && !ALLOWED.contains(&key.as_str()) {
            let allowed = format!(
                "a node may not give itself this label; of kubernetes.io and k8s.io allowed are \
                 kubelet.kubernetes.io/*, node.kubernetes.io/*, {}",
                ALLOWED.join(", ")
            );
            problems.add(&field, allowed);
        }
    }
}

/// A name, or one after a domain.
fn is_key(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let is_segment = |segment: &str| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        segment.bytes().all(|b| plain(b) || b == b'-')
            && segment.bytes().next().is_some_and(plain)
            && segment.bytes().last().is_some_and(plain)
    };
    let fits = |domain: &str| domain.len() <= 253 && domain.split('.').all(is_segment);
    is_word(name) && domain.is_none_or(fits)
}

/// Begins and ends with a letter or digit.
fn is_word(word: &str) -> bool {
    let bounds = [word.bytes().next(), word.bytes().last()];
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    word.len() <= 63
        && word.bytes().all(inner)
        && bounds
            .iter()
            .all(|b| b.is_some_and(|b| b.is_ascii_alphanumeric()))
}
