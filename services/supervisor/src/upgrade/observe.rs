//! What is observed of the services during an upgrade.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::lifecycle::v1::{DrainRequest, GetInfoRequest, GetInfoResponse};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::backend::{Backend, BackendError, ServiceState};
use crate::core::order::SERVICES;
use crate::core::unit_state::UnitPhase;
use crate::core::upgrade::in_step::{ObservedPeer, ObservedService};

/// Timeout of a question to one service.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a service may take to drain.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// Asks the service manager and the services, over one connection each.
pub(crate) struct UpgradeObserver {
    backend: Backend,
    channels: BTreeMap<&'static str, Channel>,
}

impl UpgradeObserver {
    pub(crate) fn new(backend: Backend, run_directory: &Path) -> UpgradeObserver {
        let channel = |service| {
            let socket = run_directory.join(format!("{service}.sock"));
            (service, polylet_kit::channel::unix(&socket))
        };
        UpgradeObserver {
            backend,
            channels: SERVICES.iter().map(|one| channel(one.name)).collect(),
        }
    }

    /// All services.
    pub(crate) async fn services(&self) -> Result<Vec<ObservedService>, BackendError> {
        let states = self.backend.states().await?;
        Ok(join_all(states.into_iter().map(|state| self.service(state))).await)
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
