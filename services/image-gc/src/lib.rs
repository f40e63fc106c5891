//! Image-gc keeps room for images: it removes unused ones between the configured thresholds, and on
//! request before anybody evicts a pod.
//!
//! Tasks:
//! - `run`: the only one that decides and acts. Inputs are the pods (pod-config, whose images are
//!   wanted), requests to reclaim, and a slow timer; it looks at the runtime before each decision.
//!   Outputs are removed images, the `WatchImages` stream, and the ages kept in the state directory.
//!
//! A removal is always decided on a look taken just before it: what a container uses, what a pod of
//! this node names, and what the runtime has pinned never goes.

mod convert;
pub mod core;
pub mod desk;
mod run;
mod runtime;
mod server;

use polylet_kit::{Api, BoxError, Call, Ctx, Keep, Manifest, Service};
use polylet_wire::imagegc::v1::image_gc_service_server::ImageGcServiceServer;
use tokio::sync::mpsc;

/// What this service is to the others.
pub static MANIFEST: Manifest = Manifest {
    service: "image-gc",
    version: env!("CARGO_PKG_VERSION"),
    about: "removes unused images when room is short",
    serves: &[Api {
        package: "polylet.imagegc.v1",
        level: 1,
    }],
    calls: &[Call {
        service: "pod-config",
        package: "polylet.podconfig.v1",
        level: 1,
    }],
    keeps: &[Keep {
        path: "state:ages.json",
        what: "when each image was first seen and last used",
    }],
};

/// Builds the service.
///
/// # Errors
/// Never, today: a broken file of ages is set aside and ages start anew.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let (questions, asked) = mpsc::channel(16);
    let task = run::Run::new(ctx.clone(), asked);
    let store = task.store();
    ctx.spawn("run", task.run());
    let server = server::Server::new(store, questions);
    Ok(Service::new().grpc(ImageGcServiceServer::new(server)))
}
