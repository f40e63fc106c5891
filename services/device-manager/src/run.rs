//! The event loop: follows plugins, allocates devices, publishes and stores the result.

mod jobs;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::state_file::{RetriedFile, StateFile, StateFileError};
use polylet_kit::{CancellationToken, Ctx, clock, report};
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::device::v1::{DeviceResource, PodDevices};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::checkpoint::{
    self, DeviceCheckpointFile, PLUGINS_VERSION, PluginSockets, SaveDevicesError,
};
use crate::config::Config;
use crate::convert;
use crate::core::registration::{self, MAX_CONNECTING, RegistrationError};
use crate::input::Input;
use crate::metrics;
use crate::plugin::connection::PluginConnection;
use crate::plugin::input::{PluginEvent, PluginInput, PluginRegistration};
use crate::state::{ConnectedPlugin, DeviceState};

/// How long plugins of the former process have to list their devices, before this one says that they
/// offer none.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The published state.
#[derive(Clone)]
pub(crate) struct PublishedDevices {
    pub(crate) resources: Store<String, DeviceResource>,
    pub(crate) pods: Store<PodUid, PodDevices>,
}

/// The event loop.
pub(crate) struct EventLoop {
    ctx: Ctx,
    config: Config,
    state: DeviceState,
    published: PublishedDevices,
    checkpoint: DeviceCheckpointFile,
    sockets: RetriedFile<PluginSockets>,
    inputs: mpsc::Sender<Input>,
    receiver: mpsc::Receiver<Input>,
    plugin_inputs: mpsc::Sender<PluginInput>,
    plugin_receiver: mpsc::Receiver<PluginInput>,
    /// Calls that arrived before the plugins of the former process have settled.
    waiting: Vec<Input>,
}

impl EventLoop {
    /// Restores the state of the former process.
    ///
    /// # Errors
    /// The sockets of plugins cannot be read, or a newer build has written them.
    pub(crate) fn new(
        ctx: Ctx,
        config: Config,
        published: PublishedDevices,
        (inputs, receiver): (mpsc::Sender<Input>, mpsc::Receiver<Input>),
        (plugin_inputs, plugin_receiver): (mpsc::Sender<PluginInput>, mpsc::Receiver<PluginInput>),
    ) -> Result<Self, StateFileError> {
        // Of this boot alone, like the plugins.
        let sockets =
            StateFile::new(ctx.run_dir().join("plugins.json"), PLUGINS_VERSION).without_sync();
        let restored = sockets.restore("device plugins have to register again")?;
        let checkpoint = DeviceCheckpointFile::new(&config.directory);
        let restored = restored.unwrap_or_default();
        let state = DeviceState::restore(
            &checkpoint.restore(),
            restored,
            Timestamp::now(),
            clock::since_boot(),
        );
        Ok(EventLoop {
            ctx,
            config,
            state,
            published,
            checkpoint,
            sockets: RetriedFile::new(sockets),
            inputs,
            receiver,
            plugin_inputs,
            plugin_receiver,
            waiting: Vec::new(),
        })
    }

    /// The sockets that this process connects to by itself.
    pub(crate) fn known_sockets(&self) -> impl Iterator<Item = &PathBuf> {
        self.state.sockets.values()
    }

    /// Runs until the process drains.
    pub(crate) async fn run(mut self) {
        let drain = self.ctx.drain();
        for (resource, socket) in self.state.sockets.clone() {
            self.connect(resource, socket, None);
        }
        let restored = tokio::time::sleep_until(Instant::now() + RESTORE_TIMEOUT);
        tokio::pin!(restored);
        self.publish();
        loop {
            let unsettled = !self.state.is_settled();
            let input = tokio::select! {
                () = drain.cancelled() => return,
                Some(input) = self.receiver.recv() => input,
                Some(input) = self.plugin_receiver.recv() => Input::Plugin(input),
                () = &mut restored, if unsettled => Input::RestoreTimer,
                () = clock::sleep_until_opt(self.state.inventory.next_expiry()) => Input::ExpiryTimer,
            };
            self.handle_input(input);
            if unsettled && self.state.is_settled() {
                self.publish();
                for input in std::mem::take(&mut self.waiting) {
                    self.handle_input(input);
                }
            }
        }
    }

    fn handle_input(&mut self, input: Input) {
        match input {
            Input::Allocate(..) | Input::Prepare(..) if !self.state.is_settled() => {
                self.waiting.push(input);
            }
            Input::Allocate(request, response) => self.allocate(request, response),
            Input::Prepare(request, response) => self.prepare(request, response),
            Input::PluginAnswer(pod_uid, answer) => self.handle_answer(&pod_uid, answer),
            Input::Plugin(PluginInput::Register(registration)) => self.register(registration),
            Input::Plugin(PluginInput::Event {
                resource,
                id,
                event,
            }) => self.handle_plugin(&resource, id, event),
            Input::RestoreTimer => self.state.unsettled.clear(),
            Input::ExpiryTimer => {
                if self.state.inventory.expire(Timestamp::now()) {
                    self.devices_changed();
                }
            }
        }
    }

    /// Stores and publishes after a change of what plugins offer.
    fn devices_changed(&mut self) {
        if let Err(error) = self.save() {
            tracing::warn!(
                error = report(&error),
                "the checkpoint of devices is out of date"
            );
        }
        self.publish();
    }

    fn save(&mut self) -> Result<(), SaveDevicesError> {
        let state = &self.state;
        let checkpoint = checkpoint::checkpoint_of(&state.inventory, &state.allocations);
        self.checkpoint.save(&checkpoint)
    }

    /// Publishes everything, once the plugins of the former process have settled.
    fn publish(&self) {
        let state = &self.state;
        if !state.is_settled() {
            return;
        }
        let resources = state.inventory.counts();
        let resources =
            resources.map(|(name, counts)| (name.to_owned(), convert::resource(name, counts)));
        self.published.resources.replace(resources);
        self.published.resources.mark_synced();
        let pods = state.allocations.pods().map(|uid| {
            let devices = convert::pod_devices(&state.inventory, &state.allocations, uid);
            (uid.into(), devices)
        });
        self.published.pods.replace(pods);
        self.published.pods.mark_synced();
    }

    /// Publishes the devices of one pod.
    fn publish_pod(&self, uid: &str) {
        let state = &self.state;
        if state.allocations.has_pod(uid) {
            let devices = convert::pod_devices(&state.inventory, &state.allocations, uid);
            self.published.pods.upsert(uid.into(), devices);
        } else {
            self.published.pods.remove(uid);
        }
    }

    /// Starts the task of a connection to a plugin.
    fn start_connection(&self, connection: PluginConnection) {
        let (inputs, drain) = (self.plugin_inputs.clone(), self.ctx.drain());
        let task = crate::plugin::connection::run(connection, inputs, drain);
        self.ctx.background("plugin connection", task);
    }

    fn register(&mut self, registration: PluginRegistration) {
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
        let is_busy = self.state.connecting.len() >= MAX_CONNECTING;
        let checked = match checked {
            Ok(_) if is_busy => Err(RegistrationError::Busy(resource.clone())),
            checked => checked,
        };
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
    fn connect(
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

    fn handle_plugin(&mut self, resource: &str, id: u64, event: PluginEvent) {
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
