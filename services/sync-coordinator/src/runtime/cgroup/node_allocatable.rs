//! Enforcement of node allocatable (`enforceNodeAllocatable`): limits of the cgroup of all pods, and of
//! the cgroups of reserved resources.

use std::collections::BTreeMap;

use polylet_kit::config::KubeletConfiguration;
use polylet_machine::capacity;
use polylet_model::cgroup::{CgroupDriver, CgroupName};
use polylet_model::node::{self, ResourceList};
use polylet_model::qos::QosClass;
use polylet_model::quantity::Amount;
use polylet_model::resources;
use polylet_wire::notice::v1::Severity;

use super::limits::Limits;
use super::tree;
use crate::runtime::RuntimeManager;
use crate::runtime::resources::{memory_qos, page_size};

/// Creates the cgroup of all pods, limited to the allocatable resources if they are enforced, or to
/// the capacity, since the default CPU weight is too low. Pods that run already may use more than a
/// new limit: it is then retried.
pub(super) async fn all_pods(manager: &RuntimeManager, driver: CgroupDriver) {
    let mut resources = capacity(manager.ctx.config(), manager.machine);
    resources.extend(max_pids().map(|max| ("pid".to_owned(), max)));
    let kubelet = &manager.ctx.config().kubelet;
    if enforces(kubelet, "pods") {
        let reserved = [&kubelet.system_reserved, &kubelet.kube_reserved];
        resources = node::without_reserved(&resources, &reserved);
    }
    let limits = limits_of(&resources);
    manager.cgroups.all_pods.replace(limits.clone());
    let path = CgroupName::kubepods(&manager.cgroups.root).path(driver);
    match super::create_strict(manager, driver, &path, &limits).await {
        Ok(()) => {
            manager.cgroups.enforced.set(true);
            let message = "Updated Node Allocatable limit across pods";
            record_event(manager, Severity::Normal, message.to_owned());
        }
        Err(error) => {
            manager.cgroups.retry.notify_one();
            let name = path.trim_start_matches('/');
            let message = format!("Failed to update Node Allocatable Limits [{name:?}]: {error}");
            record_event(manager, Severity::Warning, message);
        }
    }
}

/// Limits the cgroups of the reserved resources that are enforced.
pub(super) async fn reserved(manager: &RuntimeManager, driver: CgroupDriver) {
    let kubelet = &manager.ctx.config().kubelet;
    for (name, title, cgroup, list) in [
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
        let all = enforces(kubelet, name);
        if !all && !enforces(kubelet, &format!("{name}-compressible")) {
            continue;
        }
        match limit_reserved(manager, driver, cgroup, list, all).await {
            Ok(()) => {
                let name = name.replace('-', " ");
                let message = format!("Updated limits on {name} cgroup {cgroup}");
                record_event(manager, Severity::Normal, message);
            }
            Err(error) => {
                let title = match all {
                    true => title.to_owned(),
                    false => format!("{title} Compressible"),
                };
                let message =
                    format!("Failed to enforce {title} Cgroup Limits on {cgroup:?}: {error}");
                record_event(manager, Severity::Warning, message);
            }
        }
    }
}

/// Limits an existing cgroup to all its reserved resources, or to its CPU only.
async fn limit_reserved(
    manager: &RuntimeManager,
    driver: CgroupDriver,
    cgroup: &str,
    list: &BTreeMap<String, String>,
    all: bool,
) -> Result<(), String> {
    let path = CgroupName::from_config(cgroup, driver).path(driver);
    if !tree::exists(manager.machine.unified_cgroups, &path) {
        return Err(format!("cgroup {path:?} does not exist"));
    }
    let mut resources = parse(list);
    if !all {
        resources.retain(|name, _| name == "cpu");
    }
    let mut limits = limits_of(&resources);
    if let (Some(_), Some(bytes)) = (memory_qos(manager), limits.memory) {
        limits.files = resources::memory_protection(QosClass::Guaranteed, bytes);
    }
    super::create_strict(manager, driver, &path, &limits).await
}

fn enforces(kubelet: &KubeletConfiguration, name: &str) -> bool {
    let mut enforced = kubelet.enforce_node_allocatable.iter();
    enforced.any(|enforced| enforced == name)
}

/// Records the result as an event of the node; a success only at a start of the whole agent.
fn record_event(manager: &RuntimeManager, severity: Severity, message: String) {
    if severity == Severity::Normal && !manager.is_agent_start {
        return;
    }
    let reason = match severity {
        Severity::Warning => {
            tracing::error!(error = message, "failed to enforce node allocatable");
            "FailedNodeAllocatableEnforcement"
        }
        _ => "NodeAllocatableEnforced",
    };
    manager.ctx.notices().node(severity, reason, message);
}

fn parse(list: &BTreeMap<String, String>) -> ResourceList {
    list.iter()
        .filter_map(|(name, text)| {
            let amount = Amount::parse(text).ok()?;
            Some((name.clone(), node::resource_value(name, amount)))
        })
        .collect()
}

fn limits_of(list: &ResourceList) -> Limits {
    let at = |name: &str| list.get(name).copied();
    let pages = list
        .iter()
        .filter_map(|(name, bytes)| {
            let size = name.strip_prefix("hugepages-")?;
            Some((page_size(size), u64::try_from(*bytes).unwrap_or(0)))
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

/// The maximum number of tasks on the machine.
fn max_pids() -> Option<i64> {
    ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_resources_become_limits() {
        let list = [("cpu", "500m"), ("memory", "1Ki"), ("pid", "100")];
        let list = list.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let limits = limits_of(&parse(&list.into()));
        assert_eq!(limits.cpu_shares, Some(512));
        assert_eq!((limits.memory, limits.pids), (Some(1024), Some(100)));
        assert_eq!(limits.cpu_quota, None);
        assert!(max_pids().is_some_and(|max| max > 0));
    }
}
