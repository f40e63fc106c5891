//! The status of pods and of the node: computed, served, and reported to the API server.
//!
//! Inputs: desired pods of each source (pod-config), sync progress (sync-coordinator), sandboxes and
//! containers (pleg), probe results (prober), and devices of pods (device-manager). Output: the
//! `v1.PodStatus` of each pod, as a state stream and as a list.
//!
//! On a node of a cluster the service alone writes to the API server:
//! - the Node with its lease, its CSINode and the statuses of resized claims (`node/`);
//! - certificate signing requests (`certificates/`);
//! - one patch for each change of a pod's status, and deletions of pods that have ended
//!   (`report/`);
//! - mirror pods of static pods (`mirror/`);
//! - events out of the notices of all services (`events/`).
//!
//! The event loop (`run.rs`) owns the state of all pods. Only pods with changed facts are recomputed,
//! and changes that arrive together are handled together. No status is published before its streams
//! have synced in this process instance, so that restarts, of this service or of a peer, do not change
//! any. Devices are the exception: the last ones stay until they are known, and nothing waits for them.
//!
//! The last statuses are persisted: they hold the times of past changes, and exits of containers that the
//! runtime has forgotten.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod api_writer;
#[cfg(test)]
mod at_rest;
mod certificates;
mod convert;
mod core;
mod events;
#[doc(hidden)]
pub mod fuzzing;
pub mod input;
mod lifecycle_counts;
mod metrics;
mod mirror;
mod node;
mod report;
mod run;
mod server;
mod sources;
pub mod state;
mod state_file;
pub mod status_store;
mod trace;

pub use core::shared_status::SharedStatus;

use polylet_kit::{
    Api, BoxError, Ctx, Dependency, Service, ServiceDescriptor, StateFileDecl, StateFormat,
};
use polylet_watch::Store;
use polylet_wire::levels;
use polylet_wire::status::v1::status_service_server::StatusServiceServer;
use tokio::sync::{mpsc, oneshot, watch};

/// Interfaces, dependencies and state files of this service.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "status-reporter",
    version: env!("CARGO_PKG_VERSION"),
    about: "computes, serves and reports the status of pods and of the node",
    serves: &[Api {
        package: "polylet.status.v1",
        level: levels::STATUS,
    }],
    calls: &[
        Dependency {
            service: "sync-coordinator",
            package: "polylet.sync.v1",
            level: levels::SYNC,
        },
        Dependency {
            service: "eviction",
            package: "polylet.eviction.v1",
            level: levels::EVICTION,
        },
        Dependency {
            service: "image-gc",
            package: "polylet.imagegc.v1",
            level: levels::IMAGEGC,
        },
        Dependency {
            service: "prober",
            package: "polylet.prober.v1",
            level: levels::PROBER,
        },
        Dependency {
            service: "device-manager",
            package: "polylet.device.v1",
            level: levels::DEVICE,
        },
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
        Dependency {
            service: "sync-coordinator",
            package: "polylet.notice.v1",
            level: levels::NOTICE,
        },
        Dependency {
            service: "eviction",
            package: "polylet.notice.v1",
            level: levels::NOTICE,
        },
        Dependency {
            service: "volume-manager",
            package: "polylet.volume.v1",
            level: levels::VOLUME,
        },
        Dependency {
            service: "volume-manager",
            package: "polylet.notice.v1",
            level: levels::NOTICE,
        },
        Dependency {
            service: "image-gc",
            package: "polylet.notice.v1",
            level: levels::NOTICE,
        },
        Dependency {
            service: "prober",
            package: "polylet.notice.v1",
            level: levels::NOTICE,
        },
        Dependency {
            service: "device-manager",
            package: "polylet.notice.v1",
            level: levels::NOTICE,
        },
        Dependency {
            service: "pleg",
            package: "polylet.notice.v1",
            level: levels::NOTICE,
        },
        Dependency {
            service: "pod-config",
            package: "polylet.notice.v1",
            level: levels::NOTICE,
        },
    ],
    state_files: &[
        StateFileDecl {
            path: "run:notices.json",
            format: Some(StateFormat::only(state_file::VERSION)),
            description: "the last notice of each service that was sent as an event, so that none is counted twice",
        },
        StateFileDecl {
            path: "run:statuses.json",
            format: Some(StateFormat::only(state_file::VERSION)),
            description: "the last status of each pod: times of past changes, and exits of containers that the runtime has forgotten",
        },
        StateFileDecl {
            path: "root:pki",
            format: None,
            description: "certificates and keys signed by the cluster (certDirectory), under upstream's names",
        },
        StateFileDecl {
            path: "run:started.json",
            format: Some(StateFormat::only(polylet_kit::boot_marker::VERSION)),
            description: "the start of Polylet that has its events: restarts of one service have none",
        },
    ],
    subprocesses: &[],
};

/// Builds the service.
///
/// # Errors
/// None today: a corrupt state file is set aside.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    metrics::register_counts();
    let statuses = status_store::StatusStore::new(Store::new(ctx.incarnation()));
    let (unsynced, unsynced_streams) = watch::channel(vec!["all streams".to_owned()]);
    let (finished, done) = oneshot::channel();
    let (busy, is_busy) = watch::channel(false);
    let (removals, removed_pods) = mpsc::unbounded_channel();
    let signals = api_writer::PodSignals { busy, removals };
    let event_loop = run::EventLoop::new(&ctx, statuses.clone(), unsynced, signals)?;
    ctx.spawn("status-reporter", event_loop.run(finished));
    let registered = node::start(&ctx);
    certificates::start(&ctx, registered);
    events::start(&ctx, is_busy, removed_pods)?;
    let server = server::Server {
        statuses,
        unsynced: unsynced_streams,
    };
    // The event loop persists pending changes first; there are none if it is gone.
    let persisted = async move { done.await.unwrap_or_default() };
    Ok(Service::new()
        .grpc(StatusServiceServer::new(server))
        .on_drain(persisted))
}
