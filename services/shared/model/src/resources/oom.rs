//! OOM scores: which processes the kernel kills first when memory runs out.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{is_node_critical, request};
use crate::pod::is_sidecar;
use crate::qos::{self, QosClass};
use crate::quantity;

/// The node agent's own processes.
pub const KUBELET_OOM_SCORE_ADJ: i64 = -999;
/// Guaranteed and node-critical pods.
pub const GUARANTEED_OOM_SCORE_ADJ: i64 = -997;
/// BestEffort pods.
pub const BEST_EFFORT_OOM_SCORE_ADJ: i64 = 1000;

/// `oom_score_adj` of a container. In Burstable pods it is the higher, the smaller the container's
/// share of the node's memory; that of a sidecar is at most the highest of the regular containers.
pub fn oom_score_adj(spec: &PodSpec, container: &Container, memory_capacity: u64) -> i64 {
    if is_node_critical(spec) {
        return GUARANTEED_OOM_SCORE_ADJ;
    }
    match qos::class(spec) {
        QosClass::Guaranteed => return GUARANTEED_OOM_SCORE_ADJ,
        QosClass::BestEffort => return BEST_EFFORT_OOM_SCORE_ADJ,
        QosClass::Burstable => {}
    }
    let share = unclaimed_share(spec);
    let requested = |container: &Container| {
        request(container, "memory")
            .unwrap_or_default()
            .value()
            .saturating_add(share)
    };
    let score =
        |bytes: i64| 1000_i128 - 1000 * i128::from(bytes) / i128::from(memory_capacity.max(1));
    let mut adjust = score(requested(container));
    let is_a_sidecar = spec
        .init_containers
        .iter()
        .flatten()
        .any(|init| init.name == container.name && is_sidecar(init));
    if is_a_sidecar {
        let least = spec.containers.iter().map(requested).min().unwrap_or(0);
        adjust = adjust.min(score(least));
    }
    // Always above Guaranteed and below BestEffort.
    let adjust = adjust.max(1000 + i128::from(GUARANTEED_OOM_SCORE_ADJ));
    i64::try_from(adjust.min(999)).unwrap_or(999)
}

/// The pod-level request less the containers' requests, divided by the number of containers.
fn unclaimed_share(spec: &PodSpec) -> i64 {
    let pod_level = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let Some(total) = quantity::parse_entry(pod_level, "memory") else {
        return 0;
    };
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|init| is_sidecar(init));
    let containers: Vec<_> = spec.containers.iter().chain(sidecars).collect();
    let claimed = containers
        .iter()
        .filter_map(|container| request(container, "memory"))
        .sum();
    let unclaimed = (total - claimed).value().max(0);
    unclaimed / i64::try_from(containers.len().max(1)).unwrap_or(1)
}
