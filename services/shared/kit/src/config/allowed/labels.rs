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
    for key in labels.keys() {
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
            problems.add(&format!("nodeLabels[{key}]"), allowed);
        }
    }
}
