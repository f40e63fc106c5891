//! The bounds that keep all pods together from taking what is reserved, and those that keep the
//! reserved parts to themselves.

use std::collections::BTreeMap;

use polylet_machine::capacity;
use polylet_model::cgroup::{CgroupName, Driver};
use polylet_model::node::{self, Numbers};
use polylet_model::quantity::Amount;
use polylet_model::resources;

use super::limits::Limits;
use super::tree;
use crate::act::Hands;

/// Makes the cgroup of all pods with what `enforceNodeAllocatable` says, and bounds the reserved
/// parts that it names.
pub(super) async fn enforce(hands: &Hands, driver: Driver) {
    let kubelet = &hands.ctx.config().kubelet;
    let unified = hands.machine.unified_cgroups;
    let enforced = |part: &str| {
        kubelet
            .enforce_node_allocatable
            .iter()
            .any(|named| named == part)
    };
    let all_pods = CgroupName::kubepods(&hands.cgroups.root).path(driver);
    let limits = if enforced("pods") {
        let mut capacity = capacity(hands.ctx.config(), hands.machine);
        capacity.extend(most_pids().map(|most| ("pid".to_owned(), most)));
        let reserved = [&kubelet.system_reserved, &kubelet.kube_reserved];
        of_numbers(&node::without_reserved(&capacity, &reserved))
    } else {
        Limits::default()
    };
    set(hands, driver, &all_pods, &limits).await;
    for (part, cgroup, list) in [
        (
            "system-reserved",
            &kubelet.system_reserved_cgroup,
            &kubelet.system_reserved,
        ),
        (
            "kube-reserved",
            &kubelet.kube_reserved_cgroup,
            &kubelet.kube_reserved,
        ),
    ] {
        let whole = enforced(part);
        if !whole && !enforced(&format!("{part}-compressible")) {
            continue;
        }
        let path = named(cgroup, driver);
        if !tree::exists(unified, &path) {
            tracing::error!(cgroup, part, "the cgroup of a reserved part does not exist");
            continue;
        }
        let mut numbers = amounts(list);
        if !whole {
            numbers.retain(|name, _| name == "cpu");
        }
        set(hands, driver, &path, &of_numbers(&numbers)).await;
    }
}

async fn set(hands: &Hands, driver: Driver, path: &str, limits: &Limits) {
    if let Err(error) = super::make(hands, driver, path, limits).await {
        let error = polylet_kit::report(&error);
        tracing::error!(cgroup = path, error, "reserved resources are not enforced");
    }
}

/// A cgroup given by its path, in the driver's words.
fn named(path: &str, driver: Driver) -> String {
    match driver {
        Driver::Cgroupfs => path.to_owned(),
        Driver::Systemd if path.ends_with(".slice") => path.to_owned(),
        Driver::Systemd => format!("{path}.slice"),
    }
}

fn amounts(list: &BTreeMap<String, String>) -> Numbers {
    list.iter()
        .filter_map(|(name, text)| {
            let amount = Amount::parse(text).ok()?;
            Some((name.clone(), node::number(name, amount)))
        })
        .collect()
}

fn of_numbers(numbers: &Numbers) -> Limits {
    let at = |name: &str| numbers.get(name).copied();
    let pages = numbers
        .iter()
        .filter_map(|(name, bytes)| {
            let size = name.strip_prefix("hugepages-")?;
            Some((super::page_size(size), u64::try_from(*bytes).unwrap_or(0)))
        })
        .collect();
    Limits {
        cpu_shares: at("cpu").map(resources::cpu_shares),
        memory: at("memory"),
        pids: at("pid"),
        huge_pages: pages,
        ..Limits::default()
    }
}

/// How many tasks the machine can have.
fn most_pids() -> Option<i64> {
    ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_limits() {
        let list = [("cpu", "500m"), ("memory", "1Ki"), ("pid", "100")];
        let list = list.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let limits = of_numbers(&amounts(&list.into()));
        assert_eq!(limits.cpu_shares, Some(512));
        assert_eq!((limits.memory, limits.pids), (Some(1024), Some(100)));
        assert_eq!(limits.cpu_quota, None);
        assert!(most_pids().is_some_and(|most| most > 0));
    }

    #[test]
    fn cgroups_by_path() {
        assert_eq!(named("/system", Driver::Cgroupfs), "/system");
        assert_eq!(named("/system", Driver::Systemd), "/system.slice");
        assert_eq!(named("/system.slice", Driver::Systemd), "/system.slice");
    }
}
