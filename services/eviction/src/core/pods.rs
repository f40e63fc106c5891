//! The pods of the node, as far as eviction and its statistics need them.

use std::collections::BTreeMap;

use super::limits::LocalStorageLimits;

/// The fields of a pod's spec that eviction needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodUsageSpec {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) priority: i32,
    /// Critical pods are never evicted.
    pub(crate) critical: bool,
    /// In bytes.
    pub(crate) memory_request: u64,
    /// In bytes.
    pub(crate) storage_request: u64,
    pub(crate) termination_grace_seconds: u32,
    /// Possible paths of the pod's cgroup, one for each cgroup driver.
    pub(crate) cgroups: Vec<String>,
    /// Requests by container name.
    pub(crate) containers: BTreeMap<String, ContainerRequests>,
    pub(crate) storage_limits: LocalStorageLimits,
}

/// The requests of a container in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerRequests {
    pub(crate) memory: u64,
    pub(crate) storage: u64,
}

/// A running container in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunningContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) started_at: Option<jiff::Timestamp>,
}

/// A pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuntimePod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) running: Vec<RunningContainer>,
    pub(crate) sandbox_ready: bool,
    pub(crate) created_at: Option<jiff::Timestamp>,
}

impl RuntimePod {
    fn is_running(&self) -> bool {
        self.sandbox_ready || !self.running.is_empty()
    }
}

/// All pods of the node, by uid.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePods {
    pub(crate) specs: BTreeMap<String, PodUsageSpec>,
    pub(crate) runtime: BTreeMap<String, RuntimePod>,
}

impl NodePods {
    /// Pods with a ready sandbox or a running container.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&String, &RuntimePod)> {
        self.runtime.iter().filter(|(_, pod)| pod.is_running())
    }

    /// Running pods whose spec is known.
    pub(crate) fn running_with_spec(
        &self,
    ) -> impl Iterator<Item = (&String, &PodUsageSpec, &RuntimePod)> {
        self.running()
            .filter_map(|(uid, pod)| Some((uid, self.specs.get(uid)?, pod)))
    }

    /// Whether the pod has a ready sandbox or a running container.
    pub(crate) fn is_running(&self, uid: &str) -> bool {
        self.runtime.get(uid).is_some_and(RuntimePod::is_running)
    }
}

/// Possible cgroups of a container below its pod's: cgroupfs, and the systemd scopes of containerd
/// and CRI-O.
pub(crate) fn container_cgroups(pod: &str, id: &str) -> [String; 3] {
    [
        format!("{pod}/{id}"),
        format!("{pod}/cri-containerd-{id}.scope"),
        format!("{pod}/crio-{id}.scope"),
    ]
}
