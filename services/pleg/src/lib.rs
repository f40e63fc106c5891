//! Pod lifecycle event generator: the state of pods in the container runtime, inspected and published
//! as a state stream.
//!
//! Lists are the source of truth. A full list runs every second without runtime events and every 30
//! seconds with them; pods whose list entries changed are inspected. An event of the runtime has the
//! sandbox or container inspected that it names, unless its change is known already. So has the exit of
//! a container's first process, which the kernel reports with every runtime: without events until the
//! runtime has noticed, with them only if the event does not come. `RefreshPod` inspects what a caller
//! has just changed, which an event may have described already. For the node API, streams to containers
//! are prepared: it connects to the runtime's streaming server itself; and the runtime writes checkpoints of
//! containers.
//!
//! Tasks: `run` owns the state and makes the calls; `events` follows the runtime's event stream.
//! Inputs: refreshes, events, process exits, results of calls, time. Outputs: pod states and the
//! runtime's status. Nothing is stored: the runtime has it all.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod checkpoint;
mod convert;
/// Public for the simulation only.
#[doc(hidden)]
pub mod core;
mod events;
mod exit_watcher;
#[doc(hidden)]
pub mod fuzzing;
mod input;
pub mod manager;
mod metrics;
mod pidfd;
mod pod_lookup;
mod run;
mod runtime;
mod server;
mod streaming;
mod trace;

use jiff::Timestamp;
use polylet_cri::{RuntimeClient, listener_pid};
use polylet_kit::subprocess::SubprocessEntry;
use polylet_kit::{Api, BoxError, Ctx, Service, ServiceDescriptor};
use polylet_watch::Store;
use polylet_wire::levels;
use polylet_wire::pleg::v1::checkpoint_service_server::CheckpointServiceServer;
use polylet_wire::pleg::v1::pleg_service_server::PlegServiceServer;
use polylet_wire::pleg::v1::streaming_service_server::StreamingServiceServer;
use tokio::sync::{mpsc, watch};

/// The service and its dependencies.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "pleg",
    version: env!("CARGO_PKG_VERSION"),
    about: "reports the state of pods in the container runtime",
    serves: &[Api {
        package: "polylet.pleg.v1",
        level: levels::PLEG,
    }],
    calls: &[],
    state_files: &[],
    subprocesses: &[SubprocessEntry::new::<runtime::TerminationFileTask>()],
};

/// Builds the service.
///
/// # Errors
/// None; the runtime need not be available yet.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    metrics::register_counts();
    let kubelet = &ctx.config().kubelet;
    let runtime = RuntimeClient::connect(
        &kubelet.container_runtime_endpoint,
        kubelet.runtime_request_timeout,
    );
    let store = Store::new(ctx.incarnation());
    let (inputs, receiver) = mpsc::unbounded_channel();
    let (runtime_status, runtime_status_receiver) = watch::channel(Default::default());
    let wake = events::EventWake::default();
    let events = events::follow(runtime.clone(), inputs.clone(), wake.clone());
    let drain = ctx.drain();
    ctx.spawn("events", async move {
        drain.run_until_cancelled(events).await;
    });
    let manager = manager::Pleg::new(store.clone(), runtime_status, Timestamp::now());
    let runtime_pid = listener_pid(&kubelet.container_runtime_endpoint).await;
    let exits = exit_watcher::ExitWatcher::new(
        pidfd::raise_open_file_limit(),
        pidfd::in_host_pid_namespace() || runtime_pid.is_some_and(pidfd::shares_pid_namespace),
    );
    let root = &ctx.config().polylet.root_directory;
    let messages = runtime::TerminationMessageReader::new(root, ctx.drain());
    let event_loop = run::EventLoop::new(runtime.clone(), manager, wake, exits, messages);
    ctx.spawn("run", event_loop.run(ctx.drain(), receiver));
    let refresher = server::Refresher(inputs);
    let pods = pod_lookup::PodLookup::new(store.clone(), refresher.clone());
    let checkpoints = checkpoint::CheckpointServer::new(
        pods.clone(),
        runtime.clone(),
        checkpoint::directory(root),
        kubelet.runtime_request_timeout,
    );
    let streaming =
        streaming::StreamingServer::new(pods, runtime, kubelet.streaming_connection_idle_timeout);
    let server = server::Server::new(store.clone(), refresher, runtime_status_receiver);
    Ok(Service::new()
        .grpc(PlegServiceServer::new(server))
        .grpc(StreamingServiceServer::new(streaming))
        .grpc(CheckpointServiceServer::new(checkpoints))
        .activity(move || format!("{} pods in the runtime", store.keys().len())))
}
