//! The inputs of the event loop.

use polylet_wire::device::v1::{
    AllocateDevicesRequest, AllocateDevicesResponse, PrepareContainerRequest,
    PrepareContainerResponse,
};
use polylet_wire::deviceplugin::v1beta1::ContainerAllocateResponse;
use tokio::sync::oneshot;

use crate::plugin::calls::PluginCallError;
use crate::plugin::input::PluginInput;

/// Everything that can happen to this service.
pub(crate) enum Input {
    /// What a plugin does by itself.
    Plugin(PluginInput),
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

/// The answer of a plugin to a call for a container.
pub(crate) enum PluginAnswer {
    /// Devices that it prefers.
    Preferred(Result<Vec<String>, PluginCallError>),
    /// What the container needs to use its devices.
    Allocated(Result<Option<ContainerAllocateResponse>, PluginCallError>),
    /// The devices are prepared for the container's start.
    Prepared(Result<(), PluginCallError>),
}
