//! The devices that plugins offer.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// How long a resource keeps its capacity after its plugin has stopped, as upstream: the plugin may
/// come back.
pub const STOP_GRACE_PERIOD: SignedDuration = SignedDuration::from_mins(5);

/// A device of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Whether its plugin says that it can be used.
    pub healthy: bool,
    /// Ids of the NUMA nodes that it belongs to.
    pub numa_nodes: Vec<i64>,
}

/// What a plugin wants to be called for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// Before each start of a container.
    pub pre_start_required: bool,
    /// To choose among the available devices.
    pub preferred_allocation: bool,
}

/// Whether the plugin of a resource can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PluginState {
    Connected,
    /// Its devices are neither healthy nor retried; they count until the grace period has passed.
    Stopped(Timestamp),
    /// The grace period has passed: there is nothing to offer any more.
    Expired,
}

/// A resource that a plugin has registered.
#[derive(Clone, Debug, PartialEq)]
struct PluginResource {
    plugin: PluginState,
    /// What its plugin wanted last.
    options: PluginOptions,
    /// The devices by id, as the plugin listed them last.
    devices: BTreeMap<String, Device>,
    /// Whether the plugin has listed its devices, now or before a restart.
    listed: bool,
    /// Whether it has done so since it was stopped: before, nothing is known of their health.
    current: bool,
    /// Whether it has done so since the node booted.
    listed_since_boot: bool,
}

/// Number of devices of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// All of them.
    pub capacity: usize,
    /// The healthy ones, allocated or not.
    pub allocatable: usize,
}

/// All resources by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceInventory {
    resources: BTreeMap<String, PluginResource>,
}

impl DeviceInventory {
    /// A resource of a former process, whose plugin has not registered with this one yet.
    pub fn restore(&mut self, resource: &str, listed_since_boot: bool, now: Timestamp) {
        let restored = PluginResource {
            plugin: PluginState::Stopped(now),
            options: PluginOptions::default(),
            devices: BTreeMap::new(),
            listed: true,
            current: false,
            listed_since_boot,
        };
        self.resources.insert(resource.to_owned(), restored);
    }

    /// A plugin has registered.
    pub fn connect(&mut self, resource: &str, options: PluginOptions) {
        let new = PluginResource {
            plugin: PluginState::Connected,
            options,
            devices: BTreeMap::new(),
            listed: false,
            current: false,
            listed_since_boot: false,
        };
        let resource = self.resources.entry(resource.to_owned()).or_insert(new);
        match resource.plugin {
            PluginState::Connected => {}
            PluginState::Stopped(_) => resource.current = false,
            PluginState::Expired => {
                resource.devices.clear();
                resource.current = false;
            }
        }
        (resource.plugin, resource.options) = (PluginState::Connected, options);
    }

    /// A plugin has listed its devices.
    pub fn list(&mut self, resource: &str, devices: BTreeMap<String, Device>) {
        if let Some(resource) = self.resources.get_mut(resource) {
            resource.devices = devices;
            (resource.listed, resource.current) = (true, true);
            resource.listed_since_boot = true;
        }
    }

    /// A plugin can no longer be called: none of its devices is healthy until it registers again.
    pub fn disconnect(&mut self, resource: &str, now: Timestamp) {
        if let Some(resource) = self.resources.get_mut(resource)
            && resource.plugin == PluginState::Connected
        {
            resource.plugin = PluginState::Stopped(now);
        }
    }

    /// Takes the capacity of resources whose plugins have been stopped for long. Returns whether there
    /// were any.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let mut expired = false;
        for resource in self.resources.values_mut() {
            if resource.expires_at().is_some_and(|at| at <= now) {
                resource.plugin = PluginState::Expired;
                resource.listed = false;
                expired = true;
            }
        }
        expired
    }

    /// When the next resource expires.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.resources
            .values()
            .filter_map(PluginResource::expires_at)
            .min()
    }

    /// The numbers of devices by resource. What has expired is listed with none; what has just registered is not yet
    /// listed.
    pub fn counts(&self) -> impl Iterator<Item = (&str, DeviceCounts)> {
        let is_new = |resource: &PluginResource| {
            resource.plugin == PluginState::Connected && !resource.listed
        };
        let resources = self.resources.iter();
        resources
            .filter(move |(_, resource)| !is_new(resource))
            .map(|(name, resource)| (name.as_str(), resource.counts()))
    }

    /// Number of resources.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether a plugin has ever registered.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Whether a resource is known.
    pub fn contains(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    /// Names of the resources whose plugins have listed devices and have not expired.
    pub fn registered(&self) -> impl Iterator<Item = &str> {
        let listed = self
            .resources
            .iter()
            .filter(|(_, resource)| resource.listed);
        listed.map(|(name, _)| name.as_str())
    }

    /// Whether the plugin of a resource has listed devices and has not expired.
    pub fn is_registered(&self, resource: &str) -> bool {
        let resource = self.resources.get(resource);
        resource.is_some_and(|resource| resource.listed)
    }

    /// Whether the plugin of a resource has listed devices since the node booted.
    pub fn is_listed_since_boot(&self, resource: &str) -> bool {
        let resource = self.resources.get(resource);
        resource.is_some_and(|resource| resource.listed_since_boot)
    }

    /// Ids of the healthy devices of a resource.
    pub fn healthy(&self, resource: &str) -> BTreeSet<String> {
        let resource = self.resources.get(resource);
        let healthy = resource.into_iter().flat_map(PluginResource::healthy);
        healthy.cloned().collect()
    }

    /// A device, as its plugin listed it last.
    pub fn device(&self, resource: &str, id: &str) -> Option<&Device> {
        self.resources.get(resource)?.devices.get(id)
    }

    /// The options of a resource's plugin, as it told them last.
    pub fn options(&self, resource: &str) -> PluginOptions {
        let resource = self.resources.get(resource);
        resource.map_or_else(PluginOptions::default, |resource| resource.options)
    }
}

impl PluginResource {
    fn healthy(&self) -> impl Iterator<Item = &String> {
        let usable = self.plugin == PluginState::Connected && self.current;
        let devices = self.devices.iter();
        devices.filter_map(move |(id, device)| (usable && device.healthy).then_some(id))
    }

    fn counts(&self) -> DeviceCounts {
        match self.plugin {
            PluginState::Expired => DeviceCounts::default(),
            PluginState::Connected | PluginState::Stopped(_) => DeviceCounts {
                capacity: self.devices.len(),
                allocatable: self.healthy().count(),
            },
        }
    }

    fn expires_at(&self) -> Option<Timestamp> {
        match self.plugin {
            PluginState::Stopped(at) => at.checked_add(STOP_GRACE_PERIOD).ok(),
            PluginState::Connected | PluginState::Expired => None,
        }
    }
}
