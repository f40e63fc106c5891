//! The event loop: follows plugins, allocates devices, publishes and stores the result.

mod jobs;
mod plugins;

use jiff::Timestamp;
use polylet_kit::state_file::{RetriedFile, StateFile, StateFileError};
use polylet_kit::{Ctx, clock, report};
use polylet_watch::Store;
use polylet_wire::device::v1::{DeviceResource, PodDevices};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::checkpoint::{self, CheckpointFile, PLUGINS_VERSION, PluginSockets, SaveError};
use crate::config::Config;
use crate::convert;
use crate::input::Input;
use crate::plugin::connection::PluginConnection;
use crate::state::DeviceState;

/// How long plugins of the former process have to list their devices, before this one says that they
/// offer none.
const RESTORE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// The published state.
#[derive(Clone)]
pub(crate) struct Published {
    pub(crate) resources: Store<String, DeviceResource>,
    pub(crate) pods: Store<String, PodDevices>,
}

/// The event loop.
pub(crate) struct EventLoop {
    ctx: Ctx,
    config: Config,
    state: DeviceState,
    published: Published,
    checkpoint: CheckpointFile,
    sockets: RetriedFile<PluginSockets>,
    inputs: mpsc::Sender<Input>,
    receiver: mpsc::Receiver<Input>,
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
        published: Published,
        inputs: mpsc::Sender<Input>,
        receiver: mpsc::Receiver<Input>,
    ) -> Result<Self, StateFileError> {
        // Of this boot alone, like the plugins.
        let sockets =
            StateFile::new(ctx.run_dir().join("plugins.json"), PLUGINS_VERSION).without_sync();
        let restored = sockets.restore("device plugins have to register again")?;
        let checkpoint = CheckpointFile::new(&config.directory);
        let restored = restored.unwrap_or_default();
        let state = DeviceState::restore(&checkpoint.restore(), restored, Timestamp::now());
        Ok(EventLoop {
            ctx,
            config,
            state,
            published,
            checkpoint,
            sockets: RetriedFile::new(sockets),
            inputs,
            receiver,
            waiting: Vec::new(),
        })
    }

    /// The sockets that this process connects to by itself.
    pub(crate) fn known_sockets(&self) -> impl Iterator<Item = &std::path::PathBuf> {
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
            Input::Register(registration) => self.register(registration),
            Input::Plugin {
                resource,
                id,
                event,
            } => self.handle_plugin(&resource, id, event),
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

    fn save(&mut self) -> Result<(), SaveError> {
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
            (uid.to_owned(), devices)
        });
        self.published.pods.replace(pods);
        self.published.pods.mark_synced();
    }

    /// Publishes the devices of one pod.
    fn publish_pod(&self, uid: &str) {
        let state = &self.state;
        if state.allocations.has_pod(uid) {
            let devices = convert::pod_devices(&state.inventory, &state.allocations, uid);
            self.published.pods.upsert(uid.to_owned(), devices);
        } else {
            self.published.pods.remove(&uid.to_owned());
        }
    }

    /// Starts the task of a connection to a plugin.
    fn start_connection(&self, connection: PluginConnection) {
        let (inputs, drain) = (self.inputs.clone(), self.ctx.drain());
        let task = crate::plugin::connection::run(connection, inputs, drain);
        self.ctx.background("plugin connection", task);
    }
}
