//! Prober: probes running containers and publishes the results.
//!
//! Follows the desired pods (pod-config, each source) and the pods in the runtime (pleg), runs the
//! startup, liveness and readiness probes of each running container, and publishes their results, each
//! for one container id, and metrics. Without a result the initial one applies: startup unknown,
//! liveness success, readiness failure.
//!
//! One event loop (`run.rs`) owns everything: the probe manager, one timer for all probes, the
//! attempts in flight. An idle probe is two map entries. Results are written to disk before they are
//! published, so that a kill and restart changes none of the published results. One file has them all: the
//! first change is written at once, and those that follow soon are written together.
//!
//! Probes are scheduled on a clock that is unaffected by changes of the wall clock.
//!
//! Behaves as upstream, except for what `core::worker` and `probe` state, and except that the startup
//! probe of a pod that is being deleted is not reported as successful; it just ends.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod clock;
/// Public for the simulation only.
#[doc(hidden)]
pub mod convert;
#[doc(hidden)]
pub mod core;
#[doc(hidden)]
pub mod fuzzing;
mod input;
pub mod manager;
mod probe;
pub mod publisher;
mod run;
mod server;
mod sources;
mod spans;
mod state_file;

use polylet_cri::RuntimeClient;
use polylet_kit::{
    Api, BoxError, Ctx, Dependency, Service, ServiceDescriptor, StateFileDecl, StateFormat,
};
use polylet_wire::levels;
use polylet_wire::prober::v1::prober_service_server::ProberServiceServer;
use tokio::sync::{mpsc, oneshot};

/// The service and its dependencies.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "prober",
    version: env!("CARGO_PKG_VERSION"),
    about: "probes containers and publishes the results",
    serves: &[Api {
        package: "polylet.prober.v1",
        level: levels::PROBER,
    }],
    calls: &[
        Dependency {
            service: "pleg",
            package: "polylet.pleg.v1",
            level: levels::PLEG,
        },
        Dependency {
            service: "pod-config",
            package: "polylet.podconfig.v1",
            level: levels::PODCONFIG,
        },
    ],
    state_files: &[StateFileDecl {
        path: "run:probe-results.json",
        format: Some(StateFormat::only(state_file::VERSION)),
        description: "probe results of running containers: a restart must not change readiness or forget a failure",
    }],
    subprocesses: &[],
};

/// Builds the service.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let kubelet = &ctx.config().kubelet;
    let runtime = RuntimeClient::connect(
        &kubelet.container_runtime_endpoint,
        kubelet.runtime_request_timeout,
    );
    let store = publisher::ProbeStatusStore::new(ctx.incarnation());
    let (counts_requests, receiver) = mpsc::channel(16);
    let prober = probe::Prober::new(runtime);
    let event_loop = run::EventLoop::new(&ctx, prober, store.clone(), receiver)?;
    let (finished, done) = oneshot::channel();
    ctx.spawn("prober", event_loop.run(finished));
    let server = server::Server {
        store: store.clone(),
        counts_requests,
    };
    let saved = async move {
        // Ends with the event loop.
        let _ = done.await;
        Vec::new()
    };
    Ok(Service::new()
        .grpc(ProberServiceServer::new(server))
        .on_drain(saved)
        .activity(move || format!("{} probe results", store.keys().len())))
}
