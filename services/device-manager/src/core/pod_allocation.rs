//! The allocation of a pod's devices, container by container. It goes as far as it can without a
//! plugin, and continues with the plugin's answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::core::allocation::{
    self, AllocationError, AllocationPlan, DeviceRequest, PreferenceRequest,
};
use crate::core::allocations::{AllocationKey, DeviceAllocations};
use crate::core::inventory::DeviceInventory;

/// A container that requests devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestingContainer {
    /// Its name.
    pub name: String,
    /// Numbers of devices by resource.
    pub limits: BTreeMap<String, u64>,
    /// It ends before the next container starts, which may have its devices.
    pub releases_devices: bool,
    /// It runs.
    pub running: bool,
}

/// What the allocation needs next.
#[derive(Clone, Debug, PartialEq)]
pub enum AllocationStep {
    /// The plugin's choice.
    Prefer(AllocationKey, PreferenceRequest),
    /// The plugin's preparation of devices, which are reserved.
    Allocate(AllocationKey, BTreeSet<String>),
    /// All containers have their devices.
    Done,
}

/// The allocation of a pod's devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodDeviceAllocation {
    pod_uid: String,
    containers: VecDeque<RequestingContainer>,
    /// Limits of the first container that are still to be allocated.
    left: VecDeque<(String, u64)>,
    /// Whether `left` is that of the first container.
    started: bool,
    /// Devices of containers that have ended when later ones start, by resource.
    reusable: BTreeMap<String, BTreeSet<String>>,
    /// What the plugin has chosen for the first of `left`.
    preferred: Option<Vec<String>>,
}

impl PodDeviceAllocation {
    /// Allocates for these containers in order.
    pub fn new(pod_uid: &str, containers: Vec<RequestingContainer>) -> Self {
        PodDeviceAllocation {
            pod_uid: pod_uid.to_owned(),
            containers: containers.into(),
            ..PodDeviceAllocation::default()
        }
    }

    /// Goes on until a plugin is needed.
    ///
    /// # Errors
    /// A container cannot have its devices.
    pub fn advance(
        &mut self,
        inventory: &DeviceInventory,
        allocations: &mut DeviceAllocations,
    ) -> Result<AllocationStep, AllocationError> {
        while let Some(container) = self.containers.front().cloned() {
            if !std::mem::replace(&mut self.started, true) {
                self.left = container.limits.clone().into_iter().collect();
            }
            while let Some((resource, count)) = self.left.front().cloned() {
                let key = self.key(&container.name, &resource);
                match self.plan(&container, &key, count, inventory, allocations)? {
                    AllocationPlan::Nothing => self.on_allocated(),
                    AllocationPlan::AskPlugin(request) => {
                        return Ok(AllocationStep::Prefer(key, request));
                    }
                    AllocationPlan::Allocate(devices) => {
                        allocations.reserve(key.clone(), devices.clone());
                        return Ok(AllocationStep::Allocate(key, devices));
                    }
                }
            }
            self.end_container(&container, allocations);
        }
        Ok(AllocationStep::Done)
    }

    fn plan(
        &self,
        container: &RequestingContainer,
        key: &AllocationKey,
        count: u64,
        inventory: &DeviceInventory,
        allocations: &DeviceAllocations,
    ) -> Result<AllocationPlan, AllocationError> {
        let resource = &key.resource;
        // An extended resource that no plugin has ever registered is somebody else's.
        if !inventory.is_registered(resource) && !allocations.is_allocated(resource) {
            return Ok(AllocationPlan::Nothing);
        }
        let request = DeviceRequest {
            key: key.clone(),
            count,
            running: container.running,
            reusable: self.reusable.get(resource).cloned().unwrap_or_default(),
        };
        allocation::plan_allocation(inventory, allocations, &request, self.preferred.as_deref())
    }

    /// Continues with what the plugin has chosen.
    pub fn on_preferred(&mut self, devices: Vec<String>) {
        self.preferred = Some(devices);
    }

    /// Continues after the devices of the last step were allocated.
    pub fn on_allocated(&mut self) {
        self.left.pop_front();
        self.preferred = None;
    }

    fn end_container(&mut self, container: &RequestingContainer, allocations: &DeviceAllocations) {
        for resource in container.limits.keys() {
            let key = self.key(&container.name, resource);
            let devices = allocations.container_devices(&key).unwrap_or_default();
            let reusable = self.reusable.entry(resource.clone()).or_default();
            if container.releases_devices {
                reusable.extend(devices);
            } else {
                reusable.retain(|id| !devices.contains(id));
            }
        }
        self.containers.pop_front();
        self.started = false;
    }

    fn key(&self, container: &str, resource: &str) -> AllocationKey {
        AllocationKey {
            pod_uid: self.pod_uid.clone(),
            container: container.to_owned(),
            resource: resource.to_owned(),
        }
    }
}
