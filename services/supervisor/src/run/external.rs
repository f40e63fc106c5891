//! The event loop where another service manager runs the services, such as a container engine. Their
//! health is followed; what is known of them is what they say themselves.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::{Config, listener, lock};
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::lifecycle::v1::{GetInfoRequest, GetInfoResponse, HealthCondition};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::input::Input;
use super::readiness::Readiness;
use super::service_manager::ServiceManagerError;
use super::table::ServiceView;
use super::{RunError, create_directory, runtime, serve, server};
use crate::backend::Backend;
use crate::backend::own::OwnHandle;
use crate::core::order::SERVICES;
use crate::upgrade::Upgrades;

/// The delay before a broken connection is opened again.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// How long a process may take to describe itself.
const INFO_TIMEOUT: Duration = Duration::from_secs(5);

/// A change of a service, by its index.
enum ServiceChange {
    /// A process accepted the connection and described itself.
    Connected { at: usize, info: GetInfoResponse },
    /// Its health.
    Health { at: usize, serving: bool },
    /// It cannot be reached, and why.
    Lost { at: usize, error: String },
}

/// One service.
struct FollowedService {
    name: &'static str,
    channel: Channel,
    serving: bool,
    /// The process that is connected.
    info: Option<GetInfoResponse>,
    /// The incarnation of the last process, to tell another one.
    incarnation: String,
    /// Processes after the first one that was seen.
    restarts: u32,
    error: String,
    lost_at: Option<Timestamp>,
}

/// Follows the services until SIGTERM or SIGINT, and serves the supervisor's socket.
pub(super) fn start(config: &Config) -> Result<(), RunError> {
    let polylet = &config.polylet;
    let directory = &polylet.run_directory;
    polylet_machine::check(&config.kubelet)?;
    create_directory(directory, 0o755)?;
    let _lock = lock::Lock::acquire(&directory.join("supervisor.lock"), lock::TIMEOUT)?;
    let listener = listener::inherit_or_bind(&directory.join("supervisor.sock"))
        .map_err(|error| RunError::Sockets(error.into()))?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        node = polylet.node_name,
        "following the services, which another service manager runs"
    );
    for warning in &config.warnings {
        tracing::warn!(warning, "configuration warning");
    }
    runtime()?.block_on(async {
        let (inputs, incoming) = mpsc::unbounded_channel();
        // For its history alone: none is begun or continued.
        let programs = polylet.bin_directory.clone().unwrap_or_default();
        let (nobody, _) = mpsc::unbounded_channel();
        let own = OwnHandle::new(false, None, nobody);
        let state = &polylet.state_directory;
        let upgrades = Upgrades::open(Backend::External, own, programs, directory, state);
        let serving = serve(config, listener, inputs, upgrades);
        tokio::select! {
            stopped = run(directory, incoming) => stopped.map_err(RunError::Services),
            served = serving => served.map_err(RunError::Serve),
        }
    })
}

async fn run(
    run_directory: &Path,
    mut incoming: UnboundedReceiver<Input>,
) -> Result<(), ServiceManagerError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServiceManagerError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServiceManagerError::Signals)?;
    let (sender, mut changes) = mpsc::unbounded_channel();
    let mut services = Vec::with_capacity(SERVICES.len());
    for (at, service) in SERVICES.iter().enumerate() {
        let socket = server::service_socket(run_directory, service.name);
        let channel = polylet_kit::channel::unix(&socket);
        let following = follow(at, socket, channel.clone(), sender.clone());
        tokio::spawn(following);
        services.push(FollowedService::new(service.name, channel));
    }
    let _watchdog = tokio::spawn(polylet_kit::notify::watchdog());
    let mut readiness = Readiness::supervisor_only();
    loop {
        readiness.update(services.iter().map(|one| (one.name, one.serving)));
        tokio::select! {
            Some(change) = changes.recv() => apply(&mut services, change),
            Some(input) = incoming.recv() => {
                if let Input::List(response) = input {
                    let _ = response.send(services.iter().map(FollowedService::view).collect());
                }
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    tracing::info!("stopped; the services keep running");
    Ok(())
}

fn apply(services: &mut [FollowedService], change: ServiceChange) {
    let (ServiceChange::Connected { at, .. }
    | ServiceChange::Health { at, .. }
    | ServiceChange::Lost { at, .. }) = &change;
    let Some(service) = services.get_mut(*at) else {
        return;
    };
    match change {
        ServiceChange::Connected { info, .. } => service.connected(info),
        ServiceChange::Health { serving, .. } => service.serving = serving,
        ServiceChange::Lost { error, .. } => service.lost(error),
    }
}

/// Follows one service for ever.
async fn follow(
    at: usize,
    socket: std::path::PathBuf,
    channel: Channel,
    sender: UnboundedSender<ServiceChange>,
) {
    loop {
        let Err(error) = follow_process(at, &socket, &channel, &sender).await;
        if sender.send(ServiceChange::Lost { at, error }).is_err() {
            return;
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Follows the health of one process until its end.
async fn follow_process(
    at: usize,
    socket: &Path,
    channel: &Channel,
    sender: &UnboundedSender<ServiceChange>,
) -> Result<std::convert::Infallible, String> {
    // The channel retries for a while, and would not say why.
    let connected = UnixStream::connect(socket).await;
    connected.map_err(|error| format!("connecting to {}: {error}", socket.display()))?;
    let mut health = HealthClient::new(channel.clone());
    let watch = health.watch(HealthCheckRequest::default());
    let watch = tokio::time::timeout(INFO_TIMEOUT, watch).await;
    let changes = watch.map_err(|_| format!("no response within {INFO_TIMEOUT:?}"))?;
    let mut changes = changes.map_err(message)?.into_inner();
    let mut lifecycle = LifecycleServiceClient::new(channel.clone());
    let info = tokio::time::timeout(INFO_TIMEOUT, lifecycle.get_info(GetInfoRequest {})).await;
    let info = info.map_err(|_| format!("no response within {INFO_TIMEOUT:?}"))?;
    let info = info.map_err(message)?.into_inner();
    let ended = || "the supervisor is stopping".to_owned();
    let sent = sender.send(ServiceChange::Connected { at, info });
    sent.map_err(|_| ended())?;
    while let Some(change) = changes.message().await.map_err(message)? {
        let serving = change.status() == ServingStatus::Serving;
        let sent = sender.send(ServiceChange::Health { at, serving });
        sent.map_err(|_| ended())?;
    }
    Err("its process ended".to_owned())
}

fn message(status: tonic::Status) -> String {
    status.message().to_owned()
}

impl FollowedService {
    fn new(name: &'static str, channel: Channel) -> FollowedService {
        FollowedService {
            name,
            channel,
            serving: false,
            info: None,
            incarnation: String::new(),
            restarts: 0,
            error: String::new(),
            lost_at: None,
        }
    }

    fn connected(&mut self, info: GetInfoResponse) {
        let is_other = self.incarnation != info.incarnation;
        if is_other && !self.incarnation.is_empty() {
            self.restarts = self.restarts.saturating_add(1);
        }
        if is_other {
            tracing::info!(service = self.name, pid = info.pid, "service is running");
        }
        self.incarnation.clone_from(&info.incarnation);
        self.info = Some(info);
        self.lost_at = None;
    }

    fn lost(&mut self, error: String) {
        if self.info.take().is_some() {
            tracing::warn!(service = self.name, error, "service is not running");
        }
        self.serving = false;
        self.error = error;
        self.lost_at.get_or_insert_with(Timestamp::now);
    }

    fn view(&self) -> ServiceView {
        let health = match (&self.info, self.serving) {
            (Some(_), true) => "SERVING",
            (Some(_), false) => "NOT_SERVING",
            (None, _) => "STOPPED",
        };
        let condition = self.lost_at.map(|since| HealthCondition {
            reason: "ServiceNotRunning".to_owned(),
            message: self.error.clone(),
            since: Some(polylet_wire::time::to_wire(since)),
            ..HealthCondition::default()
        });
        let started_at = self.info.as_ref().and_then(|info| info.started_at.as_ref());
        ServiceView {
            name: self.name,
            health,
            pid: self.info.as_ref().map_or(0, |info| info.pid),
            restarts: self.restarts,
            started_at: polylet_wire::time::from_wire_opt(started_at),
            last_exit: String::new(),
            conditions: condition.into_iter().collect(),
            channel: self.info.as_ref().map(|_| self.channel.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn another_incarnation_counts_as_a_restart() {
        let channel = polylet_kit::channel::unix(Path::new("/nowhere"));
        let mut service = FollowedService::new("pleg", channel);
        let process = |incarnation: &str, pid| GetInfoResponse {
            incarnation: incarnation.to_owned(),
            pid,
            ..GetInfoResponse::default()
        };
        service.lost("connection refused".to_owned());
        let view = service.view();
        assert_eq!((view.health, view.pid, view.restarts), ("STOPPED", 0, 0));
        let condition = view.conditions.first().map(|found| found.message.as_str());
        assert_eq!(condition, Some("connection refused"));
        for (incarnation, pid, restarts) in [("a", 7, 0), ("a", 7, 0), ("b", 9, 1)] {
            service.connected(process(incarnation, pid));
            service.serving = true;
            let view = service.view();
            let seen = (view.health, view.pid, view.restarts, view.conditions.len());
            assert_eq!(seen, ("SERVING", pid, restarts, 0));
            service.lost("its process ended".to_owned());
        }
    }
}
