//! How the containers of a pod use its volumes, and the pod's limits that matter to them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::quantity::Amount;

/// How the containers of a pod use a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VolumeUse {
    /// Some container has it in `volumeMounts`.
    pub mounted: bool,
    /// Some container has it in `volumeDevices`.
    pub mapped: bool,
}

/// A quantity in billionths, exactly.
pub(super) fn nanos(quantity: &Quantity) -> Option<i128> {
    Amount::parse(&quantity.0).ok().map(Amount::nanos)
}

/// The volumes that some container uses.
pub(super) fn used_volumes(spec: &api::PodSpec) -> BTreeMap<&str, VolumeUse> {
    let mut all: BTreeMap<&str, VolumeUse> = BTreeMap::new();
    let init = spec.init_containers.iter().flatten();
    let containers = init.chain(&spec.containers);
    let regular = containers.map(|c| (c.volume_mounts.iter(), c.volume_devices.iter()));
    let debugging = spec.ephemeral_containers.iter().flatten();
    let debugging = debugging.map(|c| (c.volume_mounts.iter(), c.volume_devices.iter()));
    for (mounts, devices) in regular.chain(debugging) {
        for mount in mounts.flatten() {
            all.entry(&mount.name).or_default().mounted = true;
        }
        for device in devices.flatten() {
            all.entry(&device.name).or_default().mapped = true;
        }
    }
    all
}

/// The lower of two limits, of which either may be missing.
pub(super) fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

fn memory_limit(resources: Option<&api::ResourceRequirements>) -> Option<u64> {
    let limit = resources?.limits.as_ref()?.get("memory")?;
    u64::try_from(nanos(limit)? / 1_000_000_000)
        .ok()
        .filter(|bytes| *bytes > 0)
}

/// The memory limit of the pod: its own, or the sum over its containers if each has a limit.
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

/// The user that all containers run as, if it is the same: the owner of projected tokens, as
/// upstream.
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
