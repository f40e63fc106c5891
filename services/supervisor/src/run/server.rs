//! The gRPC service of the supervisor.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use polylet_kit::{HealthConditions, require_root_or_own_user};
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::lifecycle::v1::{GetInfoRequest, GetInfoResponse, HealthCondition};
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::supervisor_service_server::SupervisorService;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::input::Input;
use super::memory;
use super::table::ServiceView;
use crate::traces::{TraceSelection, TraceStore, convert, summary_convert};
use crate::upgrade::{self, UpgradeSteps, Upgrades};

/// Timeout of `GetInfo`; a service that exceeds it is listed without version and peers.
const INFO_TIMEOUT: Duration = Duration::from_secs(1);
/// How long services may buffer spans before they send them.
const SPAN_BUFFER_TIME: Duration = Duration::from_millis(150);

/// Serves the supervisor's socket.
pub(super) struct Server {
    pub(super) inputs: UnboundedSender<Input>,
    pub(super) traces: TraceStore,
    pub(super) node_name: String,
    pub(super) upgrades: Upgrades,
}

#[tonic::async_trait]
impl SupervisorService for Server {
    async fn list_services(
        &self,
        _: Request<wire::ListServicesRequest>,
    ) -> Result<Response<wire::ListServicesResponse>, Status> {
        let (response, listed) = oneshot::channel();
        let stopping = || Status::unavailable("the supervisor is stopping");
        self.inputs
            .send(Input::List(response))
            .map_err(|_| stopping())?;
        let views = listed.await.map_err(|_| stopping())?;
        let each = views.into_iter().map(|view| self.service_status(view));
        let mut services = futures::future::join_all(each).await;
        services.push(own_status());
        Ok(Response::new(wire::ListServicesResponse {
            services,
            node_name: self.node_name.clone(),
        }))
    }

    async fn get_trace(
        &self,
        request: Request<wire::GetTraceRequest>,
    ) -> Result<Response<wire::GetTraceResponse>, Status> {
        // Spans that ended before the request belong into the response.
        tokio::time::sleep(SPAN_BUFFER_TIME).await;
        self.traces
            .get(&request.into_inner().query)
            .map(Response::new)
    }

    type ListTracesStream = BoxStream<'static, Result<wire::ListTracesResponse, Status>>;

    async fn list_traces(
        &self,
        request: Request<wire::ListTracesRequest>,
    ) -> Result<Response<Self::ListTracesStream>, Status> {
        let wire::ListTracesRequest { filter, follow } = request.into_inner();
        let filter = summary_convert::filter_from_wire(filter)?;
        let traces = summaries(self.traces.select(filter, follow));
        Ok(Response::new(traces.map(Ok).boxed()))
    }

    type GetTracesStream = BoxStream<'static, Result<wire::GetTracesResponse, Status>>;

    async fn get_traces(
        &self,
        request: Request<wire::GetTracesRequest>,
    ) -> Result<Response<Self::GetTracesStream>, Status> {
        let wire::GetTracesRequest { filter, follow } = request.into_inner();
        let filter = summary_convert::filter_from_wire(filter)?;
        let traces = whole_traces(self.traces.select(filter, follow));
        Ok(Response::new(traces.map(Ok).boxed()))
    }

    type UpgradeStream = BoxStream<'static, Result<wire::UpgradeResponse, Status>>;

    async fn upgrade(
        &self,
        request: Request<wire::UpgradeRequest>,
    ) -> Result<Response<Self::UpgradeStream>, Status> {
        require_root_or_own_user(&request, "Upgrade")?;
        let (programs, options) = upgrade::upgrade_options(request.into_inner())?;
        let steps = self.upgrades.upgrade(programs, options);
        let response = |progress| wire::UpgradeResponse {
            progress: Some(progress),
        };
        Ok(Response::new(steps_as(steps, response)))
    }

    type RollbackStream = BoxStream<'static, Result<wire::RollbackResponse, Status>>;

    async fn rollback(
        &self,
        request: Request<wire::RollbackRequest>,
    ) -> Result<Response<Self::RollbackStream>, Status> {
        require_root_or_own_user(&request, "Rollback")?;
        let (services, options) = upgrade::rollback_options(request.into_inner())?;
        let steps = self.upgrades.roll_back(services, options);
        let response = |progress| wire::RollbackResponse {
            progress: Some(progress),
        };
        Ok(Response::new(steps_as(steps, response)))
    }

    async fn list_upgrades(
        &self,
        _: Request<wire::ListUpgradesRequest>,
    ) -> Result<Response<wire::ListUpgradesResponse>, Status> {
        let history = self.upgrades.history().map_err(Status::from)?;
        Ok(Response::new(upgrade::history_to_wire(&history)))
    }

    async fn record_starts(
        &self,
        request: Request<wire::RecordStartsRequest>,
    ) -> Result<Response<wire::RecordStartsResponse>, Status> {
        require_root_or_own_user(&request, "RecordStarts")?;
        let request = request.into_inner();
        let starts = upgrade::starts_from_wire(request.starts)?;
        let recorded = self.upgrades.record_starts(request.run, starts).await;
        recorded.map_err(Status::from)?;
        Ok(Response::new(wire::RecordStartsResponse {}))
    }
}

/// Summaries of traces.
fn summaries(selection: TraceSelection) -> impl Stream<Item = wire::ListTracesResponse> {
    futures::stream::unfold(selection, |mut selection| async move {
        let summary = selection.next().await?;
        let trace = Some(summary_convert::to_wire(summary));
        Some((wire::ListTracesResponse { trace }, selection))
    })
}

/// Traces with their spans, unless these were dropped.
fn whole_traces(selection: TraceSelection) -> impl Stream<Item = wire::GetTracesResponse> {
    futures::stream::unfold(selection, |mut selection| async move {
        let summary = selection.next().await?;
        let spans = selection.spans(&summary).into_iter();
        let response = wire::GetTracesResponse {
            spans: spans.map(convert::to_wire).collect(),
            trace: Some(summary_convert::to_wire(summary)),
        };
        Some((response, selection))
    })
}

/// The steps of an upgrade as a stream of responses.
fn steps_as<T: 'static>(
    steps: UpgradeSteps,
    response: impl Fn(wire::UpgradeProgress) -> T + Send + 'static,
) -> BoxStream<'static, Result<T, Status>> {
    steps.map(move |step| step.map(&response)).boxed()
}

impl Server {
    async fn service_status(&self, view: ServiceView) -> wire::ServiceStatus {
        let mut conditions = view.conditions;
        let info = match view.channel {
            Some(channel) => info(channel).await,
            None => Ok(GetInfoResponse::default()),
        };
        let mut info = info.unwrap_or_else(|message| {
            conditions.push(HealthCondition {
                reason: "ServiceNotResponding".to_owned(),
                message,
                ..HealthCondition::default()
            });
            GetInfoResponse::default()
        });
        conditions.append(&mut info.conditions);
        wire::ServiceStatus {
            service: view.name.to_owned(),
            version: info.version,
            health: view.health.to_owned(),
            pid: view.pid,
            restarts: view.restarts,
            memory_bytes: if view.pid == 0 {
                0
            } else {
                memory::pss(view.pid)
            },
            started_at: view.started_at.map(polylet_wire::time::to_wire),
            peers: info.peers,
            last_exit: view.last_exit,
            conditions,
        }
    }
}

/// The info of a service, over the connection that watches its health: one more connection could be
/// refused, as in a service that is out of file descriptors.
async fn info(channel: Channel) -> Result<GetInfoResponse, String> {
    let mut lifecycle = LifecycleServiceClient::new(channel);
    let info = lifecycle.get_info(GetInfoRequest {});
    match tokio::time::timeout(INFO_TIMEOUT, info).await {
        Ok(Ok(info)) => Ok(info.into_inner()),
        Ok(Err(status)) => Err(status.message().to_owned()),
        Err(_) => Err(format!("no response within {INFO_TIMEOUT:?}")),
    }
}

/// The status of this process.
fn own_status() -> wire::ServiceStatus {
    let pid = std::process::id();
    wire::ServiceStatus {
        service: "supervisor".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        health: "SERVING".to_owned(),
        pid,
        memory_bytes: memory::pss(pid),
        conditions: HealthConditions::of_process().to_wire(),
        ..wire::ServiceStatus::default()
    }
}

/// The path of a service's socket.
pub(super) fn service_socket(directory: &Path, service: &str) -> PathBuf {
    directory.join(format!("{service}.sock"))
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
