//! State owned by the event loop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::CancellationToken;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::device::v1::{AllocateDevicesResponse, PrepareContainerResponse};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::checkpoint;
use crate::core::allocations::{AllocationKey, DeviceAllocations};
use crate::core::checkpoint::DeviceCheckpoint;
use crate::core::inventory::DeviceInventory;
use crate::core::plugin_records::PluginRecords;
use crate::core::pod_allocation::PodDeviceAllocation;
use crate::plugin::calls::PluginClient;

/// The state of the event loop.
#[derive(Default)]
pub(crate) struct DeviceState {
    pub(crate) inventory: DeviceInventory,
    pub(crate) allocations: DeviceAllocations,
    /// The plugins that can be called, by resource.
    pub(crate) plugins: BTreeMap<String, ConnectedPlugin>,
    /// Connections whose plugins have not answered yet, by id.
    pub(crate) connecting: BTreeMap<u64, PendingConnection>,
    /// What the next process has to know of plugins.
    pub(crate) records: PluginRecords,
    /// The id of the next connection.
    pub(crate) next_connection: u64,
    /// Resources whose plugins this process connects to by itself, and has not heard of.
    pub(crate) unsettled: BTreeSet<String>,
    /// What is being done for pods, in order; the first one is under way.
    pub(crate) jobs: BTreeMap<String, VecDeque<PodJob>>,
}

/// A connection whose plugin has not answered yet.
pub(crate) struct PendingConnection {
    pub(crate) resource: String,
    pub(crate) socket: PathBuf,
    pub(crate) closed: CancellationToken,
    /// Whether the plugin has registered with this process.
    pub(crate) registered: bool,
}

/// A plugin that can be called.
pub(crate) struct ConnectedPlugin {
    pub(crate) id: u64,
    pub(crate) client: PluginClient,
    pub(crate) socket: PathBuf,
    pub(crate) closed: CancellationToken,
    /// Whether it has registered with this process.
    pub(crate) registered: bool,
}

/// What is done for a pod.
pub(crate) struct PodJob {
    pub(crate) pod: PodRef,
    pub(crate) cause: Option<Cause>,
    pub(crate) allocation: PodDeviceAllocation,
    pub(crate) purpose: JobPurpose,
    /// The devices that a plugin is preparing, and since when.
    pub(crate) allocating: Option<(AllocationKey, BTreeSet<String>, Instant)>,
}

/// Why devices are allocated, and where the result goes.
pub(crate) enum JobPurpose {
    /// The pod is being admitted.
    Admission(oneshot::Sender<AllocateDevicesResponse>),
    /// A container is about to be created.
    Start {
        container: String,
        /// Resources whose plugins have not prepared the start yet.
        unprepared: VecDeque<String>,
        response: oneshot::Sender<PrepareContainerResponse>,
    },
}

impl DeviceState {
    /// The state of a former process.
    pub(crate) fn restore(
        checkpoint: &DeviceCheckpoint,
        records: PluginRecords,
        now: Timestamp,
        since_boot: Duration,
    ) -> Self {
        let mut inventory = DeviceInventory::default();
        let registered = checkpoint.registered_devices.iter().flatten();
        let registered = registered.map(|(resource, _)| resource);
        let listed: BTreeSet<&String> = registered.chain(&records.listed).collect();
        for resource in listed {
            inventory.restore(resource, records.listed.contains(resource), now);
        }
        let mut allocations = checkpoint::allocations_of(checkpoint);
        let pods: Vec<String> = allocations.pods().map(str::to_owned).collect();
        for uid in pods {
            allocations.on_request(&uid, since_boot);
        }
        DeviceState {
            inventory,
            allocations,
            unsettled: records.sockets.keys().cloned().collect(),
            records,
            ..DeviceState::default()
        }
    }

    /// Whether the plugins of the former process have listed their devices again.
    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// The number of plugins that have registered and not answered yet.
    pub(crate) fn registering(&self) -> usize {
        let connecting = self.connecting.values();
        connecting.filter(|pending| pending.registered).count()
    }

    /// Ends the connections of this process's own accord that a registration overtakes: those for the
    /// resource, and those to the socket, where another plugin than the former process's listens now.
    /// Returns whether devices are no longer healthy by that.
    pub(crate) fn end_overtaken(&mut self, resource: &str, socket: &Path, now: Timestamp) -> bool {
        let unsettled = &mut self.unsettled;
        self.connecting.retain(|_, pending| {
            let is_same = pending.resource == resource;
            if pending.registered || !(is_same || pending.socket == socket) {
                return true;
            }
            pending.closed.cancel();
            if !is_same {
                unsettled.remove(&pending.resource);
            }
            false
        });
        let (inventory, before) = (&mut self.inventory, self.plugins.len());
        self.plugins.retain(|name, plugin| {
            if plugin.registered || plugin.socket != socket {
                return true;
            }
            plugin.closed.cancel();
            unsettled.remove(name);
            inventory.disconnect(name, now);
            false
        });
        self.plugins.len() < before
    }

    /// Whether a resource is one of plugins.
    pub(crate) fn is_device_resource(&self, resource: &str) -> bool {
        self.inventory.is_registered(resource) || self.allocations.is_allocated(resource)
    }

    /// The devices that are allocated to all pods, if this one has any.
    pub(crate) fn counts_for(&self, pod_uid: &str) -> BTreeMap<String, u64> {
        if !self.allocations.has_pod(pod_uid) {
            return BTreeMap::new();
        }
        let counts = self.allocations.counts().into_iter();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        counts
            .map(|(resource, count)| (resource, number(count)))
            .collect()
    }
}
