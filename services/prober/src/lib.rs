//! Whether containers are well.
//!
//! Follows the pods that should run (pod-config, each source) and what the runtime holds (pleg);
//! asks each running container as its startup, liveness and readiness probes say; serves the
//! verdicts, each for one container id, and how often it asked. A verdict that is absent is the initial one: startup
//! unknown, liveness well, readiness not ready.
//!
//! One task (`run.rs`) owns everything: the engine in `core`, one timer for all probes, the
//! attempts under way. At rest a probe is two entries in maps. Verdicts are written to disk before
//! they are told, so that whatever somebody saw stands after a kill and a restart flips nothing.
//!
//! Times of probes are counted on a clock that does not jump when the node's clock is set.
//!
//! As upstream, apart from what `core::worker` and `probe` say, and from this: of a pod that is being
//! deleted a startup probe is not called a success; it just ends.

mod clock;
mod convert;
mod core;
pub mod judge;
mod kept;
mod probe;
mod run;
mod server;
mod sources;
mod spans;

use polylet_cri::Runtime;
use polylet_kit::{Api, BoxError, Call, Ctx, Keep, Manifest, Service};
use polylet_wire::prober::v1::prober_service_server::ProberServiceServer;
use tokio::sync::mpsc;

/// What this service is.
pub static MANIFEST: Manifest = Manifest {
    service: "prober",
    version: env!("CARGO_PKG_VERSION"),
    about: "whether containers are well",
    serves: &[Api {
        package: "polylet.prober.v1",
        level: 1,
    }],
    calls: &[
        Call {
            service: "pleg",
            package: "polylet.pleg.v1",
            level: 1,
        },
        Call {
            service: "pod-config",
            package: "polylet.podconfig.v1",
            level: 1,
        },
    ],
    keeps: &[Keep {
        path: "run:verdicts.json",
        what: "verdicts of running containers: a restart must not flip readiness or forget a failure",
    }],
};

/// Builds the service.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let kubelet = &ctx.config().kubelet;
    let runtime = Runtime::connect(
        &kubelet.container_runtime_endpoint,
        kubelet.runtime_request_timeout,
    );
    let verdicts = server::Verdicts::new(ctx.incarnation());
    let (askers, asked) = mpsc::channel(16);
    let task = run::Task::new(&ctx, probe::Prober::new(runtime), verdicts.clone(), asked);
    ctx.spawn("prober", task.run());
    let server = server::Server { verdicts, askers };
    Ok(Service::new().grpc(ProberServiceServer::new(server)))
}
