//! Which devices a container gets.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::core::allocations::{
    AllocationKey, ContainerAllocation, DeviceAllocations, NO_NUMA_NODE,
};
use crate::core::inventory::DeviceInventory;

/// Why a container cannot have its devices, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllocationError {
    /// It has another number of devices than it requests.
    #[error(
        "pod {:?} container {:?} changed request for resource {:?} from {allocated} to {requested}",
        key.pod_uid, key.container, key.resource
    )]
    Changed {
        /// The container and resource.
        key: Box<AllocationKey>,
        /// The number that it has.
        allocated: usize,
        /// The number that it requests.
        requested: u64,
    },
    /// The plugin has not registered since the node booted, or is gone for good.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// No device can be used.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    /// A device that the container has cannot be used any more.
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    AllocatedUnhealthy(String),
    /// Other containers have the devices.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    TooFew {
        /// The resource.
        resource: String,
        /// The missing number.
        requested: usize,
        /// The number of devices that are left.
        available: usize,
    },
}

/// What a container requests of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceRequest {
    /// The container and the resource.
    pub key: AllocationKey,
    /// The number of devices.
    pub count: u64,
    /// The container runs: it has its devices, whatever is known of them.
    pub running: bool,
    /// Devices of the pod's earlier containers, which do not run any more when this one does.
    pub reusable: BTreeSet<String>,
}

/// What has to be done for a request.
#[derive(Clone, Debug, PartialEq)]
pub enum AllocationPlan {
    /// The container has its devices.
    Nothing,
    /// It gets these, which plugins have to prepare.
    Allocate(BTreeSet<String>),
    /// Its plugin chooses first.
    AskPlugin(PreferenceRequest),
}

/// Among what a plugin chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferenceRequest {
    /// Devices that can be chosen, those of `required` included.
    pub available: BTreeSet<String>,
    /// Devices that are chosen already.
    pub required: BTreeSet<String>,
    /// Number of devices to choose, those of `required` included.
    pub count: u64,
}

/// Decides on a request. `preferred` has what the plugin has chosen, if it was asked.
///
/// # Errors
/// The container cannot have the devices.
pub fn plan_allocation(
    inventory: &DeviceInventory,
    allocations: &DeviceAllocations,
    request: &DeviceRequest,
    preferred: Option<&[String]>,
) -> Result<AllocationPlan, AllocationError> {
    let resource = &request.key.resource;
    let allocated = allocations.container_devices(&request.key);
    if let Some(allocated) = &allocated
        && u64::try_from(allocated.len()) != Ok(request.count)
    {
        return Err(AllocationError::Changed {
            key: Box::new(request.key.clone()),
            allocated: allocated.len(),
            requested: request.count,
        });
    }
    if request.running {
        return Ok(AllocationPlan::Nothing);
    }
    if !inventory.is_registered(resource) {
        return Err(AllocationError::Unregistered(resource.clone()));
    }
    let healthy = inventory.healthy(resource);
    if healthy.is_empty() {
        return Err(AllocationError::NoneHealthy(resource.clone()));
    }
    if let Some(allocated) = allocated {
        return if allocated.is_subset(&healthy) {
            Ok(AllocationPlan::Nothing)
        } else {
            Err(AllocationError::AllocatedUnhealthy(resource.clone()))
        };
    }
    choose(inventory, allocations, request, preferred, &healthy)
}

/// Reusable devices first, then those that the plugin prefers, then any.
fn choose(
    inventory: &DeviceInventory,
    allocations: &DeviceAllocations,
    request: &DeviceRequest,
    preferred: Option<&[String]>,
    healthy: &BTreeSet<String>,
) -> Result<AllocationPlan, AllocationError> {
    let resource = &request.key.resource;
    let count = usize::try_from(request.count).unwrap_or(usize::MAX);
    let mut chosen: BTreeSet<String> = request.reusable.iter().take(count).cloned().collect();
    let missing = count - chosen.len();
    if missing == 0 {
        return Ok(plan_of(chosen));
    }
    let in_use = allocations.in_use(resource);
    let available: BTreeSet<String> = healthy.difference(&in_use).cloned().collect();
    if available.len() < missing {
        return Err(AllocationError::TooFew {
            resource: resource.clone(),
            requested: missing,
            available: available.len(),
        });
    }
    let options = inventory.options(resource);
    if options.preferred_allocation && preferred.is_none() {
        return Ok(AllocationPlan::AskPlugin(PreferenceRequest {
            available: available.union(&chosen).cloned().collect(),
            required: chosen,
            count: request.count,
        }));
    }
    let preferred = preferred.unwrap_or_default().iter();
    let preferred = preferred.filter(|id| available.contains(*id));
    for id in preferred.chain(&available) {
        if chosen.len() == count {
            break;
        }
        chosen.insert(id.clone());
    }
    Ok(plan_of(chosen))
}

/// A request for no devices needs nothing.
fn plan_of(chosen: BTreeSet<String>) -> AllocationPlan {
    if chosen.is_empty() {
        AllocationPlan::Nothing
    } else {
        AllocationPlan::Allocate(chosen)
    }
}

/// Checks that a container may start with the devices that it has: their plugins have listed devices since
/// the node booted. Before, the devices may not be set up. Upstream fails the pod then, which here
/// starts when its plugin does.
///
/// # Errors
/// It has to wait.
pub fn check_start(
    inventory: &DeviceInventory,
    allocated: Option<&ContainerAllocation>,
) -> Result<(), AllocationError> {
    let mut resources = allocated.into_iter().flat_map(BTreeMap::keys);
    let missing = resources.find(|resource| !inventory.is_listed_since_boot(resource));
    missing.map_or(Ok(()), |resource| {
        Err(AllocationError::NoneHealthy(resource.clone()))
    })
}

/// Devices by NUMA node, as they are stored.
pub fn by_numa_node(
    inventory: &DeviceInventory,
    resource: &str,
    devices: &BTreeSet<String>,
) -> BTreeMap<i64, Vec<String>> {
    let mut by_node: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for id in devices {
        let device = inventory.device(resource, id);
        let nodes = device.map_or(&[][..], |device| &device.numa_nodes[..]);
        let nodes = if nodes.is_empty() {
            &[NO_NUMA_NODE]
        } else {
            nodes
        };
        for node in nodes {
            by_node.entry(*node).or_default().push(id.clone());
        }
    }
    by_node
}
