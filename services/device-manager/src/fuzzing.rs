//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use polylet_wire::device::v1 as wire;
use polylet_wire::deviceplugin::v1beta1 as plugin;

use crate::checkpoint::{self, DeviceCheckpointFile};
use crate::convert;
use crate::core::allocations::DeviceAllocations;
use crate::core::inventory::{Device, DeviceInventory, PluginOptions};
use crate::core::pod_allocation::RequestingContainer;
use crate::core::run_options::ContainerRunOptions;
use crate::plugin_files::PluginFiles;
use crate::state::DeviceState;

/// The devices of a plugin's list.
pub fn devices(list: plugin::ListAndWatchResponse) -> BTreeMap<String, Device> {
    convert::devices(list)
}

/// What a plugin wants to be called for.
pub fn options(options: &plugin::DevicePluginOptions) -> PluginOptions {
    convert::options(options)
}

/// A plugin's answer to an allocation.
pub fn run_options(response: plugin::ContainerAllocateResponse) -> ContainerRunOptions {
    convert::run_options(response)
}

/// The containers of a request.
pub fn containers(request: &wire::AllocateDevicesRequest) -> Vec<RequestingContainer> {
    convert::containers(request)
}

/// What the service publishes and stores of this state, which is restored from it.
pub fn publish(inventory: &DeviceInventory, allocations: &DeviceAllocations) -> DeviceAllocations {
    for uid in allocations.pods() {
        convert::pod_devices(inventory, allocations, uid);
    }
    for (name, counts) in inventory.counts() {
        convert::resource(name, counts);
    }
    checkpoint::allocations_of(&checkpoint::checkpoint_of(inventory, allocations))
}

/// Loads the state files of the service in this directory. Returns whether there was a plugin.
pub fn state_files(dir: &Path) -> bool {
    let restored = PluginFiles::restore(dir).map(|(_, plugins)| plugins);
    let plugins = restored.unwrap_or_default();
    let has_plugins = !plugins.is_empty();
    let checkpoint = DeviceCheckpointFile::new(dir).restore();
    let state = DeviceState::restore(&checkpoint, plugins, Timestamp::UNIX_EPOCH, Duration::ZERO);
    publish(&state.inventory, &state.allocations);
    has_plugins
}
