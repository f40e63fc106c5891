use std::time::Duration;

use polylet_wire::lifecycle::v1 as wire;
use polylet_wire::lifecycle::v1::lifecycle_service_server::LifecycleService;
use tonic::{Request, Response, Status};

use crate::ctx::Ctx;
use crate::drain::Drain;

/// How long a drain may take when the caller does not say.
pub(crate) const DRAIN_FOR: Duration = Duration::from_secs(10);

/// Answers `GetInfo` and `Drain` for every service.
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
            service: inner.manifest.service.to_owned(),
            version: inner.manifest.version.to_owned(),
            incarnation: inner.incarnation.clone(),
            started_at: Some(polylet_wire::time::to_wire(inner.started_at)),
            serves: inner
                .manifest
                .serves
                .iter()
                .map(|a| api(a.package, a.level))
                .collect(),
            calls: inner
                .manifest
                .calls
                .iter()
                .map(|c| api(c.package, c.level))
                .collect(),
            peers: inner.peers.to_wire(),
            pid: std::process::id(),
        }))
    }

    async fn drain(
        &self,
        request: Request<wire::DrainRequest>,
    ) -> Result<Response<wire::DrainResponse>, Status> {
        let deadline = match request.into_inner().deadline {
            None => DRAIN_FOR,
            Some(asked) => Duration::try_from(asked)
                .map_err(|_| Status::invalid_argument("the deadline is negative"))?,
        };
        let left = self.drain.run(deadline).await;
        Ok(Response::new(wire::DrainResponse {
            clean: left.is_empty(),
            left,
        }))
    }
}
