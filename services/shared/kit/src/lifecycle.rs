use std::time::Duration;

use polylet_wire::lifecycle::v1 as wire;
use polylet_wire::lifecycle::v1::lifecycle_service_server::LifecycleService;
use tonic::{Request, Response, Status};

use crate::access::require_root_or_own_user;
use crate::ctx::Ctx;
use crate::descriptor::COMMON_APIS;
use crate::drain::Drain;
use crate::{metrics, telemetry};

/// Deadline of a drain without one in the request.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves information about the process, and what is done to it, for every service.
pub(crate) struct Lifecycle {
    pub(crate) ctx: Ctx,
    pub(crate) drain: Drain,
}

#[tonic::async_trait]
impl LifecycleService for Lifecycle {
    async fn get_info(
        &self,
        _: Request<wire::GetInfoRequest>,
    ) -> Result<Response<wire::GetInfoResponse>, Status> {
        let inner = self.ctx.inner();
        let api = |package: &str, level| wire::Api {
            package: package.to_owned(),
            level,
        };
        Ok(Response::new(wire::GetInfoResponse {
            service: inner.descriptor.service.to_owned(),
            version: inner.descriptor.version.to_owned(),
            incarnation: inner.incarnation.clone(),
            started_at: Some(polylet_wire::time::to_wire(inner.started_at)),
            serves: inner
                .descriptor
                .serves
                .iter()
                .chain(COMMON_APIS)
                .map(|a| api(a.package, a.level))
                .collect(),
            calls: inner
                .descriptor
                .calls
                .iter()
                .map(|c| api(c.package, c.level))
                .collect(),
            peers: inner.peers.to_wire(),
            pid: std::process::id(),
            conditions: self.ctx.conditions().to_wire(),
        }))
    }

    async fn drain(
        &self,
        request: Request<wire::DrainRequest>,
    ) -> Result<Response<wire::DrainResponse>, Status> {
        require_root_or_own_user(&request, "Drain")?;
        let deadline = match request.into_inner().deadline {
            None => DRAIN_TIMEOUT,
            Some(requested) => Duration::try_from(requested)
                .map_err(|_| Status::invalid_argument("deadline is negative"))?,
        };
        let unfinished = self.drain.run(deadline).await;
        Ok(Response::new(wire::DrainResponse {
            clean: unfinished.is_empty(),
            unfinished,
        }))
    }

    async fn list_metrics(
        &self,
        _: Request<wire::ListMetricsRequest>,
    ) -> Result<Response<wire::ListMetricsResponse>, Status> {
        let families = metrics::families();
        Ok(Response::new(wire::ListMetricsResponse { families }))
    }

    async fn set_log_verbosity(
        &self,
        request: Request<wire::SetLogVerbosityRequest>,
    ) -> Result<Response<wire::SetLogVerbosityResponse>, Status> {
        let wire::SetLogVerbosityRequest { verbosity } = request.into_inner();
        telemetry::set_verbosity(verbosity)
            .map_err(|error| Status::failed_precondition(crate::report(&error)))?;
        Ok(Response::new(wire::SetLogVerbosityResponse {}))
    }
}
