//! The cgroups of QoS classes: the weight of all Burstable pods, and, where configured, memory reserved
//! for higher classes (`qosReserved`) and memory protection (`MemoryQoS`).

use super::{CgroupFiles, MIN_CPU_SHARES, cpu_shares, memory_protection};
use crate::qos::QosClass;

/// The sum of pods' requests by QoS class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QosRequests {
    /// CPU of Burstable pods, in thousandths.
    pub burstable_cpu: i64,
    /// Memory of Burstable pods in bytes.
    pub burstable_memory: i64,
    /// Memory of Guaranteed pods in bytes.
    pub guaranteed_memory: i64,
}

/// The configuration of the cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QosCgroupConfig {
    /// The share of the requests of higher classes that lower ones cannot use (`qosReserved`), in percent.
    pub reserved_percent: Option<i64>,
    /// The node's memory less reservations in bytes; 0 if unknown.
    pub allocatable: i64,
    /// `None` if the `MemoryQoS` gate is off; else whether requests are protected (`TieredReservation`).
    pub memory_qos: Option<bool>,
}

/// The settings of a cgroup; `None` where a file is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosCgroup {
    /// The CPU weight (`cpu.shares`).
    pub cpu_shares: Option<u64>,
    /// The memory limit in bytes.
    pub memory_limit: Option<i64>,
    /// Files of cgroup v2 only.
    pub files: CgroupFiles,
}

/// The cgroups above pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosCgroups {
    /// The parent cgroup of all pods, with Guaranteed ones directly below.
    pub all: QosCgroup,
    /// The parent of Burstable pods.
    pub burstable: QosCgroup,
    /// The parent of BestEffort pods.
    pub best_effort: QosCgroup,
}

impl QosCgroupConfig {
    /// Computes the settings.
    pub fn cgroups(&self, requests: QosRequests) -> QosCgroups {
        let mut classes = QosCgroups::default();
        classes.burstable.cpu_shares = Some(cpu_shares(requests.burstable_cpu));
        classes.best_effort.cpu_shares = Some(MIN_CPU_SHARES);
        if let Some(percent) = self.reserved_percent.filter(|_| self.allocatable > 0) {
            let reserved = |bytes: i64| i128::from(bytes) * i128::from(percent) / 100;
            let burstable = i128::from(self.allocatable) - reserved(requests.guaranteed_memory);
            let best_effort = burstable - reserved(requests.burstable_memory);
            let limit = |bytes: i128| i64::try_from(bytes).ok().filter(|bytes| *bytes > 0);
            classes.burstable.memory_limit = limit(burstable);
            classes.best_effort.memory_limit = limit(best_effort);
        }
        if let Some(reserve) = self.memory_qos {
            let protected = |bytes: i64| if reserve { bytes } else { 0 };
            let burstable = protected(requests.burstable_memory);
            // The kernel protects memory only if all parent cgroups protect as much.
            let all = protected(requests.guaranteed_memory).saturating_add(burstable);
            classes.all.files = memory_protection(QosClass::Guaranteed, all);
            classes.burstable.files = memory_protection(QosClass::Burstable, burstable);
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: QosRequests = QosRequests {
        burstable_cpu: 500,
        burstable_memory: 200,
        guaranteed_memory: 300,
    };

    #[test]
    fn qos_reserved_limits_lower_classes() {
        let limits = |percent: Option<i64>, allocatable: i64| {
            let rules = QosCgroupConfig {
                reserved_percent: percent,
                allocatable,
                memory_qos: None,
            };
            let classes = rules.cgroups(REQUESTS);
            assert_eq!(classes.all, QosCgroup::default());
            assert_eq!(classes.burstable.cpu_shares, Some(512));
            assert_eq!(classes.best_effort.cpu_shares, Some(2));
            (
                classes.burstable.memory_limit,
                classes.best_effort.memory_limit,
            )
        };
        assert_eq!(limits(None, 1000), (None, None));
        assert_eq!(limits(Some(100), 1000), (Some(700), Some(500)));
        assert_eq!(limits(Some(50), 1000), (Some(850), Some(750)));
        assert_eq!(limits(Some(0), 1000), (Some(1000), Some(1000)));
        // No limit if the node's memory is unknown, or nothing is left.
        assert_eq!(limits(Some(100), 0), (None, None));
        assert_eq!(limits(Some(100), 500), (Some(200), None));
    }

    #[test]
    fn memory_qos_protects_requests() {
        let files = |memory_qos: Option<bool>| {
            let rules = QosCgroupConfig {
                memory_qos,
                ..QosCgroupConfig::default()
            };
            let classes = rules.cgroups(REQUESTS);
            assert_eq!(classes.best_effort.files, CgroupFiles::new());
            let files = [classes.all.files, classes.burstable.files];
            let lines = files.into_iter().flatten();
            lines
                .map(|(file, value)| format!("{file}={value}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(files(None), "");
        assert_eq!(files(Some(false)), "memory.min=0 memory.low=0");
        assert_eq!(files(Some(true)), "memory.min=500 memory.low=200");
    }
}
