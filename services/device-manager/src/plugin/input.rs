//! What plugins do by themselves.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::calls::PluginClient;
use crate::core::inventory::{Device, PluginOptions};

/// What a plugin has done.
pub(crate) enum PluginInput {
    /// It wants to register.
    Register(PluginRegistration),
    /// Something happened to the connection `id` to a resource's plugin.
    Event {
        resource: String,
        id: u64,
        event: PluginEvent,
    },
}

/// What happens to a connection.
pub(crate) enum PluginEvent {
    /// The plugin has told its options.
    Connected {
        options: PluginOptions,
        client: PluginClient,
        /// Where the result goes when the plugin has registered itself.
        response: Option<oneshot::Sender<Result<(), String>>>,
    },
    /// The plugin has listed its devices.
    Listed(BTreeMap<String, Device>),
    /// The connection is over.
    Disconnected,
}

/// A plugin that wants to register.
#[derive(Debug)]
pub(crate) struct PluginRegistration {
    /// The version of the API that it speaks.
    pub(crate) version: String,
    /// The resource that it offers.
    pub(crate) resource: String,
    /// The name of its socket.
    pub(crate) endpoint: String,
    /// Where the result goes: why it is refused, or nothing.
    pub(crate) response: oneshot::Sender<Result<(), String>>,
}
