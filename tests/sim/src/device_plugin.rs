//! A device plugin: it may stop and start again, devices may become unhealthy, and calls may fail.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use polylet_device_manager::core::allocation::PreferenceRequest;
use polylet_device_manager::core::inventory::{Device, PluginOptions};
use polylet_device_manager::core::run_options::{ContainerRunOptions, DeviceNode};

use crate::rng::Rng;
use crate::world::World;

/// The plugin's resource.
pub const RESOURCE: &str = "sim.example/device";

/// The variable with the ids of a container's devices.
pub const VARIABLE: &str = "SIM_DEVICES";

const DEVICES: usize = 5;

/// How long the plugin is stopped at most. Below the time after which its resource expires: without a
/// Node object, nothing would keep out the pods that get no devices then.
const MAX_DOWNTIME: SignedDuration = SignedDuration::from_mins(3);

/// The device plugin.
#[derive(Debug)]
pub struct DevicePlugin {
    /// The number of its process, while it runs.
    pub instance: Option<u32>,
    /// What it wants to be called for.
    pub options: PluginOptions,
    /// Its devices by id.
    pub devices: BTreeMap<String, Device>,
    instances: u32,
    stopped_at: Timestamp,
}

impl DevicePlugin {
    /// Runs, with healthy devices.
    pub fn new(rng: &mut Rng) -> Self {
        let device = |n: usize| {
            let numa_nodes = match n % 3 {
                0 => vec![],
                1 => vec![0],
                _ => vec![0, 1],
            };
            let healthy = true;
            (
                format!("d{n}"),
                Device {
                    healthy,
                    numa_nodes,
                },
            )
        };
        DevicePlugin {
            instance: Some(0),
            options: options(rng),
            devices: (0..DEVICES).map(device).collect(),
            instances: 1,
            stopped_at: Timestamp::MIN,
        }
    }

    fn start(&mut self) {
        if self.instance.is_none() {
            self.instance = Some(self.instances);
            self.instances += 1;
        }
    }

    /// Runs, with all devices healthy.
    pub fn repair(&mut self) {
        self.start();
        for device in self.devices.values_mut() {
            device.healthy = true;
        }
    }
}

fn options(rng: &mut Rng) -> PluginOptions {
    PluginOptions {
        pre_start_required: rng.percent(50),
        preferred_allocation: rng.percent(50),
    }
}

/// A call of the plugin.
#[derive(Clone, Debug)]
pub enum PluginCall {
    /// `GetPreferredAllocation`.
    Prefer(PreferenceRequest),
    /// `Allocate`.
    Allocate(BTreeSet<String>),
    /// `PreStartContainer`.
    PreStart(BTreeSet<String>),
}

/// The response to a call of the plugin.
#[derive(Clone, Debug)]
pub enum PluginResponse {
    /// To [`PluginCall::Prefer`].
    Preferred(Result<Vec<String>, String>),
    /// To [`PluginCall::Allocate`].
    Allocated(Result<ContainerRunOptions, String>),
    /// To [`PluginCall::PreStart`].
    Prepared(Result<(), String>),
}

/// Executes a call of the process that the caller is connected to.
pub fn execute(world: &mut World, instance: Option<u32>, call: &PluginCall) -> PluginResponse {
    let fails = !world.quiescing && world.rng.percent(4);
    let result = if instance.is_none() || instance != world.plugin.instance {
        Err("the plugin has stopped".to_owned())
    } else if fails {
        Err("the plugin is broken".to_owned())
    } else {
        Ok(())
    };
    match call {
        PluginCall::Prefer(request) => {
            let available: Vec<String> = request.available.iter().cloned().collect();
            // It may repeat itself, and answer with too few.
            let mut pick = || world.rng.pick(&available).cloned();
            let chosen: Vec<String> = (0..request.count).filter_map(|_| pick()).collect();
            PluginResponse::Preferred(result.map(|()| chosen))
        }
        PluginCall::Allocate(devices) => {
            PluginResponse::Allocated(result.map(|()| run_options(devices)))
        }
        PluginCall::PreStart(_) => PluginResponse::Prepared(result),
    }
}

/// What a container needs to use these devices.
pub fn run_options(devices: &BTreeSet<String>) -> ContainerRunOptions {
    let ids: Vec<&str> = devices.iter().map(String::as_str).collect();
    let node = |id: &String| DeviceNode {
        container_path: format!("/dev/{id}"),
        host_path: format!("/dev/sim-{id}"),
        permissions: "rw".to_owned(),
    };
    ContainerRunOptions {
        envs: BTreeMap::from([(VARIABLE.to_owned(), ids.join(","))]),
        devices: devices.iter().map(node).collect(),
        ..ContainerRunOptions::default()
    }
}

/// Stops or starts the plugin, or changes the health of a device.
pub fn disturb(world: &mut World) {
    let now = world.now;
    match world.rng.below(4) {
        0 if world.plugin.instance.is_some() => {
            world.plugin.instance = None;
            world.plugin.stopped_at = now;
            world.record(|| "plugin: stops".to_owned());
        }
        0 | 1 => start(world),
        _ => {
            let ids: Vec<String> = world.plugin.devices.keys().cloned().collect();
            let id = world.rng.pick(&ids).cloned().unwrap_or_default();
            if let Some(device) = world.plugin.devices.get_mut(&id) {
                device.healthy = !device.healthy;
                let healthy = device.healthy;
                world.record(|| format!("plugin: {id} is healthy: {healthy}"));
            }
        }
    }
}

/// Starts the plugin before its resource expires.
pub fn restart_in_time(world: &mut World) {
    let stopped_for = world.now.duration_since(world.plugin.stopped_at);
    if world.plugin.instance.is_none() && stopped_for > MAX_DOWNTIME {
        start(world);
    }
}

/// Starts the plugin anew, also if it runs.
fn start(world: &mut World) {
    world.plugin.options = options(&mut world.rng);
    world.plugin.instance = None;
    world.plugin.start();
    world.record(|| "plugin: starts".to_owned());
}
