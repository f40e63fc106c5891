//! The cgroups of the classes of pods, after what their pods ask for together.

use std::fs;
use std::path::{Path, PathBuf};

use polylet_model::cgroup::Driver;
use polylet_model::qos::QosClass;
use polylet_model::resources::{ClassRequests, ClassResources, ClassRules};

use super::limits::Limits;
use super::{MakeError, make, tree};
use crate::act::Hands;
use crate::act::resources::memory_qos;

/// Makes them, and gives each what is its. True when each has it: memory that a class uses already
/// is not taken from it, and it gets a bound there until it uses less.
pub(super) async fn refresh(
    hands: &Hands,
    driver: Driver,
    asked: ClassRequests,
) -> Result<bool, MakeError> {
    let unified = hands.machine.unified_cgroups;
    let classes = rules(hands).classes(asked);
    if !classes.all.files.is_empty() {
        let path = hands.cgroups.class(QosClass::Guaranteed, driver);
        let limits = Limits {
            files: classes.all.files,
            ..hands.cgroups.all_pods.borrow().clone()
        };
        make(hands, driver, &path, &limits).await?;
    }
    let mut settled = true;
    for (class, resources) in [
        (QosClass::Burstable, classes.burstable),
        (QosClass::BestEffort, classes.best_effort),
    ] {
        let path = hands.cgroups.class(class, driver);
        let wanted = resources.memory_limit;
        let resources = ClassResources {
            memory_limit: wanted.map(|bytes| bytes.max(held(unified, &path))),
            ..resources
        };
        settled &= resources.memory_limit == wanted;
        let limits = Limits::of_class(&resources, hands.cgroups.page_sizes());
        make(hands, driver, &path, &limits).await?;
    }
    Ok(settled)
}

fn rules(hands: &Hands) -> ClassRules {
    let kubelet = &hands.ctx.config().kubelet;
    ClassRules {
        reserved_percent: kubelet
            .has_gate("QOSReserved")
            .then(|| kubelet.qos_reserved_memory())
            .flatten(),
        allocatable: hands.most.get("memory").copied().unwrap_or(0),
        memory_qos: memory_qos(hands).map(|qos| qos.reserve),
    }
}

/// Bytes that a cgroup uses and that the kernel cannot simply take back.
fn held(unified: bool, path: &str) -> i64 {
    let hierarchy = if unified { "" } else { "memory" };
    let place: PathBuf = tree::below(&Path::new(tree::MOUNT).join(hierarchy), path);
    let file = if unified {
        "memory.current"
    } else {
        "memory.usage_in_bytes"
    };
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap_or_default();
    let used: i64 = read(file).trim().parse().unwrap_or(0);
    (used - reclaimable(&read("memory.stat"), unified)).max(0)
}

/// Pages of files, by `memory.stat`; version 1 says `total_` of a cgroup with those below it.
fn reclaimable(stat: &str, unified: bool) -> i64 {
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
    fn files_can_be_read_again() {
        let v2 = "anon 100\nactive_file 7\ninactive_file 5\nshmem 9\n";
        assert_eq!(reclaimable(v2, true), 12);
        let v1 = "active_file 1\ntotal_active_file 30\ntotal_inactive_file 4\nnonsense\n";
        assert_eq!(reclaimable(v1, false), 34);
        assert_eq!(reclaimable("", true), 0);
    }
}
