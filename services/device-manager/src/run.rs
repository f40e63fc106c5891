//! The event loop: follows plugins, allocates devices, publishes and stores the result.

mod jobs;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use polylet_kit::state_file::StateFileError;
use polylet_kit::{CancellationToken, clock, report};
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::device::v1::{DeviceResource, PodDevices};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::checkpoint::{self, DeviceCheckpointFile, SaveDevicesError};
use crate::config::Config;
use crate::convert;
use crate::core::inventory::PluginOptions;
use crate::core::registration::{self, MAX_CONNECTING, RegistrationError};
use crate::input::Input;
use crate::metrics;
use crate::plugin::calls::PluginClient;
use crate::plugin::connection::PluginConnection;
use crate::plugin::input::{PluginEvent, PluginInput, PluginRegistration};
use crate::plugin_files::PluginFiles;
use crate::state::{ConnectedPlugin, DeviceState, PendingConnection};

/// How long plugins of the former process have to list their devices, before this one says that they
/// offer none.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The published state.
#[derive(Clone)]
pub(crate) struct PublishedDevices {
    pub(crate) resources: Store<String, DeviceResource>,
    pub(crate) pods: Store<PodUid, PodDevices>,
}

/// Spawns work that ends by itself, by name.
pub(crate) type SpawnTask = Rc<dyn Fn(&'static str, LocalBoxFuture<'static, ()>)>;

/// Where the result of a registration goes.
type RegistrationResponse = oneshot::Sender<Result<(), String>>;

/// The event loop.
pub(crate) struct EventLoop {
    config: Config,
    drain: CancellationToken,
    spawn: SpawnTask,
    state: DeviceState,
    published: PublishedDevices,
    checkpoint: DeviceCheckpointFile,
    plugin_files: PluginFiles,
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
    /// The records of plugins cannot be read, or a newer build has written them.
    pub(crate) fn new(
        config: Config,
        drain: CancellationToken,
        spawn: SpawnTask,
        published: PublishedDevices,
        (inputs, receiver): (mpsc::Sender<Input>, mpsc::Receiver<Input>),
        (plugin_inputs, plugin_receiver): (mpsc::Sender<PluginInput>, mpsc::Receiver<PluginInput>),
    ) -> Result<Self, StateFileError> {
        let (plugin_files, records) = PluginFiles::restore(&config.run_directory)?;
        let checkpoint = DeviceCheckpointFile::new(&config.directory);
        let state = DeviceState::restore(
            &checkpoint.restore(),
            records,
            Timestamp::now(),
            clock::since_boot(),
        );
        Ok(EventLoop {
            config,
            drain,
            spawn,
            state,
            published,
            checkpoint,
            plugin_files,
            inputs,
            receiver,
            plugin_inputs,
            plugin_receiver,
            waiting: Vec::new(),
        })
    }

    /// The sockets that this process connects to by itself.
    pub(crate) fn known_sockets(&self) -> impl Iterator<Item = &PathBuf> {
        self.state.records.sockets.values()
    }

    /// Runs until the process drains.
    pub(crate) async fn run(mut self) {
        let drain = self.drain.clone();
        for (resource, socket) in self.state.records.sockets.clone() {
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
                let state = &mut self.state;
                if state.inventory.expire(Timestamp::now()) {
                    let is_registered = |resource: &str| state.inventory.is_registered(resource);
                    state.records.retain_listed(is_registered);
                    self.save_records();
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
        let (inputs, drain) = (self.plugin_inputs.clone(), self.drain.clone());
        let task = crate::plugin::connection::run(connection, inputs, drain);
        (self.spawn)("plugin connection", Box::pin(task));
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
        let is_busy = self.state.registering() >= MAX_CONNECTING;
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
        response: Option<RegistrationResponse>,
    ) {
        let id = self.state.next_connection;
        self.state.next_connection += 1;
        let closed = CancellationToken::new();
        let pending = PendingConnection {
            resource: resource.clone(),
            socket: socket.clone(),
            closed: closed.clone(),
            registered: response.is_some(),
        };
        self.state.connecting.insert(id, pending);
        self.start_connection(PluginConnection {
            resource,
            socket,
            id,
            closed,
            response,
            timing: self.config.connect,
        });
    }

    fn handle_plugin(&mut self, resource: &str, id: u64, event: PluginEvent) {
        match event {
            PluginEvent::Connected {
                options,
                client,
                response,
            } => self.handle_connected(resource, id, (options, client), response),
            PluginEvent::Listed(devices) => {
                if !self.is_connected(resource, id) {
                    return;
                }
                let count = devices.len();
                tracing::info!(resource, devices = count, "device plugin lists its devices");
                self.state.inventory.list(resource, devices);
                self.state.records.on_listed(resource);
                self.save_records();
                self.state.unsettled.remove(resource);
                self.devices_changed();
            }
            PluginEvent::Disconnected => self.handle_disconnected(resource, id),
        }
    }

    /// Whether this connection is the one to the resource's plugin.
    fn is_connected(&self, resource: &str, id: u64) -> bool {
        let plugin = self.state.plugins.get(resource);
        plugin.is_some_and(|plugin| plugin.id == id)
    }

    /// A plugin that has registered is answered once its socket is stored: from then on it does not
    /// register again by itself, and the next process has to connect to it.
    fn handle_connected(
        &mut self,
        resource: &str,
        id: u64,
        (options, client): (PluginOptions, PluginClient),
        response: Option<RegistrationResponse>,
    ) {
        let state = &mut self.state;
        let Some(pending) = state.connecting.remove(&id) else {
            return;
        };
        let plugin = ConnectedPlugin {
            id,
            client,
            socket: pending.socket.clone(),
            closed: pending.closed,
            registered: pending.registered,
        };
        let former = state.plugins.insert(resource.to_owned(), plugin);
        if let Some(former) = former {
            former.closed.cancel();
        }
        state.inventory.connect(resource, options);
        if !pending.registered {
            return;
        }
        let ended = state.end_overtaken(resource, &pending.socket, Timestamp::now());
        state.records.on_connected(resource, &pending.socket);
        self.save_records();
        if ended {
            self.devices_changed();
        }
        if let Some(response) = response {
            // The plugin may have cancelled its call.
            let _ = response.send(Ok(()));
        }
    }

    fn handle_disconnected(&mut self, resource: &str, id: u64) {
        let state = &mut self.state;
        if let Some(pending) = state.connecting.remove(&id) {
            // It has never answered.
            if !pending.registered {
                state.unsettled.remove(resource);
                self.forget_socket(resource, &pending.socket);
            }
            return;
        }
        if !self.is_connected(resource, id) {
            return;
        }
        let plugin = self.state.plugins.remove(resource);
        self.state.inventory.disconnect(resource, Timestamp::now());
        if let Some(plugin) = plugin {
            self.forget_socket(resource, &plugin.socket);
        }
        self.state.unsettled.remove(resource);
        self.devices_changed();
    }

    /// Has the next process not connect to a plugin that has ended its connection.
    fn forget_socket(&mut self, resource: &str, socket: &Path) {
        self.state.records.on_disconnected(resource, socket);
        self.save_records();
    }

    /// Stores what the next process has to know of plugins.
    fn save_records(&mut self) {
        let records = &self.state.records;
        if let Err(error) = self.plugin_files.save_changed(records) {
            tracing::warn!(
                error = report(&error),
                "failed to store the sockets of device plugins"
            );
        }
    }
}
