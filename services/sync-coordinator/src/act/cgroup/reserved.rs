//! The bounds that keep all pods together from taking what is reserved, and those that keep the
//! reserved parts to themselves.

use std::collections::BTreeMap;

use polylet_kit::config::KubeletConfiguration;
use polylet_machine::capacity;
use polylet_model::cgroup::{CgroupName, Driver};
use polylet_model::node::{self, Numbers};
use polylet_model::qos::QosClass;
use polylet_model::quantity::Amount;
use polylet_model::resources;
use polylet_wire::notice::v1::Severity;

use super::limits::Limits;
use super::tree;
use crate::act::Hands;
use crate::act::resources::memory_qos;

/// Makes the cgroup of all pods: with what `enforceNodeAllocatable` leaves them, or with all that the
/// node has, since by itself a cgroup weighs too little. A node that runs pods
/// already may use more than a new bound gives: then it is tried again.
pub(super) async fn all_pods(hands: &Hands, driver: Driver) {
    let mut numbers = capacity(hands.ctx.config(), hands.machine);
    numbers.extend(most_pids().map(|most| ("pid".to_owned(), most)));
    let kubelet = &hands.ctx.config().kubelet;
    if enforces(kubelet, "pods") {
        let reserved = [&kubelet.system_reserved, &kubelet.kube_reserved];
        numbers = node::without_reserved(&numbers, &reserved);
    }
    let limits = of_numbers(&numbers);
    hands.cgroups.all_pods.replace(limits.clone());
    let path = CgroupName::kubepods(&hands.cgroups.root).path(driver);
    match super::bound_to(hands, driver, &path, &limits).await {
        Ok(()) => {
            hands.cgroups.enforced.set(true);
            let message = "Updated Node Allocatable limit across pods";
            told(hands, Severity::Normal, message.to_owned());
        }
        Err(error) => {
            hands.cgroups.unmet.notify_one();
            let name = path.trim_start_matches('/');
            let message = format!("Failed to update Node Allocatable Limits [{name:?}]: {error}");
            told(hands, Severity::Warning, message);
        }
    }
}

/// Bounds the reserved parts that `enforceNodeAllocatable` names.
pub(super) async fn others(hands: &Hands, driver: Driver) {
    let kubelet = &hands.ctx.config().kubelet;
    for (part, title, cgroup, list) in [
        (
            "system-reserved",
            "System Reserved",
            &kubelet.system_reserved_cgroup,
            &kubelet.system_reserved,
        ),
        (
            "kube-reserved",
            "Kube Reserved",
            &kubelet.kube_reserved_cgroup,
            &kubelet.kube_reserved,
        ),
    ] {
        let whole = enforces(kubelet, part);
        if !whole && !enforces(kubelet, &format!("{part}-compressible")) {
            continue;
        }
        match bound_part(hands, driver, cgroup, list, whole).await {
            Ok(()) => {
                let part = part.replace('-', " ");
                let message = format!("Updated limits on {part} cgroup {cgroup}");
                told(hands, Severity::Normal, message);
            }
            Err(error) => {
                let title = match whole {
                    true => title.to_owned(),
                    false => format!("{title} Compressible"),
                };
                let message =
                    format!("Failed to enforce {title} Cgroup Limits on {cgroup:?}: {error}");
                told(hands, Severity::Warning, message);
            }
        }
    }
}

/// A part's own cgroup, which has to be there; of the CPU alone, or of all that is reserved.
async fn bound_part(
    hands: &Hands,
    driver: Driver,
    cgroup: &str,
    list: &BTreeMap<String, String>,
    whole: bool,
) -> Result<(), String> {
    let path = CgroupName::configured(cgroup, driver).path(driver);
    if !tree::exists(hands.machine.unified_cgroups, &path) {
        return Err(format!("cgroup {path:?} does not exist"));
    }
    let mut numbers = amounts(list);
    if !whole {
        numbers.retain(|name, _| name == "cpu");
    }
    let mut limits = of_numbers(&numbers);
    if let (Some(_), Some(bytes)) = (memory_qos(hands), limits.memory) {
        limits.files = resources::protected(QosClass::Guaranteed, bytes);
    }
    super::bound_to(hands, driver, &path, &limits).await
}

fn enforces(kubelet: &KubeletConfiguration, part: &str) -> bool {
    let mut named = kubelet.enforce_node_allocatable.iter();
    named.any(|named| named == part)
}

/// Tells people how it went. What is as it was is no news after a restart of this service alone.
fn told(hands: &Hands, severity: Severity, message: String) {
    if severity == Severity::Normal && !hands.is_start {
        return;
    }
    let reason = match severity {
        Severity::Warning => {
            tracing::error!(message);
            "FailedNodeAllocatableEnforcement"
        }
        _ => "NodeAllocatableEnforced",
    };
    hands.ctx.notices().of_node(severity, reason, message);
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
}
