//! Image-gc: removes unused images when the image file system is above the configured threshold, when
//! they exceed the maximum age, and for a caller that needs space before it evicts a pod.
//!
//! One event loop (`run.rs`) decides and acts. Inputs: the pods (pod-config), whose images are
//! protected; reclaim calls; a timer. Outputs: removed images, the `WatchImages` stream, and the stored
//! ages of images.
//!
//! Every removal is decided from a list taken just before it. Images that a container uses, that a pod
//! of this node names, or that the runtime has pinned are never removed.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod config;
mod convert;
pub mod core;
#[doc(hidden)]
pub mod fuzzing;
mod input;
pub mod manager;
mod manifest;
mod metrics;
mod run;
mod runtime;
mod server;
mod sources;

use polylet_kit::{
    Api, BoxError, Ctx, Dependency, Service, ServiceDescriptor, StateFileDecl, StateFormat,
};
use polylet_watch::Store;
use polylet_wire::imagegc::v1::image_gc_service_server::ImageGcServiceServer;
use polylet_wire::levels;
use tokio::sync::mpsc;

/// The service and its dependencies.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "image-gc",
    version: env!("CARGO_PKG_VERSION"),
    about: "removes unused images when disk space is low",
    serves: &[Api {
        package: "polylet.imagegc.v1",
        level: levels::IMAGEGC,
    }],
    calls: &[Dependency {
        service: "pod-config",
        package: "polylet.podconfig.v1",
        level: levels::PODCONFIG,
    }],
    state_files: &[StateFileDecl {
        path: "state:ages.json",
        format: Some(StateFormat::only(run::RECORDS_VERSION)),
        description: "when each image was first detected and last used",
    }],
    subprocesses: &[],
};

/// Builds the service.
///
/// # Errors
/// None; a corrupt file of image ages is set aside.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    metrics::register_counts();
    let config = config::Config::new(&ctx);
    let (reclaim_calls, receiver) = mpsc::channel(16);
    let store = Store::new(ctx.incarnation());
    let event_loop = run::EventLoop::new(ctx.clone(), &config, store.clone(), receiver)?;
    ctx.spawn("run", event_loop.run());
    let server = server::Server::new(store.clone(), reclaim_calls);
    Ok(Service::new()
        .grpc(ImageGcServiceServer::new(server))
        .activity(move || format!("{} images", store.keys().len())))
}
