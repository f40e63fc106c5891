//! Which containers have which devices.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::core::run_options::ContainerRunOptions;

/// Stands for the NUMA nodes of a device without topology, as in upstream's checkpoint.
pub const NO_NUMA_NODE: i64 = -1;

/// The devices of one resource that a container has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatedResource {
    /// Ids of devices by NUMA node. A device of several nodes is listed with each.
    pub devices: BTreeMap<i64, Vec<String>>,
    /// What the plugin has answered to the allocation.
    pub run_options: ContainerRunOptions,
}

impl AllocatedResource {
    /// Ids of the devices.
    pub fn ids(&self) -> BTreeSet<String> {
        self.devices.values().flatten().cloned().collect()
    }
}

/// The resources of a container by name.
pub type ContainerAllocation = BTreeMap<String, AllocatedResource>;

/// Names a container's share of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllocationKey {
    /// The pod's UID.
    pub pod_uid: String,
    /// The container's name.
    pub container: String,
    /// The resource's name.
    pub resource: String,
}

/// The devices of all containers, and those that plugins are being asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceAllocations {
    /// By pod UID and container name.
    pods: BTreeMap<String, BTreeMap<String, ContainerAllocation>>,
    reserved: BTreeMap<AllocationKey, BTreeSet<String>>,
    /// When devices were last requested for each pod, since the machine's boot.
    requested: BTreeMap<String, Duration>,
}

impl DeviceAllocations {
    /// Records what a container has.
    pub fn insert(&mut self, key: AllocationKey, allocated: AllocatedResource) {
        self.reserved.remove(&key);
        let containers = self.pods.entry(key.pod_uid).or_default();
        let resources = containers.entry(key.container).or_default();
        resources.insert(key.resource, allocated);
    }

    /// Keeps devices for a container while its plugin is asked.
    pub fn reserve(&mut self, key: AllocationKey, devices: BTreeSet<String>) {
        self.reserved.insert(key, devices);
    }

    /// Ends a reservation that has led to nothing.
    pub fn release(&mut self, key: &AllocationKey) {
        self.reserved.remove(key);
    }

    /// Records that devices are requested for a pod at this time since the machine's boot.
    pub fn on_request(&mut self, uid: &str, at: Duration) {
        self.requested.insert(uid.to_owned(), at);
    }

    /// Forgets the devices of pods that were not active at a time since the machine's boot. Those that were requested
    /// later stay: a request may be overtaken by one for a younger pod, which it does not list. Returns the forgotten
    /// pods.
    pub fn retain_pods(&mut self, active: &BTreeSet<&str>, as_of: Duration) -> Vec<String> {
        let requested = &mut self.requested;
        let ended = |uid: &str| {
            !active.contains(uid)
                && requested
                    .get(uid)
                    .is_none_or(|requested| *requested < as_of)
        };
        let inactive = self.pods.keys().filter(|uid| ended(uid));
        let inactive: Vec<String> = inactive.cloned().collect();
        for uid in &inactive {
            self.pods.remove(uid);
        }
        let pods = &self.pods;
        requested.retain(|uid, requested| *requested >= as_of || pods.contains_key(uid));
        inactive
    }

    /// Whether a pod has devices.
    pub fn has_pod(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// The containers of a pod with their devices.
    pub fn pod(&self, uid: &str) -> impl Iterator<Item = (&str, &ContainerAllocation)> {
        let containers = self.pods.get(uid).into_iter().flatten();
        containers.map(|(name, allocation)| (name.as_str(), allocation))
    }

    /// UIDs of the pods with devices.
    pub fn pods(&self) -> impl Iterator<Item = &str> {
        self.pods.keys().map(String::as_str)
    }

    /// The devices of a container.
    pub fn container(&self, uid: &str, container: &str) -> Option<&ContainerAllocation> {
        self.pods.get(uid)?.get(container)
    }

    /// Ids of a container's devices of a resource; `None` if it has none.
    pub fn container_devices(&self, key: &AllocationKey) -> Option<BTreeSet<String>> {
        let container = self.container(&key.pod_uid, &key.container)?;
        container.get(&key.resource).map(AllocatedResource::ids)
    }

    /// Whether a container has or gets devices of a resource.
    pub fn is_allocated(&self, resource: &str) -> bool {
        !self.in_use(resource).is_empty()
    }

    /// Ids of all devices of a resource that containers have or get.
    pub fn in_use(&self, resource: &str) -> BTreeSet<String> {
        let containers = self.pods.values().flat_map(BTreeMap::values);
        let allocated = containers.filter_map(|container| container.get(resource));
        let mut in_use: BTreeSet<String> = allocated.flat_map(AllocatedResource::ids).collect();
        let reserved = self.reserved.iter();
        let reserved = reserved.filter(|(key, _)| key.resource == resource);
        in_use.extend(reserved.flat_map(|(_, devices)| devices.iter().cloned()));
        in_use
    }

    /// Number of devices by resource that containers have or get.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let containers = self.pods.values().flat_map(BTreeMap::values);
        let allocated = containers.flat_map(BTreeMap::keys);
        let reserved = self.reserved.keys().map(|key| &key.resource);
        let resources: BTreeSet<&String> = allocated.chain(reserved).collect();
        let count = |resource: &String| (resource.clone(), self.in_use(resource).len());
        resources.into_iter().map(count).collect()
    }

    /// All shares in order.
    pub fn iter(&self) -> impl Iterator<Item = (AllocationKey, &AllocatedResource)> {
        self.pods.iter().flat_map(|(pod_uid, containers)| {
            containers.iter().flat_map(move |(container, resources)| {
                resources.iter().map(move |(resource, allocated)| {
                    let key = AllocationKey {
                        pod_uid: pod_uid.clone(),
                        container: container.clone(),
                        resource: resource.clone(),
                    };
                    (key, allocated)
                })
            })
        })
    }
}
