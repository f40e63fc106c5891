//! Invariants of devices.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Container;
use polylet_model::status::ContainerPhase;
use polylet_sync_coordinator::core::devices::PreparedDevices;
use polylet_sync_coordinator::runtime::StepContext;

use super::Invariant;
use crate::device_plugin::{RESOURCE, VARIABLE};
use crate::pods::SimulatedPod;
use crate::runtime::SimContainer;
use crate::world::World;

/// Number of devices that a container requests.
fn requested(container: &Container) -> usize {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let count = limits.and_then(|limits| limits.get(RESOURCE));
    count.and_then(|count| count.0.parse().ok()).unwrap_or(0)
}

/// The devices in the variable; the device nodes have to be those of the same.
fn prepared_ids(prepared: &PreparedDevices) -> Result<BTreeSet<String>, String> {
    let variable = prepared.envs.get(VARIABLE).cloned().unwrap_or_default();
    let ids = variable.split(',').filter(|id| !id.is_empty());
    let ids: BTreeSet<String> = ids.map(str::to_owned).collect();
    let nodes = prepared.nodes.iter().map(|node| node.host_path.as_str());
    let nodes: BTreeSet<String> = nodes.map(|path| path.replace("/dev/sim-", "")).collect();
    match ids == nodes {
        true => Ok(ids),
        false => Err(format!("the variable has {ids:?}, the nodes are {nodes:?}")),
    }
}

/// Checks the devices of a container that is created, and returns their ids.
pub fn check_creation(
    world: &mut World,
    context: &StepContext,
    container: &str,
) -> BTreeSet<String> {
    let spec = context
        .manifest
        .as_ref()
        .and_then(|m| m.container(container));
    let requested = spec.map_or(0, |(_, spec)| requested(spec));
    let prepared = context.prepared_devices.as_deref().cloned();
    let ids = prepared_ids(&prepared.unwrap_or_default());
    let why = match &ids {
        Ok(ids) if ids.len() == requested => None,
        Ok(ids) => Some(format!("it requests {requested} and gets {ids:?}")),
        Err(why) => Some(why.clone()),
    };
    if let Some(why) = why {
        let why = format!("{} {container}: {why}", context.pod.uid);
        world.report_violation(Invariant::DevicesAreExclusive, why);
    }
    ids.unwrap_or_default()
}

/// Checks the devices of a container that starts.
pub fn check_start(world: &mut World, me: &SimContainer) {
    let uid = me.pod.uid.as_str();
    // An init container that has ended no longer runs, and later containers may have its devices.
    let shares = |other: &&SimContainer| {
        let runs = other.phase == ContainerPhase::Running;
        runs && other.id != me.id && !other.devices.is_disjoint(&me.devices)
    };
    let other = world.runtime.containers.values().find(shares);
    if let Some(other) = other {
        let why = format!(
            "{uid} {} ({}) starts with {:?}, while {} of {} runs with {:?}",
            me.name, me.id, me.devices, other.id, other.pod.uid, other.devices
        );
        world.report_violation(Invariant::DevicesAreExclusive, why);
    }
    let key = (uid.to_owned(), me.name.clone());
    let before = world.memory.devices.insert(key, me.devices.clone());
    if let Some(before) = before.filter(|before| *before != me.devices)
        && world.is_steady(uid)
    {
        let why = format!("{uid} {} had {before:?} and has {:?}", me.name, me.devices);
        world.report_violation(Invariant::DevicesAreExclusive, why);
    }
}

/// Why a pod that has converged does not have its devices.
pub fn missing(world: &World, desired: &SimulatedPod) -> Option<String> {
    let uid = desired.uid();
    world.runtime.running(uid).find_map(|running| {
        let (_, spec) = desired.manifest.container(&running.name)?;
        let allocated = world.devices.as_ref()?.allocated(uid, &running.name);
        let (requested, name) = (requested(spec), &running.name);
        let complete = running.devices.len() == requested && running.devices == allocated;
        (!complete).then(|| {
            let devices = &running.devices;
            format!("{name} requests {requested} devices, has {devices:?}, and {allocated:?} are allocated")
        })
    })
}
