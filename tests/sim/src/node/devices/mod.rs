//! device-manager: its real allocation of devices, over the simulated plugin and disk.

mod jobs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polylet_device_manager::core::allocations::{AllocationKey, DeviceAllocations};
use polylet_device_manager::core::inventory::{Device, DeviceInventory};
use polylet_device_manager::fuzzing;
use polylet_sync_coordinator::core::devices::PodDeviceRequest;
use polylet_sync_coordinator::core::step::{Step, StepOutcome};
use polylet_sync_coordinator::runtime::StepContext;
use tokio::sync::oneshot;

use self::jobs::DeviceJob;
pub use self::jobs::advance_call;
use crate::device_plugin::RESOURCE;
use crate::mutations::Mutation;
use crate::world::World;

/// How long it waits for the plugin of its former process.
const RESTORE_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

/// A process instance of device-manager.
pub struct DeviceManagerInstance {
    /// The number of the instance.
    pub incarnation: u32,
    /// Until then it waits for the plugin of the former process, and answers nothing.
    pub settles_at: Option<Timestamp>,
    inventory: DeviceInventory,
    allocations: DeviceAllocations,
    /// The process of the plugin that it is connected to.
    connection: Option<u32>,
    /// The last list of that process.
    listed: Option<BTreeMap<String, Device>>,
    requests: VecDeque<DeviceCall>,
    /// What is being done for pods, in order; the first one is under way.
    jobs: BTreeMap<String, VecDeque<DeviceJob>>,
}

/// A request of the coordinator.
struct DeviceCall {
    uid: String,
    /// The container to prepare; `None` at the admission.
    container: Option<String>,
    request: PodDeviceRequest,
    response: oneshot::Sender<StepOutcome>,
}

impl DeviceManagerInstance {
    /// Ids of the devices that are allocated to a container.
    pub fn allocated(&self, uid: &str, container: &str) -> BTreeSet<String> {
        let key = key(uid, container);
        self.allocations.container_devices(&key).unwrap_or_default()
    }

    fn job(&mut self, uid: &str) -> Option<&mut DeviceJob> {
        self.jobs.get_mut(uid).and_then(VecDeque::front_mut)
    }
}

fn key(uid: &str, container: &str) -> AllocationKey {
    AllocationKey {
        pod_uid: uid.to_owned(),
        container: container.to_owned(),
        resource: RESOURCE.to_owned(),
    }
}

/// Starts an instance with the stored allocations. The plugin has registered before.
pub fn start(world: &mut World, incarnation: u32) {
    let mut inventory = DeviceInventory::default();
    inventory.restore(RESOURCE, true, world.now);
    let settles_at = world.now.checked_add(RESTORE_TIMEOUT).ok();
    let mut allocations = world.disk.devices.clone();
    let pods: Vec<String> = allocations.pods().map(str::to_owned).collect();
    for uid in pods {
        allocations.on_request(&uid, since_epoch(world.now));
    }
    world.devices = Some(DeviceManagerInstance {
        incarnation,
        settles_at,
        inventory,
        allocations,
        connection: None,
        listed: None,
        requests: VecDeque::new(),
        jobs: BTreeMap::new(),
    });
}

/// It no longer waits for the plugin.
pub fn settle(world: &mut World) {
    if let Some(node) = &mut world.devices {
        node.settles_at = None;
    }
}

/// Sends the request of a step, unless device-manager does not run.
pub fn send(world: &mut World, context: &StepContext) -> Option<oneshot::Receiver<StepOutcome>> {
    let (response, answer) = oneshot::channel();
    let mut request = context.device_request.clone()?;
    if world.mutation == Some(Mutation::ActivePodsForgotten) {
        request.active_pod_uids = vec![context.pod.uid.clone()];
    }
    let container = match &context.step {
        Step::PrepareDevices { container } => Some(container.clone()),
        _ => None,
    };
    request.active_as_of = since_epoch(world.now);
    let node = world.devices.as_mut()?;
    node.requests.push_back(DeviceCall {
        uid: context.pod.uid.clone(),
        container,
        request,
        response,
    });
    Some(answer)
}

/// The number of its inputs: the plugin, and requests.
pub const LINKS: usize = 2;

/// Receives from one of its inputs.
pub fn listen(world: &mut World, which: usize) -> bool {
    match which {
        0 => hear_plugin(world),
        _ => receive_request(world),
    }
}

/// Follows the plugin: connects, receives its list, or loses it.
fn hear_plugin(world: &mut World) -> bool {
    let World {
        devices: Some(node),
        plugin,
        rng,
        now,
        ..
    } = world
    else {
        return false;
    };
    // A plugin that registers again may do so before the end of its former connection is seen.
    let replaces = plugin.instance.is_some() && rng.percent(50);
    if node.connection != plugin.instance && (node.connection.is_none() || replaces) {
        node.inventory.connect(RESOURCE, plugin.options);
        (node.connection, node.listed) = (plugin.instance, None);
        return true;
    }
    if node.connection != plugin.instance {
        node.inventory.disconnect(RESOURCE, *now);
        (node.connection, node.listed) = (None, None);
    } else if node.connection.is_some() && node.listed.as_ref() != Some(&plugin.devices) {
        node.inventory.list(RESOURCE, plugin.devices.clone());
        node.listed = Some(plugin.devices.clone());
    } else if node.connection.is_some() || node.settles_at.is_none() {
        return false;
    }
    node.settles_at = None;
    let _ = save(world);
    true
}

/// Stores the allocations in the form of the checkpoint.
fn save(world: &mut World) -> Result<(), String> {
    let fails = !world.quiescing && world.rng.percent(3);
    if let Some(node) = world.devices.as_ref().filter(|_| !fails) {
        world.disk.devices = fuzzing::publish(&node.inventory, &node.allocations);
        return Ok(());
    }
    Err("failed to write checkpoint file".to_owned())
}

/// The simulated time in place of that since the machine's boot.
fn since_epoch(now: Timestamp) -> Duration {
    let since = now.duration_since(Timestamp::UNIX_EPOCH);
    Duration::try_from(since).unwrap_or_default()
}

/// Receives one of the requests, not always the oldest: they may overtake each other.
fn receive_request(world: &mut World) -> bool {
    let World {
        devices: Some(node),
        rng,
        now,
        ..
    } = world
    else {
        return false;
    };
    if node.settles_at.is_some() {
        return false;
    }
    if node.requests.is_empty() {
        return false;
    }
    let next = if rng.percent(50) {
        0
    } else {
        rng.below(node.requests.len())
    };
    let Some(call) = node.requests.remove(next) else {
        return false;
    };
    let uid = call.uid.clone();
    node.allocations.on_request(&uid, since_epoch(*now));
    for freed in free_inactive(node, &call) {
        world.record(|| format!("devices: {freed} loses its devices to {uid}"));
    }
    if let Some(node) = &mut world.devices {
        let job = jobs::job(node, call);
        let jobs = node.jobs.entry(uid.clone()).or_default();
        jobs.push_back(job);
        if jobs.len() == 1 {
            jobs::advance(world, &uid);
        }
    }
    true
}

/// Forgets the devices of pods that have ended, once all pods are known.
fn free_inactive(node: &mut DeviceManagerInstance, call: &DeviceCall) -> Vec<String> {
    if !call.request.pods_synced {
        return Vec::new();
    }
    let active = call.request.active_pod_uids.iter().chain([&call.uid]);
    let active = active.chain(node.jobs.keys()).map(String::as_str);
    let as_of = call.request.active_as_of;
    node.allocations.retain_pods(&active.collect(), as_of)
}
