//! Whom the kernel kills first when memory runs out.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{is_node_critical, request};
use crate::pod::is_sidecar;
use crate::qos::{self, QosClass};
use crate::quantity;

/// Of the node agent's own processes.
pub const KUBELET_OOM_SCORE_ADJ: i64 = -999;
/// Of Guaranteed pods and those the node cannot do without.
pub const GUARANTEED_OOM_SCORE_ADJ: i64 = -997;
/// Of BestEffort pods.
pub const BEST_EFFORT_OOM_SCORE_ADJ: i64 = 1000;

/// `oom_score_adj` of a container: the less of the node's memory a Burstable
/// one asks for, the sooner it goes. A sidecar never goes before the regular
/// container that would go last of those it serves.
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
    let asked = |one: &Container| {
        request(one, "memory")
            .unwrap_or_default()
            .value()
            .saturating_add(share)
    };
    let score =
        |bytes: i64| 1000_i128 - 1000 * i128::from(bytes) / i128::from(memory_capacity.max(1));
    let mut adjust = score(asked(container));
    let serves = spec
        .init_containers
        .iter()
        .flatten()
        .any(|init| init.name == container.name && is_sidecar(init));
    if serves {
        let least = spec.containers.iter().map(asked).min().unwrap_or(0);
        adjust = adjust.min(score(least));
    }
    // Above Guaranteed and below BestEffort, whatever was asked for.
    let adjust = adjust.max(1000 + i128::from(GUARANTEED_OOM_SCORE_ADJ));
    i64::try_from(adjust.min(999)).unwrap_or(999)
}

/// What the pod asks for as a whole and none of its containers claims, for each of them.
fn unclaimed_share(spec: &PodSpec) -> i64 {
    let own = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let Some(whole) = quantity::get(own, "memory") else {
        return 0;
    };
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|init| is_sidecar(init));
    let beside: Vec<_> = spec.containers.iter().chain(sidecars).collect();
    let claimed = beside.iter().filter_map(|one| request(one, "memory")).sum();
    let unclaimed = (whole - claimed).value().max(0);
    unclaimed / i64::try_from(beside.len().max(1)).unwrap_or(1)
}
