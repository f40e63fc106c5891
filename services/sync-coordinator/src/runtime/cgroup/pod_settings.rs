//! Settings of a pod's cgroup, which a resize reads and writes while the pod runs.

use std::path::PathBuf;

use polylet_model::{Manifest, resources};

use super::limits::Limits;
use super::{RuntimeManager, create_strict, period, pod_limits, tree};

/// Limits and CPU weight of a pod's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupSettings {
    /// Memory limit in bytes; `i64::MAX` for none.
    pub memory: i64,
    /// CPU quota in microseconds per period; `i64::MAX` for none.
    pub quota: i64,
    /// CPU shares, as in v1.
    pub shares: u64,
}

/// Memory limits of v1 above this mean no limit; the kernel rounds the largest value down to pages.
const UNLIMITED_V1: i64 = i64::MAX - (1 << 20);

/// The settings of a pod's cgroup; `None` if it does not exist.
pub async fn read_settings(
    manager: &RuntimeManager,
    manifest: &Manifest,
) -> Option<CgroupSettings> {
    let file = files(manager, manifest).await?;
    let unified = manager.machine.unified_cgroups;
    if unified {
        let (quota, weight) = (file("cpu", "cpu.max")?, file("cpu", "cpu.weight")?);
        return Some(CgroupSettings {
            memory: parse_limit(&file("memory", "memory.max")?)?,
            quota: parse_limit(quota.split_whitespace().next()?)?,
            shares: shares_of(weight.parse().ok()?),
        });
    }
    let quota = parse_limit(&file("cpu", "cpu.cfs_quota_us")?)?;
    let memory = parse_limit(&file("memory", "memory.limit_in_bytes")?)?;
    Some(CgroupSettings {
        memory: if memory > UNLIMITED_V1 {
            i64::MAX
        } else {
            memory
        },
        quota: if quota < 0 { i64::MAX } else { quota },
        shares: file("cpu", "cpu.shares")?.parse().ok()?,
    })
}

/// The least shares with a CPU weight of v2.
fn shares_of(weight: u64) -> u64 {
    let (mut low, mut high) = (resources::MIN_CPU_SHARES, resources::MAX_CPU_SHARES);
    while low < high {
        let middle = low.midpoint(high);
        if resources::cpu_weight(middle) < weight {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

pub(crate) fn parse_limit(text: &str) -> Option<i64> {
    match text {
        "max" => Some(i64::MAX),
        // v1 has values beyond `i64`.
        number => number
            .parse::<i128>()
            .ok()
            .map(|n| n.clamp(-1, i64::MAX.into()) as i64),
    }
}

/// The memory usage of the pod in bytes.
pub async fn memory_in_use(manager: &RuntimeManager, manifest: &Manifest) -> Option<i64> {
    let file = files(manager, manifest).await?;
    let name = if manager.machine.unified_cgroups {
        "memory.current"
    } else {
        "memory.usage_in_bytes"
    };
    file("memory", name)?.parse().ok()
}

/// A function that reads files of a pod's cgroup by controller and name.
async fn files(
    manager: &RuntimeManager,
    manifest: &Manifest,
) -> Option<impl Fn(&str, &str) -> Option<String> + use<>> {
    if !manager.cgroups.per_pod {
        return None;
    }
    let driver = manager.cgroups.driver(manager).await;
    let path = manager.cgroups.pod_name(manifest).path(driver);
    let unified = manager.machine.unified_cgroups;
    Some(move |controller: &str, name: &str| {
        let controller = if unified { "" } else { controller };
        let dir: PathBuf = tree::below(&PathBuf::from(tree::MOUNT).join(controller), &path);
        let text = std::fs::read_to_string(dir.join(name)).ok()?;
        Some(text.trim_end().to_owned())
    })
}

/// Changes the settings of a pod's cgroup.
///
/// # Errors
/// The error of the kernel or systemd.
pub async fn write_settings(
    manager: &RuntimeManager,
    manifest: &Manifest,
    goal: CgroupSettings,
) -> Result<(), String> {
    let kubelet = &manager.ctx.config().kubelet;
    let driver = manager.cgroups.driver(manager).await;
    let path = manager.cgroups.pod_name(manifest).path(driver);
    let resources =
        resources::pod_resources(manifest.spec(), kubelet.cpu_cfs_quota, period(kubelet));
    let limits = Limits {
        cpu_shares: Some(goal.shares),
        cpu_quota: Some(if goal.quota == i64::MAX {
            -1
        } else {
            goal.quota
        }),
        memory: (goal.memory != i64::MAX).then_some(goal.memory),
        ..pod_limits(manager, manifest.spec(), &resources)
    };
    create_strict(manager, driver, &path, &limits).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions_are_parsed() {
        assert_eq!(parse_limit("max"), Some(i64::MAX));
        assert_eq!(parse_limit("-1"), Some(-1));
        assert_eq!(parse_limit("9223372036854775808"), Some(i64::MAX));
        assert_eq!(parse_limit("many"), None);
    }

    #[test]
    fn shares_of_a_weight_have_that_weight() {
        for milli_cpu in [0, 100, 250, 1000, 64_000] {
            let weight = resources::cpu_weight(resources::cpu_shares(milli_cpu));
            assert_eq!(resources::cpu_weight(shares_of(weight)), weight);
        }
    }
}
