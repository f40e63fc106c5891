//! The cgroups of the QoS classes, with limits from the requests of their pods.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_model::cgroup::CgroupDriver;
use polylet_model::qos::QosClass;
use polylet_model::resources::{QosCgroup, QosCgroupConfig, QosRequests};

use super::limits::Limits;
use super::{CgroupError, create, tree};
use crate::runtime::RuntimeManager;
use crate::runtime::resources::memory_qos;

/// For how long the cgroups of the classes are left alone while their requests stay the same. Upstream sets them
/// each minute: what others change in them is repaired by the first start or deletion of a pod after that time.
const INTERVAL: Duration = Duration::from_secs(60);

/// What the cgroups of the classes were set from last, and when.
#[derive(Clone, Copy)]
pub(super) struct AppliedRequests {
    pub(super) requests: QosRequests,
    pub(super) at: Instant,
}

impl AppliedRequests {
    fn is_current(self, requests: QosRequests, now: Instant) -> bool {
        self.requests == requests && now.duration_since(self.at) < INTERVAL
    }
}

/// The classes with a cgroup of their own.
const CLASSES: [QosClass; 2] = [QosClass::Burstable, QosClass::BestEffort];

/// Whether the cgroups of the classes were just set from the same requests, and still exist.
pub(super) fn are_current(
    manager: &RuntimeManager,
    driver: CgroupDriver,
    requests: QosRequests,
    now: Instant,
) -> bool {
    let unified = manager.machine.unified_cgroups;
    let exists = |class| tree::exists(unified, &manager.cgroups.qos_path(class, driver));
    let applied = manager.cgroups.applied_qos.get();
    applied.is_some_and(|applied| applied.is_current(requests, now))
        && CLASSES.into_iter().all(exists)
}

/// Creates the cgroups and sets their limits. False if a class uses more memory than its limit: it
/// is limited to its usage until it uses less.
pub(super) async fn update(
    manager: &RuntimeManager,
    driver: CgroupDriver,
    requests: QosRequests,
) -> Result<bool, CgroupError> {
    let unified = manager.machine.unified_cgroups;
    let classes = rules(manager).cgroups(requests);
    if !classes.all.files.is_empty() {
        let path = manager.cgroups.qos_path(QosClass::Guaranteed, driver);
        let limits = Limits {
            files: classes.all.files,
            ..manager.cgroups.all_pods.borrow().clone()
        };
        create(manager, driver, &path, &limits).await?;
    }
    let mut complete = true;
    for (class, resources) in CLASSES
        .into_iter()
        .zip([classes.burstable, classes.best_effort])
    {
        let path = manager.cgroups.qos_path(class, driver);
        let desired = resources.memory_limit;
        let resources = QosCgroup {
            memory_limit: desired.map(|bytes| bytes.max(unreclaimable(unified, &path))),
            ..resources
        };
        complete &= resources.memory_limit == desired;
        let limits = Limits::of_class(&resources, manager.cgroups.page_sizes());
        create(manager, driver, &path, &limits).await?;
    }
    Ok(complete)
}

fn rules(manager: &RuntimeManager) -> QosCgroupConfig {
    let kubelet = &manager.ctx.config().kubelet;
    QosCgroupConfig {
        reserved_percent: kubelet
            .has_gate("QOSReserved")
            .then(|| kubelet.qos_reserved_memory())
            .flatten(),
        allocatable: manager.unreserved.get("memory").copied().unwrap_or(0),
        memory_qos: memory_qos(manager).map(|qos| qos.reserve),
    }
}

/// Memory in bytes that a cgroup uses and that the kernel cannot reclaim at once.
fn unreclaimable(unified: bool, path: &str) -> i64 {
    let hierarchy = if unified { "" } else { "memory" };
    let dir: PathBuf = tree::below(&Path::new(tree::MOUNT).join(hierarchy), path);
    let file = if unified {
        "memory.current"
    } else {
        "memory.usage_in_bytes"
    };
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let used: i64 = read(file).trim().parse().unwrap_or(0);
    (used - reclaimable(&read("memory.stat"), unified)).max(0)
}

/// The page cache in `memory.stat`, in bytes; v1 has the prefix `total_` for values with all
/// descendants.
pub(crate) fn reclaimable(stat: &str, unified: bool) -> i64 {
    let names = if unified {
        ["active_file", "inactive_file"]
    } else {
        ["total_active_file", "total_inactive_file"]
    };
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter(|(name, _)| names.contains(name))
        .filter_map(|(_, bytes)| bytes.parse::<i64>().ok())
        .fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_is_reclaimable() {
        let v2 = "anon 100\nactive_file 7\ninactive_file 5\nshmem 9\n";
        assert_eq!(reclaimable(v2, true), 12);
        let v1 = "active_file 1\ntotal_active_file 30\ntotal_inactive_file 4\nnonsense\n";
        assert_eq!(reclaimable(v1, false), 34);
        assert_eq!(reclaimable("", true), 0);
    }

    #[test]
    fn requests_are_current_for_a_time() {
        let (at, requests) = (Instant::now(), QosRequests::default());
        let applied = AppliedRequests { requests, at };
        assert!(applied.is_current(requests, at + INTERVAL / 2));
        assert!(!applied.is_current(requests, at + INTERVAL));
        let others = QosRequests {
            burstable_cpu: 1,
            ..requests
        };
        assert!(!applied.is_current(others, at));
    }
}
