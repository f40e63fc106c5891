//! What is observed of the services during an upgrade.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::lifecycle::v1::{DrainRequest, GetInfoRequest, GetInfoResponse};
use polylet_wire::supervisor::v1::ListUpgradesRequest;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::backend::own::OwnHandle;
use crate::backend::{Backend, BackendError, ServiceState};
use crate::core::order::{SUPERVISOR, upgradable};
use crate::core::unit_state::UnitPhase;
use crate::core::upgrade::in_step::{ObservedPeer, ObservedService};

/// Timeout of a question to one service.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a service may take to drain.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// Asks the service manager and the services, over one connection each.
pub(crate) struct UpgradeObserver {
    backend: Backend,
    own: OwnHandle,
    channels: BTreeMap<&'static str, Channel>,
}

impl UpgradeObserver {
    pub(crate) fn new(backend: Backend, own: OwnHandle, run_directory: &Path) -> UpgradeObserver {
        let channel = |service| {
            let socket = run_directory.join(format!("{service}.sock"));
            (service, polylet_kit::channel::unix(&socket))
        };
        UpgradeObserver {
            backend,
            own,
            channels: upgradable().map(channel).collect(),
        }
    }

    /// All services and the supervisor.
    pub(crate) async fn services(&self) -> Result<Vec<ObservedService>, BackendError> {
        let states = self.backend.states().await?;
        let mut services = join_all(states.into_iter().map(|state| self.service(state))).await;
        services.push(self.supervisor(&services).await);
        Ok(services)
    }

    /// The supervisor. It serves if it answers calls, and is in step with each service that serves.
    async fn supervisor(&self, services: &[ObservedService]) -> ObservedService {
        let mut observed = ObservedService {
            name: SUPERVISOR.to_owned(),
            incarnation: self.own.image.clone(),
            ..ObservedService::default()
        };
        for service in services {
            observed.peers.push(ObservedPeer {
                service: service.name.clone(),
                synced: service.serving,
                incarnation: String::new(),
            });
        }
        let Some(channel) = self.channels.get(SUPERVISOR) else {
            return observed;
        };
        let mut client = SupervisorServiceClient::new(channel.clone());
        let list = client.list_upgrades(ListUpgradesRequest {});
        match tokio::time::timeout(TIMEOUT, list).await {
            Ok(Ok(_)) => observed.serving = true,
            Ok(Err(status)) => observed.problem = status.message().to_owned(),
            Err(_) => observed.problem = format!("no response within {TIMEOUT:?}"),
        }
        observed
    }

    async fn service(&self, state: ServiceState) -> ObservedService {
        let mut observed = ObservedService {
            name: state.service.to_owned(),
            restarts: state.restarts,
            ..ObservedService::default()
        };
        if state.phase != UnitPhase::Running {
            observed.problem = match state.last_exit.as_str() {
                "" => "it is not ready".to_owned(),
                exit => format!("it is not ready; before: {exit}"),
            };
            return observed;
        }
        let Some(channel) = self.channels.get(state.service) else {
            return observed;
        };
        match tokio::time::timeout(TIMEOUT, ask(channel.clone())).await {
            Ok(Ok((serving, info))) => {
                observed.serving = serving;
                observed.incarnation = info.incarnation;
                observed.peers = info.peers.into_iter().map(peer).collect();
            }
            Ok(Err(status)) => observed.problem = status.message().to_owned(),
            Err(_) => observed.problem = format!("no response within {TIMEOUT:?}"),
        }
        observed
    }

    /// Identifies the process of a service; `None` if it has none.
    pub(crate) async fn process(&self, service: &str) -> Result<Option<String>, BackendError> {
        if service == SUPERVISOR {
            return Ok(Some(self.own.image.clone()));
        }
        let states = self.backend.states().await?;
        let state = states.iter().find(|state| state.service == service);
        Ok(state.and_then(|state| state.pid).map(identity))
    }

    /// The automatic restarts of a service so far.
    pub(crate) async fn restarts(&self, service: &str) -> Option<u32> {
        let states = self.backend.states().await.ok()?;
        let state = states.iter().find(|state| state.service == service);
        state.map(|state| state.restarts)
    }

    /// Lets a service finish what it has begun. Returns what is unfinished.
    pub(crate) async fn drain(&self, service: &str) -> Vec<String> {
        let Some(channel) = self.channels.get(service) else {
            return Vec::new();
        };
        let mut lifecycle = LifecycleServiceClient::new(channel.clone());
        let deadline = prost_types::Duration::try_from(DRAIN_DEADLINE).unwrap_or_default();
        let drain = lifecycle.drain(DrainRequest {
            deadline: Some(deadline),
        });
        match tokio::time::timeout(DRAIN_DEADLINE + TIMEOUT, drain).await {
            Ok(Ok(drained)) => drained.into_inner().unfinished,
            Ok(Err(status)) => vec![format!("it cannot be drained: {}", status.message())],
            Err(_) => vec!["it does not respond".to_owned()],
        }
    }
}

async fn ask(channel: Channel) -> Result<(bool, GetInfoResponse), tonic::Status> {
    let mut health = HealthClient::new(channel.clone());
    let mut lifecycle = LifecycleServiceClient::new(channel);
    let health = health.check(HealthCheckRequest::default()).await?;
    let serving = health.into_inner().status() == ServingStatus::Serving;
    let info = lifecycle.get_info(GetInfoRequest {}).await?;
    Ok((serving, info.into_inner()))
}

fn peer(peer: polylet_wire::lifecycle::v1::Peer) -> ObservedPeer {
    ObservedPeer {
        service: peer.service,
        synced: peer.synced,
        incarnation: peer.incarnation,
    }
}

/// Identifies a process: ids are used again, but not by one that started at the same time.
fn identity(pid: u32) -> String {
    let process = i32::try_from(pid).ok().map(procfs::process::Process::new);
    let stat = process.and_then(|process| process.ok()?.stat().ok());
    match stat {
        Some(stat) => format!("{pid}-{}", stat.starttime),
        None => pid.to_string(),
    }
}
