//! What the runtime holds: pods as the container runtime has them, inspected and served as state.
//!
//! The runtime's events, where it has any, are hints that one pod may have changed; lists are the
//! truth. A hint leads to a look at that one pod at once. A full list runs each second without
//! events and seldom with them, and leads to looks at those pods whose list entries changed.
//! The end of a container's first process, told by the kernel, is a hint too, with every runtime: it
//! leads to looks until the runtime has noticed.
//! `RefreshPod` looks now, for callers that have just done something.
//!
//! Tasks: `run` owns everything that is known and makes the calls; `events` follows the runtime's
//! event stream. Inputs: refreshes, events, ends of processes, the ends of its own calls, time. Outputs: the store of
//! pod states, and the state of the runtime itself. Nothing is kept on disk: the runtime knows.

mod convert;
/// Public for the simulation alone.
#[doc(hidden)]
pub mod core;
mod events;
mod exits;
mod look;
mod run;
mod server;
pub mod teller;

use polylet_cri::Runtime;
use polylet_kit::{Api, BoxError, Ctx, Manifest, Service};
use polylet_watch::Store;
use polylet_wire::pleg::v1::pleg_service_server::PlegServiceServer;
use tokio::sync::{mpsc, watch};

/// What this service is.
pub static MANIFEST: Manifest = Manifest {
    service: "pleg",
    version: env!("CARGO_PKG_VERSION"),
    about: "what the container runtime holds",
    serves: &[Api {
        package: "polylet.pleg.v1",
        level: 1,
    }],
    calls: &[],
    keeps: &[],
};

/// Builds the service.
///
/// # Errors
/// None today; the runtime need not be there yet.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let kubelet = &ctx.config().kubelet;
    let runtime = Runtime::connect(
        &kubelet.container_runtime_endpoint,
        kubelet.runtime_request_timeout,
    );
    let store = Store::new(ctx.incarnation());
    let (inputs, inbox) = mpsc::unbounded_channel();
    let (reports, reported) = watch::channel(Default::default());
    let wake = events::Wake::default();
    let following = events::follow(runtime.clone(), inputs.clone(), wake.clone());
    let drain = ctx.drain();
    ctx.spawn("events", async move {
        // Its last word is the drain's; nothing is left half done.
        drain.run_until_cancelled(following).await;
    });
    let exits = exits::Exits::new(exits::raise_limit(), exits::sees_all());
    let run = run::Run::new(runtime, store.clone(), reports, wake, exits);
    ctx.spawn("run", run.until(ctx.drain(), inbox));
    let server = server::Server::new(store, inputs, reported);
    Ok(Service::new().grpc(PlegServiceServer::new(server)))
}
