//! How a pod's containers use its volumes: which, as whom, and with how much memory.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;

use super::downward::nano;
use super::spec::Used;

/// The volumes that some container mounts or maps, and how.
pub(super) fn used(spec: &api::PodSpec) -> BTreeMap<&str, Used> {
    let mut all: BTreeMap<&str, Used> = BTreeMap::new();
    let init = spec.init_containers.iter().flatten();
    let containers = init.chain(&spec.containers);
    let plain = containers.map(|c| (c.volume_mounts.iter(), c.volume_devices.iter()));
    let debugging = spec.ephemeral_containers.iter().flatten();
    let debugging = debugging.map(|c| (c.volume_mounts.iter(), c.volume_devices.iter()));
    for (mounts, devices) in plain.chain(debugging) {
        for mount in mounts.flatten() {
            all.entry(&mount.name).or_default().mounted = true;
        }
        for device in devices.flatten() {
            all.entry(&device.name).or_default().mapped = true;
        }
    }
    all
}

pub(super) fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

fn memory_limit(resources: Option<&api::ResourceRequirements>) -> Option<u64> {
    let limit = resources?.limits.as_ref()?.get("memory")?;
    u64::try_from(nano(limit)? / 1_000_000_000)
        .ok()
        .filter(|bytes| *bytes > 0)
}

/// What all containers may use together, if each has a limit.
pub(super) fn pod_memory_limit(spec: &api::PodSpec) -> Option<u64> {
    if let Some(limit) = memory_limit(spec.resources.as_ref()) {
        return Some(limit);
    }
    let limit = |container: &api::Container| memory_limit(container.resources.as_ref());
    let mut running: u64 = 0;
    for container in &spec.containers {
        running = running.saturating_add(limit(container)?);
    }
    let mut sidecars: u64 = 0;
    let mut starting = 0;
    for container in spec.init_containers.iter().flatten() {
        let own = limit(container)?;
        starting = starting.max(sidecars.saturating_add(own));
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars.saturating_add(own);
        }
    }
    Some(running.saturating_add(sidecars).max(starting))
}

/// The user that all containers run as, if they are of one mind: upstream's owner of tokens.
pub(super) fn only_user(spec: &api::PodSpec) -> Option<u32> {
    let pods = spec.security_context.as_ref().and_then(|c| c.run_as_user);
    let containers = spec.init_containers.iter().flatten();
    let mut users = containers.chain(&spec.containers).map(|container| {
        let own = container.security_context.as_ref();
        own.and_then(|c| c.run_as_user).or(pods)
    });
    let first = users.next()??;
    let same = users.all(|user| user == Some(first));
    u32::try_from(first).ok().filter(|_| same)
}
