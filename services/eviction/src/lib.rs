//! Eviction: observes the node's resources, sets its pressure conditions, frees image space through
//! image-gc and evicts pods. Also serves the stats summary of the node and its pods.
//!
//! Tasks:
//! - `run`: the event loop, which decides and never waits. Inputs: pods (pod-config), pods in the runtime
//!   (pleg), a timer, and what was measured. Outputs: the `WatchPressure` stream, and the evictions stored
//!   in the run directory.
//! - `summary`: answers `GetSummary` and `GetExposition`. One measurement serves all who wait for it.
//! - `oom`: reads the kernel log and reports processes killed because the machine was out of memory.
//!
//! Files of pods are walked in child processes that can be killed, on the node's own disk only; a file
//! system that is mounted as a volume is asked for its space in a child of its own. What does not answer
//! within its deadline is unknown and a health condition: an unknown signal changes no node condition,
//! and a pod of unknown usage is ranked as such. While the runtime does not report writable layers, nobody
//! is evicted for the file system that has them.
//!
//! An idle sync iteration reads `/proc/meminfo`, `/proc/loadavg` and two `statvfs`, and nothing per
//! pod. Pods are measured only when one must be evicted or a caller requests the summary. The
//! exception are pods with local storage limits: their files are measured in the background, and those
//! above a limit are evicted (`localStorageCapacityIsolation`; static pods only with
//! `evictStaticPods`).

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
mod core;
mod evictions;
#[doc(hidden)]
pub mod fuzzing;
mod input;
mod kmsg;
mod local_storage;
pub mod manager;
mod manifest;
mod metrics;
mod reclaim;
mod run;
mod sample;
mod server;
mod sources;
mod usage;

pub use crate::core::rank::Candidate;
pub use crate::core::signal::{Observation, Observations, Signal};
pub use crate::core::synchronize::{Action, EvictionConfig};
pub use crate::core::threshold::Threshold;
pub use crate::evictions::{EvictionStore, Evictions};
pub use crate::manager::StartedEviction;
use polylet_kit::subprocess::SubprocessEntry;
use polylet_kit::{
    Api, BoxError, Ctx, Dependency, Service, ServiceDescriptor, StateFileDecl, StateFormat,
};
use polylet_watch::Store;
use polylet_wire::eviction::v1::eviction_service_server::EvictionServiceServer;
use polylet_wire::levels;
use polylet_wire::stats::v1::stats_service_server::StatsServiceServer;
use tokio::sync::mpsc;

use crate::sample::disk_usage::{DiskUsageTask, MountedSpaceTask};
use crate::usage::{Sampler, SummaryRequests};

/// The service and its dependencies.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "eviction",
    version: env!("CARGO_PKG_VERSION"),
    about: "sets pressure conditions, evicts pods and serves usage statistics",
    serves: &[
        Api {
            package: "polylet.eviction.v1",
            level: levels::EVICTION,
        },
        Api {
            package: "polylet.stats.v1",
            level: levels::STATS,
        },
    ],
    calls: &[
        Dependency {
            service: "pod-config",
            package: "polylet.podconfig.v1",
            level: levels::PODCONFIG,
        },
        Dependency {
            service: "pleg",
            package: "polylet.pleg.v1",
            level: levels::PLEG,
        },
        Dependency {
            service: "volume-manager",
            package: "polylet.volume.v1",
            level: levels::VOLUME,
        },
        Dependency {
            service: "image-gc",
            package: "polylet.imagegc.v1",
            level: levels::IMAGEGC,
        },
    ],
    state_files: &[
        StateFileDecl {
            path: "run:evictions.json",
            format: Some(StateFormat::only(evictions::VERSION)),
            description: "evictions in progress",
        },
        StateFileDecl {
            path: "run:oom.json",
            format: Some(StateFormat::only(kmsg::VERSION)),
            description: "position in the kernel log",
        },
        StateFileDecl {
            path: "run:pressure.json",
            format: Some(StateFormat::only(run::CONDITIONS_VERSION)),
            description: "pressure conditions and since when they are active",
        },
    ],
    subprocesses: &[
        SubprocessEntry::new::<DiskUsageTask>(),
        SubprocessEntry::new::<MountedSpaceTask>(),
    ],
};

/// Builds the service.
///
/// # Errors
/// When a threshold in the configuration is invalid.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let config = config::Config::new(&ctx)?;
    metrics::register_counts(sample::cgroup::CgroupMounts::detect().is_unified());
    let store = Store::new(ctx.incarnation());
    let (summary_requests, receiver) = mpsc::channel(16);
    let (pod_requests, pod_receiver) = mpsc::channel(4);
    let sampler = Sampler::new(&config, &ctx);
    let summaries = SummaryRequests::new(sampler.clone(), ctx.node_name(), pod_requests);
    ctx.spawn("summary", summaries.run(receiver, ctx.drain()));
    let event_loop =
        run::EventLoop::new(ctx.clone(), config, store.clone(), sampler, pod_receiver)?;
    ctx.spawn("run", event_loop.run());
    ctx.spawn("oom", kmsg::watch(ctx.clone()));
    let server = server::Server::new(store, summary_requests);
    Ok(Service::new()
        .grpc(EvictionServiceServer::new(server.clone()))
        .grpc(StatsServiceServer::new(server)))
}
