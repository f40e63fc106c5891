//! Predicates: whether a pod fits on the node beside the admitted pods.

use polylet_model::constants::reason;
use polylet_model::node::{EPHEMERAL_STORAGE, PODS};
use polylet_model::resources::is_huge_pages;
use polylet_model::{node_affinity, taint};

use crate::core::admission::Rejection;
use crate::core::devices::DeviceAdmission;
use crate::core::node_resources::{AllocatedPods, NodeResources};
use crate::core::pod_spec::PodSpecView;
use crate::core::view::PodSyncStatus;

/// A predicate that fails.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PredicateFailure {
    /// Too little of a resource is free.
    InsufficientResource {
        name: String,
        requested: i64,
        used: i64,
        capacity: i64,
    },
    /// A failure that preemption does not resolve.
    Predicate {
        reason: &'static str,
        message: &'static str,
    },
}

/// A resource and the missing amount.
pub(super) type Shortage = (String, i64);

impl PredicateFailure {
    /// Reason and message, as upstream words them.
    pub(super) fn rejection(&self) -> Rejection {
        match self {
            PredicateFailure::InsufficientResource {
                name,
                requested,
                used,
                capacity,
            } => Rejection::new(
                &format!("{}{name}", reason::OUT_OF),
                format!(
                    "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
                ),
            ),
            PredicateFailure::Predicate { reason, message } => {
                Rejection::new(reason, format!("Predicate {reason} failed: {message}"))
            }
        }
    }

    /// Whether it is node affinity, which is checked at admission only.
    pub(super) fn is_affinity(&self) -> bool {
        matches!(self, PredicateFailure::Predicate { reason, .. } if *reason == reason::NODE_AFFINITY)
    }

    pub(super) fn shortage(&self) -> Option<Shortage> {
        match self {
            PredicateFailure::InsufficientResource {
                name,
                requested,
                used,
                capacity,
            } => {
                let free = capacity.saturating_sub(*used);
                Some((name.clone(), requested.saturating_sub(free)))
            }
            PredicateFailure::Predicate { .. } => None,
        }
    }
}

/// All predicates that fail beside pods with these shares, in upstream's order.
pub(super) fn check_predicates(
    pod: &PodSyncStatus,
    node: &NodeResources,
    allocated: &AllocatedPods,
    spec: &PodSpecView,
) -> Vec<PredicateFailure> {
    let mut failures = insufficient_resources(pod, node, allocated, spec);
    let mut fail = |reason, message| failures.push(PredicateFailure::Predicate { reason, message });
    let api_spec = spec.manifest.spec();
    if !node_affinity::matches(api_spec, &node.node_name, node.labels()) {
        fail(
            reason::NODE_AFFINITY,
            "node(s) didn't match Pod's node affinity/selector",
        );
    }
    let node_name = api_spec.node_name.as_deref();
    if node_name.is_some_and(|name| !name.is_empty() && name != node.node_name)
        && !node.node_name.is_empty()
    {
        fail(
            reason::NODE_NAME,
            "node(s) didn't match the requested node name",
        );
    }
    let in_use = |port| {
        let others = allocated.pods().filter(|(uid, _)| *uid != &*pod.uid);
        others
            .flat_map(|(_, other)| &other.request.ports)
            .any(|other| other.conflicts_with(port))
    };
    if spec.request.ports.iter().any(in_use) {
        fail(
            reason::NODE_PORTS,
            "node(s) didn't have free ports for the requested pod ports",
        );
    }
    if !spec.manifest.is_static() && has_untolerated_taint(node, spec) {
        fail(
            reason::TAINT_TOLERATION,
            "node(s) had taints that the pod didn't tolerate",
        );
    }
    failures
}

/// Whether the pod does not tolerate a `NoExecute` taint.
fn has_untolerated_taint(node: &NodeResources, spec: &PodSpecView) -> bool {
    let tolerations = spec.manifest.spec().tolerations.as_deref();
    let mut taints = node.taints().iter().filter(|t| t.effect == "NoExecute");
    taints.any(|taint| !taint::is_tolerated(taint, tolerations.unwrap_or_default()))
}

fn insufficient_resources(
    pod: &PodSyncStatus,
    node: &NodeResources,
    allocated: &AllocatedPods,
    spec: &PodSpecView,
) -> Vec<PredicateFailure> {
    if node.allocatable.is_none() {
        return Vec::new();
    }
    let first = [PODS, "cpu", "memory", EPHEMERAL_STORAGE];
    let others = spec.request.requests.keys().map(String::as_str);
    let others = others.filter(|name| !first.contains(name));
    let check = |name: &str| {
        let requested = spec.request.requested(name);
        let capacity = match node.allocatable(name).max(allocated_devices(pod, name)) {
            Some(capacity) => capacity,
            // Huge pages of an unknown size do not exist; other unknown resources are not counted: they may
            // be resources of the cluster.
            None if is_huge_pages(name) => 0,
            None => return None,
        };
        let used = allocated.used_by_others(name, &pod.uid);
        let free = capacity.saturating_sub(used);
        (requested > 0 && requested > free).then(|| PredicateFailure::InsufficientResource {
            name: name.to_owned(),
            requested,
            used,
            capacity,
        })
    };
    first.into_iter().chain(others).filter_map(check).collect()
}

/// The devices of a resource that are allocated, if the pod has devices. The node is not counted as
/// having fewer: its object may be older, or some of them unhealthy by now.
fn allocated_devices(pod: &PodSyncStatus, name: &str) -> Option<i64> {
    match &pod.devices {
        Some(DeviceAdmission::Allocated(counts)) => counts.get(name).copied(),
        Some(DeviceAdmission::Refused(_)) | None => None,
    }
}
