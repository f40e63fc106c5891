//! The pods of the node, as far as eviction and its statistics need them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use polylet_model::PodUid;

use super::limits::LocalStorageLimits;
use super::rank::Requested;

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
    /// The memory request of the pod as a whole (`spec.resources`).
    pub(crate) pod_level_memory: Option<Requested>,
    pub(crate) termination_grace_seconds: u32,
    pub(crate) restart_policy: PodRestartPolicy,
    /// The API server knows the pod as succeeded or failed.
    pub(crate) has_terminal_phase: bool,
    /// Possible paths of the pod's cgroup, one for each cgroup driver.
    pub(crate) cgroups: Vec<String>,
    /// Requests of containers and init containers, by name.
    pub(crate) containers: Box<[(String, ContainerRequests)]>,
    pub(crate) storage_limits: LocalStorageLimits,
}

/// When the containers of a pod are started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PodRestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// The requests of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerRequests {
    pub(crate) memory: Requested,
    pub(crate) storage: Requested,
}

/// A running container in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunningContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    /// As written in the pod's spec.
    pub(crate) image: String,
    pub(crate) started_at: Option<Timestamp>,
}

/// A container in the runtime that does not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadContainer {
    /// When it ended, or was created if it was never started.
    pub(crate) at: Option<Timestamp>,
    pub(crate) failed: bool,
}

/// A pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuntimePod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) running: Vec<RunningContainer>,
    pub(crate) dead: Vec<DeadContainer>,
    pub(crate) sandbox_ready: bool,
    /// The id of the newest sandbox.
    pub(crate) sandbox: Option<String>,
    /// When its sandboxes were created.
    pub(crate) sandboxes: Vec<Option<Timestamp>>,
    pub(crate) created_at: Option<Timestamp>,
}

impl RuntimePod {
    fn is_running(&self) -> bool {
        self.sandbox_ready || !self.running.is_empty()
    }

    /// Whether anything is left of it that had ended by then.
    fn is_left_since(&self, at: Timestamp) -> bool {
        let dead = self.dead.iter().map(|dead| dead.at);
        dead.chain(self.sandboxes.iter().copied())
            .any(|then| then.is_none_or(|then| then <= at))
    }
}

impl PodUsageSpec {
    /// The requests of a container or init container.
    pub(crate) fn container(&self, name: &str) -> Option<&ContainerRequests> {
        let mut containers = self.containers.iter();
        Some(&containers.find(|(of, _)| of == name)?.1)
    }
}

/// All pods of the node, by uid. A copy, as each sample has one, shares what it says of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePods {
    pub(crate) specs: BTreeMap<PodUid, Arc<PodUsageSpec>>,
    pub(crate) runtime: BTreeMap<PodUid, Arc<RuntimePod>>,
}

impl NodePods {
    /// Pods with a ready sandbox or a running container.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&PodUid, &RuntimePod)> {
        let pods = self.runtime.iter().map(|(uid, pod)| (uid, &**pod));
        pods.filter(|(_, pod)| pod.is_running())
    }

    /// Running pods whose spec is known.
    pub(crate) fn running_with_spec(
        &self,
    ) -> impl Iterator<Item = (&PodUid, &PodUsageSpec, &RuntimePod)> {
        self.running()
            .filter_map(|(uid, pod)| Some((uid, &**self.specs.get(uid)?, pod)))
    }

    /// Whether the pod runs nothing and never will again, as far as this service knows. `evicted` pods
    /// are finished, and so are those that are no longer desired.
    pub(crate) fn is_finished(&self, uid: &str, evicted: bool) -> bool {
        let Some(pod) = self.runtime.get(uid).filter(|pod| !pod.is_running()) else {
            return false;
        };
        let Some(spec) = self.specs.get(uid) else {
            return true;
        };
        let ended = match spec.restart_policy {
            PodRestartPolicy::Always => false,
            PodRestartPolicy::OnFailure => pod.dead.iter().all(|dead| !dead.failed),
            PodRestartPolicy::Never => true,
        };
        evicted || spec.has_terminal_phase || (ended && !pod.dead.is_empty())
    }

    /// Whether a finished pod still has a container or sandbox that had ended by then.
    pub(crate) fn has_dead_containers(
        &self,
        at: Timestamp,
        is_evicted: impl Fn(&PodUid) -> bool,
    ) -> bool {
        self.runtime.iter().any(|(uid, pod)| {
            pod.is_left_since(at) && self.is_finished(uid.as_str(), is_evicted(uid))
        })
    }

    /// Whether the pod has a ready sandbox or a running container.
    pub(crate) fn is_running(&self, uid: &str) -> bool {
        self.runtime.get(uid).is_some_and(|pod| pod.is_running())
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
