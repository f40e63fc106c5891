//! What was measured, for `/metrics/cadvisor`.

use jiff::Timestamp;
use polylet_metrics::Labels;

use super::machine::MachineInfo;
use crate::core::stats::{CgroupStats, InterfaceStats, MountedFilesystem};

/// A cgroup with its labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct CgroupSeries {
    pub(crate) labels: Labels,
    pub(crate) stats: CgroupStats,
    /// Of sandboxes and of the root cgroup.
    pub(crate) network: Vec<InterfaceStats>,
    /// Of the root cgroup.
    pub(crate) filesystems: Vec<MountedFilesystem>,
}

/// What the labels of a cgroup say. Empty where there is nothing to say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CgroupIdentity<'a> {
    /// Its path.
    pub(crate) id: &'a str,
    /// The id of the container or sandbox.
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    pub(crate) container: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) pod: &'a str,
}

impl CgroupIdentity<'_> {
    pub(crate) fn labels(&self) -> Labels {
        Labels::default()
            .with("container", self.container)
            .with("id", self.id)
            .with("image", self.image)
            .with("name", self.name)
            .with("namespace", self.namespace)
            .with("pod", self.pod)
    }
}

/// Everything that is exposed.
#[derive(Clone, Debug, Default)]
pub(crate) struct CadvisorSample {
    pub(crate) at: Timestamp,
    pub(crate) machine: MachineInfo,
    pub(crate) cgroups: Vec<CgroupSeries>,
    /// Whether the kernel has pressure stall information for cgroups.
    pub(crate) has_pressure: bool,
}
