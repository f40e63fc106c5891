//! The status of pods, joined from all facts.
//!
//! Follows what should run (pod-config, each source), how far each pod has come
//! (sync-coordinator), what the runtime holds (pleg) and how containers are
//! (prober); joins them into the `v1.PodStatus` that the API would hold; serves
//! that as a state stream and as a list.
//!
//! Where the node belongs to a cluster, it keeps the Node object and the lease there (`node/`), asks for
//! its certificates (`certificates/`), tells the cluster each real change of a pod's status in one patch and removes pods of which nothing is
//! left (`report/`), keeps the mirrors of static pods (`mirror/`), and tells people's events out of what
//! all services have to say (`events/`).
//!
//! One task (`run.rs`) owns all of pods. Only pods whose facts changed are joined
//! anew, and changes that arrive together are joined once. Nothing is said before
//! every stream that a pod's status needs has been heard in this life of the
//! process, so a restart, here or at a peer, flips nothing.
//!
//! Statuses are kept beside: they hold the times of past changes, and what was
//! known of containers that the runtime has since forgotten.

mod certificates;
mod cluster;
mod convert;
mod core;
pub mod desk;
mod events;
mod keep;
mod mirror;
mod node;
mod report;
mod run;
mod server;
mod sources;
mod trace;

use polylet_kit::{Api, BoxError, Call, Ctx, Keep, Manifest, Service};
use polylet_wire::status::v1::status_service_server::StatusServiceServer;
use tokio::sync::{oneshot, watch};

/// What this service is to the others.
pub static MANIFEST: Manifest = Manifest {
    service: "status-reporter",
    version: env!("CARGO_PKG_VERSION"),
    about: "the status of pods, joined from all facts",
    serves: &[Api {
        package: "polylet.status.v1",
        level: 1,
    }],
    calls: &[
        Call {
            service: "sync-coordinator",
            package: "polylet.sync.v1",
            level: 1,
        },
        Call {
            service: "eviction",
            package: "polylet.eviction.v1",
            level: 1,
        },
        Call {
            service: "image-gc",
            package: "polylet.imagegc.v1",
            level: 1,
        },
        Call {
            service: "prober",
            package: "polylet.prober.v1",
            level: 1,
        },
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
        Call {
            service: "sync-coordinator",
            package: "polylet.notice.v1",
            level: 1,
        },
        Call {
            service: "eviction",
            package: "polylet.notice.v1",
            level: 1,
        },
        Call {
            service: "volume-manager",
            package: "polylet.volume.v1",
            level: 1,
        },
        Call {
            service: "volume-manager",
            package: "polylet.notice.v1",
            level: 1,
        },
        Call {
            service: "image-gc",
            package: "polylet.notice.v1",
            level: 1,
        },
        Call {
            service: "prober",
            package: "polylet.notice.v1",
            level: 1,
        },
        Call {
            service: "pleg",
            package: "polylet.notice.v1",
            level: 1,
        },
        Call {
            service: "pod-config",
            package: "polylet.notice.v1",
            level: 1,
        },
    ],
    keeps: &[
        Keep {
            path: "run:notices.json",
            what: "how far each service's notices were told: an event that counts is not counted twice",
        },
        Keep {
            path: "run:statuses.json",
            what: "the last status of each pod: times of past changes, and ends of containers that the runtime forgot",
        },
        Keep {
            path: "root:pki",
            what: "certificates and keys that the cluster signed (certDirectory), as upstream names them",
        },
        Keep {
            path: "run:started.json",
            what: "which start of Polylet was told to people: restarts of one service are none",
        },
    ],
};

/// Builds the service.
///
/// # Errors
/// Never, today: a broken file of statuses is set aside and statuses are told from the facts alone.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let statuses = server::Statuses::new(ctx.incarnation());
    let (missing, unheard) = watch::channel(vec!["everything".to_owned()]);
    let (finished, done) = oneshot::channel();
    let (busy, is_busy) = watch::channel(false);
    let task = run::Task::new(&ctx, statuses.clone(), missing, busy);
    ctx.spawn("status-reporter", task.run(finished));
    let registered = node::start(&ctx);
    certificates::start(&ctx, registered);
    events::start(&ctx, is_busy);
    let server = server::Server { statuses, unheard };
    // The task keeps what is not kept yet; should it be gone, nothing is left that could be told.
    let last = async move { done.await.unwrap_or_default() };
    Ok(Service::new()
        .grpc(StatusServiceServer::new(server))
        .on_drain(last))
}
