//! What the classes of pods may use together: a weight for all Burstable pods, and, where that is
//! asked for, memory that pods of lower classes may not take and memory that is not taken from them.

use super::{Files, MIN_CPU_SHARES, cpu_shares, protected};
use crate::qos::QosClass;

/// What the pods of each class ask for together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassRequests {
    /// Thousandths of a CPU of Burstable pods.
    pub burstable_cpu: i64,
    /// Bytes of Burstable pods.
    pub burstable_memory: i64,
    /// Bytes of Guaranteed pods.
    pub guaranteed_memory: i64,
}

/// How memory is kept for the better classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassRules {
    /// How much of what better classes ask for the others may not take (`qosReserved`, in percent).
    pub reserved_percent: Option<i64>,
    /// The node's memory without what is reserved, in bytes; 0 where it is not known.
    pub allocatable: i64,
    /// The MemoryQoS gate is on; true where what is asked for is protected (`TieredReservation`).
    pub memory_qos: Option<bool>,
}

/// What is written into the cgroup of a class; what is absent is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassResources {
    /// Weight among the node's classes and Guaranteed pods.
    pub cpu_shares: Option<u64>,
    /// Bytes.
    pub memory_limit: Option<i64>,
    /// Files of version 2 of cgroups alone.
    pub files: Files,
}

/// The cgroups above pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// Of all pods: Guaranteed ones sit directly in it.
    pub all: ClassResources,
    /// Of Burstable pods.
    pub burstable: ClassResources,
    /// Of BestEffort pods.
    pub best_effort: ClassResources,
}

impl ClassRules {
    /// Computes them.
    pub fn classes(&self, asked: ClassRequests) -> Classes {
        let mut classes = Classes::default();
        classes.burstable.cpu_shares = Some(cpu_shares(asked.burstable_cpu));
        classes.best_effort.cpu_shares = Some(MIN_CPU_SHARES);
        if let Some(percent) = self.reserved_percent.filter(|_| self.allocatable > 0) {
            let held = |bytes: i64| i128::from(bytes) * i128::from(percent) / 100;
            let burstable = i128::from(self.allocatable) - held(asked.guaranteed_memory);
            let best_effort = burstable - held(asked.burstable_memory);
            let bound = |bytes: i128| i64::try_from(bytes).ok().filter(|bytes| *bytes > 0);
            classes.burstable.memory_limit = bound(burstable);
            classes.best_effort.memory_limit = bound(best_effort);
        }
        if let Some(reserve) = self.memory_qos {
            let promised = |bytes: i64| if reserve { bytes } else { 0 };
            let burstable = promised(asked.burstable_memory);
            // A promise holds only where all cgroups above make it as well.
            let all = promised(asked.guaranteed_memory).saturating_add(burstable);
            classes.all.files = protected(QosClass::Guaranteed, all);
            classes.burstable.files = protected(QosClass::Burstable, burstable);
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: ClassRequests = ClassRequests {
        burstable_cpu: 500,
        burstable_memory: 200,
        guaranteed_memory: 300,
    };

    #[test]
    fn memory_that_other_classes_may_not_take() {
        let limits = |percent: Option<i64>, allocatable: i64| {
            let rules = ClassRules {
                reserved_percent: percent,
                allocatable,
                memory_qos: None,
            };
            let classes = rules.classes(ASKED);
            assert_eq!(classes.all, ClassResources::default());
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
        // The node is not known, or nothing is left: as it was.
        assert_eq!(limits(Some(100), 0), (None, None));
        assert_eq!(limits(Some(100), 500), (Some(200), None));
    }

    #[test]
    fn memory_that_is_not_taken() {
        let files = |memory_qos: Option<bool>| {
            let rules = ClassRules {
                memory_qos,
                ..ClassRules::default()
            };
            let classes = rules.classes(ASKED);
            assert_eq!(classes.best_effort.files, Files::new());
            let of = [classes.all.files, classes.burstable.files];
            let words = of.into_iter().flatten();
            words
                .map(|(file, value)| format!("{file}={value}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(files(None), "");
        assert_eq!(files(Some(false)), "memory.min=0 memory.low=0");
        assert_eq!(files(Some(true)), "memory.min=500 memory.low=200");
    }
}
