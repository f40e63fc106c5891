//! Registrations of plugins, and what happens to connections to them.

use std::path::PathBuf;

use jiff::Timestamp;
use polylet_kit::{CancellationToken, report};
use tokio::sync::oneshot;

use super::EventLoop;
use crate::core::registration;
use crate::input::PluginEvent;
use crate::metrics;
use crate::plugin::connection::PluginConnection;
use crate::plugin::registration::PluginRegistration;
use crate::state::ConnectedPlugin;

impl EventLoop {
    pub(super) fn register(&mut self, registration: PluginRegistration) {
        let PluginRegistration {
            version,
            resource,
            endpoint,
            response,
        } = registration;
        let inventory = &self.state.inventory;
        let is_known = inventory.contains(&resource);
        let checked = registration::check(
            &self.config.directory,
            &version,
            &resource,
            &endpoint,
            inventory.len(),
            is_known,
        );
        match checked {
            Ok(socket) => {
                metrics::count_registration(&resource);
                let path = socket.display();
                tracing::info!(resource, socket = %path, "device plugin registers");
                self.connect(resource, socket, Some(response));
            }
            Err(error) => {
                let error = report(&error);
                tracing::warn!(
                    resource,
                    error,
                    "refused the registration of a device plugin"
                );
                // The plugin may have cancelled its call.
                let _ = response.send(Err(error));
            }
        }
    }

    /// Connects to a plugin. What is connected for its resource stays until the plugin has answered.
    pub(super) fn connect(
        &mut self,
        resource: String,
        socket: PathBuf,
        response: Option<oneshot::Sender<Result<(), String>>>,
    ) {
        let id = self.state.next_connection;
        self.state.next_connection += 1;
        let closed = CancellationToken::new();
        let connecting = (socket.clone(), closed.clone());
        self.state.connecting.insert(id, connecting);
        self.start_connection(PluginConnection {
            resource,
            socket,
            id,
            closed,
            response,
        });
    }

    pub(super) fn handle_plugin(&mut self, resource: &str, id: u64, event: PluginEvent) {
        if let PluginEvent::Connected(options, client) = event {
            let Some((socket, closed)) = self.state.connecting.remove(&id) else {
                return;
            };
            let plugin = ConnectedPlugin {
                id,
                client,
                socket,
                closed,
            };
            let former = self.state.plugins.insert(resource.to_owned(), plugin);
            if let Some(former) = former {
                former.closed.cancel();
            }
            self.state.inventory.connect(resource, options);
            return;
        }
        if self.state.connecting.remove(&id).is_some() {
            // It has never answered.
            self.state.unsettled.remove(resource);
            return;
        }
        let plugin = self.state.plugins.get(resource);
        let Some(plugin) = plugin.filter(|plugin| plugin.id == id) else {
            return;
        };
        if let PluginEvent::Listed(devices) = event {
            let (count, socket) = (devices.len(), plugin.socket.clone());
            tracing::info!(resource, devices = count, "device plugin lists its devices");
            self.state.inventory.list(resource, devices);
            self.remember_socket(resource, socket);
        } else {
            self.state.plugins.remove(resource);
            self.state.inventory.disconnect(resource, Timestamp::now());
        }
        self.state.unsettled.remove(resource);
        self.devices_changed();
    }

    /// Stores the socket of a plugin, to which the next process connects.
    fn remember_socket(&mut self, resource: &str, socket: PathBuf) {
        let before = self
            .state
            .sockets
            .insert(resource.to_owned(), socket.clone());
        let changed = before != Some(socket);
        if let Err(error) = self.sockets.save_changed(changed, &self.state.sockets) {
            tracing::warn!(
                error = report(&error),
                "failed to store the sockets of device plugins"
            );
        }
    }
}
