//! device-manager: arbitrary lists and answers of device plugins, and requests of pods.

use std::path::Path;
use std::time::Duration;

use polylet_device_manager::core::allocations::{AllocatedResource, DeviceAllocations};
use polylet_device_manager::core::inventory::{DeviceInventory, STOP_GRACE_PERIOD};
use polylet_device_manager::core::pod_allocation::{AllocationStep, PodDeviceAllocation};
use polylet_device_manager::core::run_options::ContainerRunOptions;
use polylet_device_manager::core::{allocation, registration};
use polylet_device_manager::fuzzing;
use polylet_wire::device::v1::AllocateDevicesRequest;
use polylet_wire::deviceplugin::v1beta1::{ContainerAllocateResponse, RegisterRequest};

use crate::input::{Frame, frames};
use crate::targets::manifests::now;

/// The plugins and pods as the frames describe them.
#[derive(Default)]
struct FuzzedPlugins {
    inventory: DeviceInventory,
    allocations: DeviceAllocations,
    /// The resource of the last registration.
    resource: String,
    /// What plugins answer to allocations.
    answer: ContainerRunOptions,
    /// What they prefer.
    preferred: Vec<String>,
}

/// Registers plugins and allocates devices with the messages of the frames.
pub(in crate::targets) fn run(data: &[u8]) {
    let mut plugins = FuzzedPlugins::default();
    for frame in frames(data).iter().take(64) {
        plugins.handle(frame);
    }
    let restored = fuzzing::publish(&plugins.inventory, &plugins.allocations);
    let stored: Vec<_> = plugins.allocations.iter().collect();
    assert!(
        restored.iter().eq(stored),
        "the checkpoint lost an allocation"
    );
}

impl FuzzedPlugins {
    fn handle(&mut self, frame: &Frame<'_>) {
        match frame.select(6) {
            0 => {
                if let Some(request) = frame.message() {
                    self.register(&request);
                }
            }
            1 => {
                if let Some(list) = frame.message() {
                    self.inventory.list(&self.resource, fuzzing::devices(list));
                }
            }
            2 => {
                if let Some(answer) = frame.message::<ContainerAllocateResponse>() {
                    self.preferred = answer.envs.keys().cloned().collect();
                    self.answer = fuzzing::run_options(answer);
                }
            }
            3 => {
                if let Some(request) = frame.message() {
                    self.allocate(&request);
                }
            }
            4 => self.inventory.disconnect(&self.resource, now()),
            _ => {
                if let Ok(later) = now().checked_add(STOP_GRACE_PERIOD) {
                    self.inventory.expire(later);
                }
            }
        }
    }

    fn register(&mut self, request: &RegisterRequest) {
        let socket = registration::check(
            Path::new("/plugins"),
            &request.version,
            &request.resource_name,
            &request.endpoint,
            self.inventory.len(),
            self.inventory.contains(&request.resource_name),
        );
        if let Ok(socket) = socket {
            assert!(socket.starts_with("/plugins"), "{}", socket.display());
            self.resource.clone_from(&request.resource_name);
            let options = request.options.unwrap_or_default();
            self.inventory
                .connect(&self.resource, fuzzing::options(&options));
        }
    }

    fn allocate(&mut self, request: &AllocateDevicesRequest) {
        let pod = request.r#ref.clone().unwrap_or_default();
        self.allocations.on_request(&pod.uid, Duration::ZERO);
        if request.pods_synced {
            let active = request.active_pod_uids.iter().map(String::as_str);
            let as_of = Duration::from_nanos(request.active_as_of);
            self.allocations.retain_pods(&active.collect(), as_of);
        }
        let mut allocation = PodDeviceAllocation::new(&pod.uid, fuzzing::containers(request));
        while let Ok(step) = allocation.advance(&self.inventory, &mut self.allocations) {
            match step {
                AllocationStep::Done => break,
                AllocationStep::Prefer(..) => allocation.on_preferred(self.preferred.clone()),
                AllocationStep::Allocate(key, devices) => {
                    let allocated = AllocatedResource {
                        devices: allocation::by_numa_node(&self.inventory, &key.resource, &devices),
                        run_options: self.answer.clone(),
                    };
                    self.allocations.insert(key, allocated);
                    allocation.on_allocated();
                }
            }
        }
    }
}
