//! What device-manager does for pods: one matter of a pod after the other, and different pods at once.

use std::collections::{BTreeSet, VecDeque};

use polylet_device_manager::core::allocation;
use polylet_device_manager::core::allocations::{
    AllocatedResource, AllocationKey, DeviceAllocations,
};
use polylet_device_manager::core::pod_allocation::{
    AllocationStep, PodDeviceAllocation, RequestingContainer,
};
use polylet_device_manager::core::run_options::ContainerRunOptions;
use polylet_model::constants::reason;
use polylet_sync_coordinator::core::devices::{
    DeviceAdmission, PreparedDeviceMount, PreparedDeviceNode, PreparedDevices,
};
use polylet_sync_coordinator::core::step::StepOutcome;
use tokio::sync::oneshot;

use super::{DeviceCall, DeviceManagerInstance, key, save};
use crate::calls::{Work, step_failure};
use crate::device_plugin::{self, PluginCall, PluginResponse, RESOURCE};
use crate::world::{ServiceId, World};

/// A request of the coordinator that is under way or waits for the pod's former ones.
pub(super) struct DeviceJob {
    allocation: PodDeviceAllocation,
    container: Option<String>,
    /// Whether the plugin may have to prepare the start.
    unprepared: bool,
    /// The devices that the plugin is asked for.
    allocating: Option<(AllocationKey, BTreeSet<String>)>,
    response: oneshot::Sender<StepOutcome>,
}

/// The job of a request.
pub(super) fn job(node: &DeviceManagerInstance, call: DeviceCall) -> DeviceJob {
    let containers = call.request.containers.into_iter();
    let containers = containers.map(|container| RequestingContainer {
        name: container.container,
        limits: container.limits,
        releases_devices: container.releases_devices,
        running: container.running,
    });
    let mut containers: Vec<RequestingContainer> = containers.collect();
    if let Some(name) = &call.container {
        containers.retain(|container| container.name == *name);
        // What was allocated at the admission is not judged again.
        let allocated = node.allocations.container(&call.uid, name);
        for container in &mut containers {
            let has = |resource: &String| allocated.is_some_and(|all| all.contains_key(resource));
            container.limits.retain(|resource, _| !has(resource));
        }
    }
    DeviceJob {
        allocation: PodDeviceAllocation::new(&call.uid, containers),
        unprepared: call.container.is_some(),
        container: call.container,
        allocating: None,
        response: call.response,
    }
}

/// Goes on with the pod's first job until it needs the plugin or has ended.
pub(super) fn advance(world: &mut World, uid: &str) {
    let Some(node) = &mut world.devices else {
        return;
    };
    let jobs = node.jobs.get_mut(uid);
    let Some(job) = jobs.and_then(VecDeque::front_mut) else {
        return;
    };
    let step = job
        .allocation
        .advance(&node.inventory, &mut node.allocations);
    match step {
        Err(error) => finish(world, uid, Err(error.to_string())),
        Ok(AllocationStep::Prefer(_, request)) => call(world, uid, PluginCall::Prefer(request)),
        Ok(AllocationStep::Allocate(key, devices)) => {
            job.allocating = Some((key, devices.clone()));
            call(world, uid, PluginCall::Allocate(devices));
        }
        Ok(AllocationStep::Done) => prepare_start(world, uid),
    }
}

/// Has the plugin prepare the start of a container.
fn prepare_start(world: &mut World, uid: &str) {
    let Some(node) = &mut world.devices else {
        return;
    };
    let Some(job) = node.job(uid) else {
        return;
    };
    let unprepared = std::mem::take(&mut job.unprepared);
    let Some(container) = job.container.clone() else {
        return finish(world, uid, Ok(()));
    };
    let allocated = node.allocations.container(uid, &container);
    if let Err(error) = allocation::check_start(&node.inventory, allocated) {
        return finish(world, uid, Err(error.to_string()));
    }
    let devices = node.allocations.container_devices(&key(uid, &container));
    let required = node.inventory.options(RESOURCE).pre_start_required;
    match devices.filter(|_| unprepared && required) {
        Some(devices) => call(world, uid, PluginCall::PreStart(devices)),
        None => finish(world, uid, Ok(())),
    }
}

/// Calls the plugin for a pod's job.
fn call(world: &mut World, uid: &str, call: PluginCall) {
    let Some(node) = &world.devices else {
        return;
    };
    if node.connection.is_none() {
        return finish(world, uid, Err("endpoint has been stopped".to_owned()));
    }
    let incarnation = node.incarnation;
    let work = Work::Plugin {
        uid: uid.to_owned(),
        instance: node.connection,
        call,
        answer: None,
    };
    world.call(ServiceId::Devices, incarnation, work);
}

/// Advances a call of the plugin. Returns the remaining work, and whether anything happened.
pub fn advance_call(
    world: &mut World,
    uid: String,
    instance: Option<u32>,
    call: PluginCall,
    answer: Option<PluginResponse>,
) -> (Option<Work>, bool) {
    let Some(answer) = answer else {
        // The call may take longer.
        let slow = !world.quiescing && world.rng.percent(50);
        let answer = (!slow).then(|| device_plugin::execute(world, instance, &call));
        world.record(|| format!("devices: {call:?} for {uid}: {answer:?}"));
        let moved = answer.is_some();
        let work = Work::Plugin {
            uid,
            instance,
            call,
            answer,
        };
        return (Some(work), moved);
    };
    let Some(job) = world.devices.as_mut().and_then(|node| node.job(&uid)) else {
        return (None, true);
    };
    let result = match answer {
        PluginResponse::Preferred(Ok(devices)) => {
            job.allocation.on_preferred(devices);
            Ok(())
        }
        PluginResponse::Allocated(result) => record_allocated(world, &uid, result),
        PluginResponse::Prepared(Ok(())) => {
            prepare_start(world, &uid);
            return (None, true);
        }
        PluginResponse::Preferred(Err(error)) | PluginResponse::Prepared(Err(error)) => Err(error),
    };
    match result {
        Ok(()) => advance(world, &uid),
        Err(error) => finish(world, &uid, Err(error)),
    }
    (None, true)
}

/// Records what the plugin has allocated, or gives the devices back.
fn record_allocated(
    world: &mut World,
    uid: &str,
    result: Result<ContainerRunOptions, String>,
) -> Result<(), String> {
    let Some(node) = &mut world.devices else {
        return Ok(());
    };
    let Some(job) = node.jobs.get_mut(uid).and_then(VecDeque::front_mut) else {
        return Ok(());
    };
    let Some((key, devices)) = job.allocating.take() else {
        return Ok(());
    };
    match result {
        Ok(run_options) => {
            let devices = allocation::by_numa_node(&node.inventory, &key.resource, &devices);
            let allocated = AllocatedResource {
                devices,
                run_options,
            };
            node.allocations.insert(key, allocated);
            job.allocation.on_allocated();
            Ok(())
        }
        Err(error) => {
            node.allocations.release(&key);
            Err(error)
        }
    }
}

/// Ends the pod's first job, and starts its next one. Allocations are stored before they are used.
fn finish(world: &mut World, uid: &str, result: Result<(), String>) {
    let stored = save(world);
    let result = result.and(stored);
    world.record(|| format!("devices: request of {uid}: {result:?}"));
    let Some(node) = &mut world.devices else {
        return;
    };
    let job = node.jobs.get_mut(uid).and_then(VecDeque::pop_front);
    if let Some(job) = job {
        if let Some((key, _)) = &job.allocating {
            node.allocations.release(key);
        }
        let outcome = outcome(&node.allocations, uid, job.container.as_deref(), result);
        // The coordinator may have given up, and asks again.
        let _ = job.response.send(outcome);
    }
    if node.jobs.get(uid).is_some_and(VecDeque::is_empty) {
        node.jobs.remove(uid);
    } else {
        advance(world, uid);
    }
}

fn outcome(
    allocations: &DeviceAllocations,
    uid: &str,
    container: Option<&str>,
    result: Result<(), String>,
) -> StepOutcome {
    match (result, container) {
        (Err(error), None) => StepOutcome::DevicesAllocated(DeviceAdmission::Refused(error)),
        (Err(error), Some(_)) => {
            StepOutcome::Failed(step_failure(reason::CREATE_CONTAINER_CONFIG_ERROR, &error))
        }
        (Ok(()), None) => {
            let counts = allocations.counts().into_iter();
            let counts = counts.filter(|_| allocations.has_pod(uid));
            let counts =
                counts.map(|(name, count)| (name, i64::try_from(count).unwrap_or(i64::MAX)));
            StepOutcome::DevicesAllocated(DeviceAdmission::Allocated(counts.collect()))
        }
        (Ok(()), Some(container)) => {
            let all = allocations.container(uid, container).into_iter().flatten();
            let all = all.map(|(_, resource)| &resource.run_options);
            StepOutcome::DevicesPrepared(prepared(ContainerRunOptions::join(all).0))
        }
    }
}

fn prepared(options: ContainerRunOptions) -> PreparedDevices {
    let mounts = options.mounts.into_iter().map(|mount| PreparedDeviceMount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        read_only: mount.read_only,
    });
    let nodes = options.devices.into_iter().map(|node| PreparedDeviceNode {
        container_path: node.container_path,
        host_path: node.host_path,
        permissions: node.permissions,
    });
    PreparedDevices {
        envs: options.envs,
        mounts: mounts.collect(),
        nodes: nodes.collect(),
        annotations: options.annotations,
        cdi_devices: options.cdi_devices,
    }
}
