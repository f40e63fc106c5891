//! The pods of the node, as far as eviction and its statistics care.

use std::collections::BTreeMap;

use super::limits::Limits;

/// What pod-config says of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) priority: i32,
    pub(crate) critical: bool,
    pub(crate) memory_request: u64,
    pub(crate) disk_request: u64,
    pub(crate) termination_grace_seconds: u32,
    /// Possible paths of the pod's cgroup: the driver decides which one exists.
    pub(crate) cgroups: Vec<String>,
    /// Requests by container name: memory and ephemeral storage, bytes.
    pub(crate) containers: BTreeMap<String, (u64, u64)>,
    /// Limits on its own use of the disk.
    pub(crate) limits: Limits,
}

/// A running container, as pleg says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) started_at: Option<jiff::Timestamp>,
}

/// What pleg says of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) running: Vec<Running>,
    pub(crate) sandbox_ready: bool,
    pub(crate) created_at: Option<jiff::Timestamp>,
}

/// Everything known, by pod uid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    pub(crate) wanted: BTreeMap<String, Wanted>,
    pub(crate) held: BTreeMap<String, Held>,
}

impl Pods {
    /// Pods that have something running here.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&String, &Held)> {
        self.held
            .iter()
            .filter(|(_, held)| held.sandbox_ready || !held.running.is_empty())
    }

    /// Whether the runtime still runs anything of the pod.
    pub(crate) fn is_running(&self, uid: &str) -> bool {
        self.held
            .get(uid)
            .is_some_and(|held| held.sandbox_ready || !held.running.is_empty())
    }
}

/// Possible cgroups of a container below its pod's: cgroupfs, then the systemd scopes of containerd
/// and CRI-O.
pub(crate) fn container_cgroups(pod: &str, id: &str) -> Vec<String> {
    ["", "cri-containerd-", "crio-"]
        .iter()
        .map(|prefix| {
            let suffix = if prefix.is_empty() { "" } else { ".scope" };
            format!("{pod}/{prefix}{id}{suffix}")
        })
        .collect()
}
