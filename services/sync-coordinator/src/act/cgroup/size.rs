//! What a pod's cgroup has, and other values for it while the pod runs.

use std::path::PathBuf;

use polylet_model::{Manifest, resources};

use super::limits::Limits;
use super::{Hands, bound_to, of_pod, period, tree};

/// The bounds and the weight of a pod's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Bytes; the largest number for no bound.
    pub memory: i64,
    /// Microseconds in each period; the largest number for no bound.
    pub quota: i64,
    /// Weight.
    pub shares: u64,
}

/// Where version 1 of cgroups says that there is no bound, rounded down to pages.
const NO_BOUND_V1: i64 = i64::MAX - (1 << 20);

/// What a pod's cgroup has; none where there is no such cgroup.
pub async fn now(hands: &Hands, manifest: &Manifest) -> Option<Now> {
    let file = files(hands, manifest).await?;
    let unified = hands.machine.unified_cgroups;
    if unified {
        let (quota, weight) = (file("cpu", "cpu.max")?, file("cpu", "cpu.weight")?);
        return Some(Now {
            memory: bound(&file("memory", "memory.max")?)?,
            quota: bound(quota.split_whitespace().next()?)?,
            shares: shares(weight.parse().ok()?),
        });
    }
    let quota = bound(&file("cpu", "cpu.cfs_quota_us")?)?;
    let memory = bound(&file("memory", "memory.limit_in_bytes")?)?;
    Some(Now {
        memory: if memory > NO_BOUND_V1 {
            i64::MAX
        } else {
            memory
        },
        quota: if quota < 0 { i64::MAX } else { quota },
        shares: file("cpu", "cpu.shares")?.parse().ok()?,
    })
}

/// A weight back in shares: the least that makes it.
fn shares(weight: u64) -> u64 {
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

fn bound(text: &str) -> Option<i64> {
    match text {
        "max" => Some(i64::MAX),
        // Version 1 counts up to more than fits.
        number => number
            .parse::<i128>()
            .ok()
            .map(|n| n.clamp(-1, i64::MAX.into()) as i64),
    }
}

/// Bytes of memory that the pod uses.
pub async fn memory_in_use(hands: &Hands, manifest: &Manifest) -> Option<i64> {
    let file = files(hands, manifest).await?;
    let name = if hands.machine.unified_cgroups {
        "memory.current"
    } else {
        "memory.usage_in_bytes"
    };
    file("memory", name)?.parse().ok()
}

/// Reads files of a pod's cgroup by controller and name.
async fn files(
    hands: &Hands,
    manifest: &Manifest,
) -> Option<impl Fn(&str, &str) -> Option<String> + use<>> {
    if !hands.cgroups.per_pod {
        return None;
    }
    let driver = hands.cgroups.driver(hands).await;
    let path = hands.cgroups.pod(manifest).path(driver);
    let unified = hands.machine.unified_cgroups;
    Some(move |controller: &str, name: &str| {
        let controller = if unified { "" } else { controller };
        let place: PathBuf = tree::below(&PathBuf::from(tree::MOUNT).join(controller), &path);
        let text = std::fs::read_to_string(place.join(name)).ok()?;
        Some(text.trim_end().to_owned())
    })
}

/// Gives a pod's cgroup other bounds.
///
/// # Errors
/// What the kernel or systemd said.
pub async fn set(hands: &Hands, manifest: &Manifest, goal: Now) -> Result<(), String> {
    let kubelet = &hands.ctx.config().kubelet;
    let driver = hands.cgroups.driver(hands).await;
    let path = hands.cgroups.pod(manifest).path(driver);
    let whole = resources::pod(manifest.spec(), kubelet.cpu_cfs_quota, period(kubelet));
    let limits = Limits {
        cpu_shares: Some(goal.shares),
        cpu_quota: Some(if goal.quota == i64::MAX {
            -1
        } else {
            goal.quota
        }),
        memory: (goal.memory != i64::MAX).then_some(goal.memory),
        ..of_pod(hands, manifest.spec(), &whole)
    };
    bound_to(hands, driver, &path, &limits).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_the_kernel_says_them() {
        assert_eq!(bound("max"), Some(i64::MAX));
        assert_eq!(bound("-1"), Some(-1));
        assert_eq!(bound("9223372036854775808"), Some(i64::MAX));
        assert_eq!(bound("many"), None);
    }

    #[test]
    fn weights_come_back_as_the_same_weight() {
        for milli_cpu in [0, 100, 250, 1000, 64_000] {
            let weight = resources::cpu_weight(resources::cpu_shares(milli_cpu));
            assert_eq!(resources::cpu_weight(shares(weight)), weight);
        }
    }
}
