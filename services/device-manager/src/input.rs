//! The inputs of the event loop.

use std::collections::BTreeMap;

use polylet_wire::device::v1::{
    AllocateDevicesRequest, AllocateDevicesResponse, PrepareContainerRequest,
    PrepareContainerResponse,
};
use polylet_wire::deviceplugin::v1beta1::ContainerAllocateResponse;
use tokio::sync::oneshot;

use crate::core::inventory::{Device, PluginOptions};
use crate::plugin::calls::{PluginCallError, PluginClient};
use crate::plugin::registration::PluginRegistration;

/// Everything that can happen to this service.
pub(crate) enum Input {
    /// A plugin wants to register.
    Register(PluginRegistration),
    /// Something happened to the connection `id` to a resource's plugin.
    Plugin {
        resource: String,
        id: u64,
        event: PluginEvent,
    },
    /// A call of `AllocateDevices`.
    Allocate(
        AllocateDevicesRequest,
        oneshot::Sender<AllocateDevicesResponse>,
    ),
    /// A call of `PrepareContainer`.
    Prepare(
        PrepareContainerRequest,
        oneshot::Sender<PrepareContainerResponse>,
    ),
    /// The plugin that a pod's job waits for has answered.
    PluginAnswer(String, PluginAnswer),
    /// A resource whose plugin has stopped may have expired.
    ExpiryTimer,
    /// Plugins of the former process had their time to list their devices.
    RestoreTimer,
}

/// What happens to a connection.
pub(crate) enum PluginEvent {
    /// The plugin has told its options.
    Connected(PluginOptions, PluginClient),
    /// The plugin has listed its devices.
    Listed(BTreeMap<String, Device>),
    /// The connection is over.
    Disconnected,
}

/// The answer of a plugin to a call for a container.
pub(crate) enum PluginAnswer {
    /// Devices that it prefers.
    Preferred(Result<Vec<String>, PluginCallError>),
    /// What the container needs to use its devices.
    Allocated(Result<Option<ContainerAllocateResponse>, PluginCallError>),
    /// The devices are prepared for the container's start.
    Prepared(Result<(), PluginCallError>),
}
