use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::lifecycle::v1::{GetInfoRequest, GetInfoResponse};
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::supervisor_service_server::SupervisorService;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::memory;
use super::stack::Input;
use super::table::Seen;
use crate::traces::Traces;

/// A service that does not tell about itself this soon is shown without what it would have said.
const INFO_WITHIN: Duration = Duration::from_secs(1);
/// Spans of the services are here this soon after they ended.
const SPANS_WITHIN: Duration = Duration::from_millis(150);

/// What the supervisor's own socket serves.
pub(super) struct Server {
    pub(super) inputs: UnboundedSender<Input>,
    pub(super) traces: Traces,
    pub(super) directory: PathBuf,
}

#[tonic::async_trait]
impl SupervisorService for Server {
    async fn list_services(
        &self,
        _: Request<wire::ListServicesRequest>,
    ) -> Result<Response<wire::ListServicesResponse>, Status> {
        let (answer, answered) = oneshot::channel();
        let gone = || Status::unavailable("the supervisor is stopping");
        self.inputs.send(Input::List(answer)).map_err(|_| gone())?;
        let seen = answered.await.map_err(|_| gone())?;
        let each = seen.into_iter().map(|seen| self.status_of(seen));
        let mut services = futures::future::join_all(each).await;
        services.push(own());
        Ok(Response::new(wire::ListServicesResponse { services }))
    }

    async fn get_trace(
        &self,
        request: Request<wire::GetTraceRequest>,
    ) -> Result<Response<wire::GetTraceResponse>, Status> {
        // Spans wait a moment for company before they are sent; what ended before the question
        // was asked belongs into the answer.
        tokio::time::sleep(SPANS_WITHIN).await;
        self.traces
            .get(&request.into_inner().query)
            .map(Response::new)
    }
}

impl Server {
    async fn status_of(&self, seen: Seen) -> wire::ServiceStatus {
        let info = match seen.health {
            "SERVING" | "NOT_SERVING" => self.info_of(seen.name).await,
            _ => GetInfoResponse::default(),
        };
        wire::ServiceStatus {
            service: seen.name.to_owned(),
            version: info.version,
            health: seen.health.to_owned(),
            pid: seen.pid,
            restarts: seen.restarts,
            memory_bytes: if seen.pid == 0 {
                0
            } else {
                memory::pss(seen.pid)
            },
            started_at: seen.started_at.map(polylet_wire::time::to_wire),
            peers: info.peers,
            last_exit: seen.last_exit,
        }
    }

    async fn info_of(&self, service: &str) -> GetInfoResponse {
        let channel = polylet_kit::channel::plain(&socket_of(&self.directory, service));
        let mut lifecycle = LifecycleServiceClient::new(channel);
        let info = lifecycle.get_info(GetInfoRequest {});
        match tokio::time::timeout(INFO_WITHIN, info).await {
            Ok(Ok(info)) => info.into_inner(),
            _ => GetInfoResponse::default(),
        }
    }
}

/// This process as one of the rows.
fn own() -> wire::ServiceStatus {
    let pid = std::process::id();
    wire::ServiceStatus {
        service: "supervisor".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        health: "SERVING".to_owned(),
        pid,
        memory_bytes: memory::pss(pid),
        ..wire::ServiceStatus::default()
    }
}

/// Where a service listens.
pub(super) fn socket_of(directory: &Path, service: &str) -> PathBuf {
    directory.join(format!("{service}.sock"))
}
