//! The order in which pods are evicted.
//!
//! Upstream's order; the first difference decides: usage above the request, then lower priority, then
//! the larger usage above the request. Pods without known usage come first. For process ids there is
//! no request, so priority and then the count decide. Critical pods are never evicted.

use std::cmp::Reverse;

use super::signal::{EvictionResource, Signal};

/// The usage of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodUsage {
    /// Working set, bytes.
    pub(crate) memory: u64,
    /// Logs and local volumes, bytes.
    pub(crate) local_bytes: u64,
    pub(crate) local_inodes: u64,
    /// Writable layers, bytes.
    pub(crate) layer_bytes: u64,
    pub(crate) layer_inodes: u64,
    pub(crate) processes: u64,
}

/// The usage of a container, for the eviction message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerUsage {
    pub(crate) name: String,
    pub(crate) memory: u64,
    pub(crate) memory_request: u64,
    pub(crate) storage: u64,
    pub(crate) storage_request: u64,
}

/// A running pod that may be evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) priority: i32,
    pub(crate) critical: bool,
    /// In bytes.
    pub(crate) memory_request: u64,
    /// In bytes.
    pub(crate) storage_request: u64,
    pub(crate) termination_grace_seconds: u32,
    /// `None` when it could not be measured.
    pub(crate) usage: Option<PodUsage>,
    pub(crate) containers: Vec<ContainerUsage>,
}

/// The candidates that may be evicted, in order.
pub(crate) fn rank(pods: &[Candidate], signal: Signal, one_filesystem: bool) -> Vec<&Candidate> {
    let mut ranked: Vec<&Candidate> = pods.iter().filter(|pod| !pod.critical).collect();
    ranked.sort_by_key(|pod| {
        let Some(usage) = pod.usage else {
            return (false, Reverse(false), pod.priority, Reverse(0), &pod.uid);
        };
        let (used, request) = used_and_request(pod, usage, signal, one_filesystem);
        let over = i128::from(used) - i128::from(request);
        (
            true,
            Reverse(over > 0),
            pod.priority,
            Reverse(over),
            &pod.uid,
        )
    });
    ranked
}

fn used_and_request(
    pod: &Candidate,
    usage: PodUsage,
    signal: Signal,
    one_filesystem: bool,
) -> (u64, u64) {
    let image_side = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    let (local, layer) = (one_filesystem || !image_side, one_filesystem || image_side);
    let if_counted = |counted: bool, amount: u64| if counted { amount } else { 0 };
    match signal.resource() {
        EvictionResource::Memory => (usage.memory, pod.memory_request),
        EvictionResource::Disk => (
            if_counted(local, usage.local_bytes)
                .saturating_add(if_counted(layer, usage.layer_bytes)),
            pod.storage_request,
        ),
        EvictionResource::Inodes => (
            if_counted(local, usage.local_inodes)
                .saturating_add(if_counted(layer, usage.layer_inodes)),
            0,
        ),
        // Every count is above the request of zero: priority decides, then the count.
        EvictionResource::Pids => (usage.processes.saturating_add(1), 0),
    }
}
