//! Eviction says whether the node is well: it samples the node, judges pressure, asks image-gc for
//! room, and orders pods off the node. It also serves what the node and its pods use.
//!
//! Tasks:
//! - `run`: the only one that decides. Inputs are pods (pod-config), what runs (pleg), and its own
//!   timer; outputs are the `WatchPressure` stream and the orders kept in the run directory.
//! - `images`: follows image-gc's disk, that is: asks the runtime once where images live.
//! - `oom`: reads the kernel's log, and tells of processes that were killed because the whole machine
//!   was out of memory.
//!
//! At rest a round reads `/proc/meminfo`, `/proc/loadavg` and two `statvfs`: nothing per pod. Pods
//! are sampled only when one must go, or when somebody asks for the summary. Pods that limit their
//! own use of the disk are the exception: their files are counted beside the rounds, and who uses
//! more goes (`localStorageCapacityIsolation`; a static pod only with `evictStaticPods`).

mod convert;
mod core;
pub mod desk;
mod oom;
mod orders;
mod run;
mod sample;
mod server;
mod settings;
mod sources;
mod usage;

pub use crate::core::rank::Candidate;
pub use crate::core::round::{Act, Rules};
pub use crate::core::signal::{Level, Levels, Signal};
pub use crate::core::threshold::Threshold;
pub use crate::orders::{Orders, Shelf};
use polylet_kit::{Api, BoxError, Call, Ctx, Keep, Manifest, Service};
use polylet_wire::eviction::v1::eviction_service_server::EvictionServiceServer;
use polylet_wire::stats::v1::stats_service_server::StatsServiceServer;
use tokio::sync::mpsc;

/// What this service is to the others.
pub static MANIFEST: Manifest = Manifest {
    service: "eviction",
    version: env!("CARGO_PKG_VERSION"),
    about: "judges pressure on the node, orders pods off it, and serves usage statistics",
    serves: &[
        Api {
            package: "polylet.eviction.v1",
            level: 1,
        },
        Api {
            package: "polylet.stats.v1",
            level: 1,
        },
    ],
    calls: &[
        Call {
            service: "pod-config",
            package: "polylet.podconfig.v1",
            level: 1,
        },
        Call {
            service: "pleg",
            package: "polylet.pleg.v1",
            level: 1,
        },
        Call {
            service: "volume-manager",
            package: "polylet.volume.v1",
            level: 1,
        },
        Call {
            service: "image-gc",
            package: "polylet.imagegc.v1",
            level: 1,
        },
    ],
    keeps: &[
        Keep {
            path: "run:orders.json",
            what: "eviction orders that still stand",
        },
        Keep {
            path: "run:oom.json",
            what: "up to when the kernel's log has been told",
        },
        Keep {
            path: "run:pressure.json",
            what: "the node's conditions and since when they stand",
        },
    ],
};

/// Builds the service.
///
/// # Errors
/// When a threshold of the configuration cannot be read or the kept orders are broken.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let settings = settings::Settings::read(&ctx)?;
    let (questions, asked) = mpsc::channel(16);
    let task = run::Run::new(ctx.clone(), settings, asked)?;
    let store = task.store();
    ctx.spawn("run", task.run());
    ctx.spawn("oom", oom::watch(ctx.clone()));
    let server = server::Server::new(store, questions);
    Ok(Service::new()
        .grpc(EvictionServiceServer::new(server.clone()))
        .grpc(StatsServiceServer::new(server)))
}
