//! Which pod goes first.
//!
//! Upstream's order, first difference wins: whether usage is above the request, then lower priority,
//! then the larger part above the request. Pods without a sample come first; for process ids there
//! is no request, so priority and then the count decide. Critical pods are never evicted.

use std::cmp::Reverse;

use super::signal::{Signal, Starved};

/// What a pod uses of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
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

/// A container's part, for the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerUse {
    pub(crate) name: String,
    pub(crate) memory: u64,
    pub(crate) memory_request: u64,
    pub(crate) disk: u64,
    pub(crate) disk_request: u64,
}

/// A running pod, as far as eviction cares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) priority: i32,
    pub(crate) critical: bool,
    /// Bytes.
    pub(crate) memory_request: u64,
    /// Bytes.
    pub(crate) disk_request: u64,
    pub(crate) termination_grace_seconds: u32,
    pub(crate) usage: Option<Usage>,
    pub(crate) containers: Vec<ContainerUse>,
}

/// The candidates that may be evicted, first to go first.
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
    usage: Usage,
    signal: Signal,
    one_filesystem: bool,
) -> (u64, u64) {
    let image_side = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    let (local, layer) = (one_filesystem || !image_side, one_filesystem || image_side);
    let part = |counted: bool, amount: u64| if counted { amount } else { 0 };
    match signal.starved() {
        Starved::Memory => (usage.memory, pod.memory_request),
        Starved::Disk => (
            part(local, usage.local_bytes).saturating_add(part(layer, usage.layer_bytes)),
            pod.disk_request,
        ),
        Starved::Inodes => (
            part(local, usage.local_inodes).saturating_add(part(layer, usage.layer_inodes)),
            0,
        ),
        // Every process is above the request of none: priority decides, then the count.
        Starved::Pids => (usage.processes.saturating_add(1), 0),
    }
}
