//! Wire messages to domain types, and back.

use std::collections::BTreeMap;

use polylet_wire::device::v1 as wire;
use polylet_wire::deviceplugin::v1beta1 as plugin;

use crate::core::allocations::{ContainerAllocation, DeviceAllocations};
use crate::core::inventory::{Device, DeviceCounts, DeviceInventory, PluginOptions};
use crate::core::pod_allocation::RequestingContainer;
use crate::core::run_options::{ContainerRunOptions, DeviceNode, HostMount};

/// The health of devices that can be used.
const HEALTHY: &str = "Healthy";

/// What a plugin wants to be called for.
pub(crate) fn options(options: &plugin::DevicePluginOptions) -> PluginOptions {
    PluginOptions {
        pre_start_required: options.pre_start_required,
        preferred_allocation: options.get_preferred_allocation_available,
    }
}

/// The devices of a plugin by id.
pub(crate) fn devices(list: plugin::ListAndWatchResponse) -> BTreeMap<String, Device> {
    let device = |device: plugin::Device| {
        let topology = device.topology.unwrap_or_default();
        let numa_nodes = topology.nodes.iter().map(|node| node.id).collect();
        let healthy = device.health == HEALTHY;
        (
            device.id,
            Device {
                healthy,
                numa_nodes,
            },
        )
    };
    list.devices.into_iter().map(device).collect()
}

/// What a plugin has answered to an allocation.
pub(crate) fn run_options(response: plugin::ContainerAllocateResponse) -> ContainerRunOptions {
    let mount = |mount: plugin::Mount| HostMount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        read_only: mount.read_only,
    };
    let device = |device: plugin::DeviceSpec| DeviceNode {
        container_path: device.container_path,
        host_path: device.host_path,
        permissions: device.permissions,
    };
    let cdi = response.cdi_devices.into_iter();
    ContainerRunOptions {
        envs: response.envs.into_iter().collect(),
        mounts: response.mounts.into_iter().map(mount).collect(),
        devices: response.devices.into_iter().map(device).collect(),
        annotations: response.annotations.into_iter().collect(),
        cdi_devices: cdi.map(|device| device.name).collect(),
    }
}

/// The same as the plugin's answer, for the checkpoint.
pub(crate) fn allocate_response(
    options: &ContainerRunOptions,
) -> plugin::ContainerAllocateResponse {
    let options = options.clone();
    let mount = |mount: HostMount| plugin::Mount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        read_only: mount.read_only,
    };
    let device = |device: DeviceNode| plugin::DeviceSpec {
        container_path: device.container_path,
        host_path: device.host_path,
        permissions: device.permissions,
    };
    let cdi = options.cdi_devices.into_iter();
    plugin::ContainerAllocateResponse {
        envs: options.envs.into_iter().collect(),
        mounts: options.mounts.into_iter().map(mount).collect(),
        devices: options.devices.into_iter().map(device).collect(),
        annotations: options.annotations.into_iter().collect(),
        cdi_devices: cdi.map(|name| plugin::CdiDevice { name }).collect(),
    }
}

/// The same for the creation of a container.
pub(crate) fn prepared(options: ContainerRunOptions) -> wire::PrepareContainerResponse {
    let mount = |mount: HostMount| wire::DeviceMount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        read_only: mount.read_only,
    };
    let device = |device: DeviceNode| wire::DeviceNode {
        container_path: device.container_path,
        host_path: device.host_path,
        permissions: device.permissions,
    };
    wire::PrepareContainerResponse {
        error: String::new(),
        envs: options.envs.into_iter().collect(),
        mounts: options.mounts.into_iter().map(mount).collect(),
        devices: options.devices.into_iter().map(device).collect(),
        annotations: options.annotations.into_iter().collect(),
        cdi_devices: options.cdi_devices,
    }
}

/// Containers that request devices. Limits of zero request none.
pub(crate) fn containers(request: &wire::AllocateDevicesRequest) -> Vec<RequestingContainer> {
    let container = |container: &wire::ContainerDeviceRequest| {
        let limits = container.limits.iter().filter(|(_, count)| **count > 0);
        RequestingContainer {
            name: container.name.clone(),
            limits: limits.map(|(name, count)| (name.clone(), *count)).collect(),
            releases_devices: container.releases_devices,
            running: container.running,
        }
    };
    request.containers.iter().map(container).collect()
}

/// A resource as an item of the state stream.
pub(crate) fn resource(name: &str, counts: DeviceCounts) -> wire::DeviceResource {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    wire::DeviceResource {
        name: name.to_owned(),
        capacity: number(counts.capacity),
        allocatable: number(counts.allocatable),
    }
}

/// A pod's devices as an item of the state stream. As upstream, a device that is not listed counts
/// as healthy: its plugin has not registered again, or is gone.
pub(crate) fn pod_devices(
    inventory: &DeviceInventory,
    allocations: &DeviceAllocations,
    uid: &str,
) -> wire::PodDevices {
    let device = |resource: &str, id: String| {
        let known = inventory.device(resource, &id);
        wire::AllocatedDevice {
            healthy: known.is_none_or(|device| device.healthy),
            numa_nodes: known
                .map(|device| device.numa_nodes.clone())
                .unwrap_or_default(),
            id,
        }
    };
    let container = |(name, resources): (&str, &ContainerAllocation)| {
        let resources = resources
            .iter()
            .map(|(resource, allocated)| wire::ResourceDevices {
                resource: resource.clone(),
                devices: allocated
                    .ids()
                    .into_iter()
                    .map(|id| device(resource, id))
                    .collect(),
            });
        wire::ContainerDevices {
            name: name.to_owned(),
            resources: resources.collect(),
        }
    };
    wire::PodDevices {
        pod_uid: uid.to_owned(),
        containers: allocations.pod(uid).map(container).collect(),
    }
}
