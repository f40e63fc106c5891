//! The order in which pods are evicted.
//!
//! Upstream's order; the first difference decides: usage above the request, then lower priority, then
//! the larger usage above the request. Pods that could not be measured come first in both comparisons
//! of usage. For process ids there is no request, so priority and then the count decide. Critical pods
//! are never evicted.

use std::cmp::{Ordering, Reverse};

use super::signal::{EvictionResource, Signal};

/// The usage of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodUsage {
    /// Working set, bytes.
    pub(crate) memory: u64,
    /// Files; `None` when they could not be measured, or were not.
    pub(crate) files: Option<FileUsage>,
    pub(crate) processes: u64,
}

/// The files of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileUsage {
    /// Logs and local volumes, bytes.
    pub(crate) local_bytes: u64,
    pub(crate) local_inodes: u64,
    /// Writable layers, bytes.
    pub(crate) layer_bytes: u64,
    pub(crate) layer_inodes: u64,
}

/// A request, with the text in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requested {
    pub(crate) bytes: u64,
    pub(crate) text: String,
}

/// The usage of a container, for the eviction message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerUsage {
    pub(crate) name: String,
    pub(crate) memory: Option<u64>,
    pub(crate) memory_request: Requested,
    /// Writable layer and logs.
    pub(crate) storage: Option<u64>,
    pub(crate) storage_request: Requested,
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
    /// The memory request of the pod as a whole (`spec.resources`).
    pub(crate) pod_level_memory: Option<Requested>,
    pub(crate) termination_grace_seconds: u32,
    /// `None` when it could not be measured.
    pub(crate) usage: Option<PodUsage>,
    /// In the order of the runtime, without ephemeral containers.
    pub(crate) containers: Vec<ContainerUsage>,
}

/// The candidates that may be evicted, in order.
pub(crate) fn rank(pods: &[Candidate], signal: Signal, one_filesystem: bool) -> Vec<&Candidate> {
    let mut ranked: Vec<&Candidate> = pods.iter().filter(|pod| !pod.critical).collect();
    let excess = |pod: &Candidate| excess(pod, signal, one_filesystem);
    // Unmeasured pods first, then those above their request.
    let above = |pod: &Candidate| match excess(pod) {
        None => (false, false),
        Some(excess) => (true, !excess.is_above_request),
    };
    let is_pids = signal.resource() == EvictionResource::Pids;
    ranked.sort_by(|a, b| {
        let by_request = match is_pids {
            true => Ordering::Equal,
            false => above(a).cmp(&above(b)),
        };
        let by_usage = |pod: &Candidate| excess(pod).map(|excess| Reverse(excess.amount));
        by_request
            .then_with(|| a.priority.cmp(&b.priority))
            // `None` is less.
            .then_with(|| by_usage(a).cmp(&by_usage(b)))
            .then_with(|| a.uid.cmp(&b.uid))
    });
    ranked
}

/// How far a pod's usage is above its request.
struct Excess {
    is_above_request: bool,
    amount: i128,
}

/// `None` when the usage is not known.
fn excess(pod: &Candidate, signal: Signal, one_filesystem: bool) -> Option<Excess> {
    let usage = pod.usage?;
    let files = |local: fn(FileUsage) -> u64, layer: fn(FileUsage) -> u64| {
        let files = usage.files?;
        let local = match signal.counts_local_files(one_filesystem) {
            true => local(files),
            false => 0,
        };
        let layer = match signal.counts_layers(one_filesystem) {
            true => layer(files),
            false => 0,
        };
        Some(local.saturating_add(layer))
    };
    let (used, request, above) = match signal.resource() {
        EvictionResource::Memory => (usage.memory, pod.memory_request, pod.memory_request),
        EvictionResource::Disk => {
            let used = files(|files| files.local_bytes, |files| files.layer_bytes)?;
            (used, pod.storage_request, pod.storage_request)
        }
        // As upstream: nobody requests inodes, but the request of bytes is subtracted.
        EvictionResource::Inodes => {
            let used = files(|files| files.local_inodes, |files| files.layer_inodes)?;
            (used, 0, pod.storage_request)
        }
        EvictionResource::Pids => (usage.processes, 0, 0),
    };
    Some(Excess {
        is_above_request: used > request,
        amount: i128::from(used) - i128::from(above),
    })
}
