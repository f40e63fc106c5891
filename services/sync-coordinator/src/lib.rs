//! sync-coordinator: makes what should run, run.
//!
//! Watches what should run (pod-config), what does run (pleg), where its volumes stand
//! (volume-manager), which containers are unwell (prober) and which pods must go (eviction).
//! Everything known of one pod is a [`core::view::Pod`]; [`core::plan::plan`] says what to do for
//! it now; steps are carried out by [`act`] and come back as inputs. It alone makes, starts, stops
//! and removes sandboxes and containers and pulls images. Serves how far each pod has come.
//!
//! One task ([`run`]) owns all workers; a pod at rest costs nothing. Another one keeps the logs of
//! running containers small ([`act::logs`]).

pub mod act;
mod convert;
pub mod coordinator;
pub mod core;
mod declare;
mod heard;
mod inputs;
mod journal;
mod leftovers;
mod logs;
mod looks;
mod namesakes;
pub mod outside;
mod room;
pub mod run;
mod server;
pub mod settings;
mod slots;
mod steps;
mod taken_over;
mod underway;
mod wakes;
mod worker;

use std::rc::Rc;

use polylet_kit::{Api, BoxError, Call, Ctx, Keep, Manifest, Service};
use polylet_watch::Store;
use polylet_wire::notice::v1::Severity;
use polylet_wire::sync::v1::sync_service_server::SyncServiceServer;

use crate::coordinator::Coordinator;
use crate::settings::{Kept, Settings};

/// What this program is, serves, calls and keeps.
pub static MANIFEST: Manifest = Manifest {
    service: "sync-coordinator",
    version: env!("CARGO_PKG_VERSION"),
    about: "Makes what should run, run",
    serves: &[Api {
        package: "polylet.sync.v1",
        level: 1,
    }],
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
            service: "prober",
            package: "polylet.prober.v1",
            level: 1,
        },
        Call {
            service: "eviction",
            package: "polylet.eviction.v1",
            level: 1,
        },
    ],
    keeps: &[
        Keep {
            path: "state:pods/",
            what: "when each pod was taken up, and why one may never run again",
        },
        Keep {
            path: "run:intents/",
            what: "sandboxes being asked for, so that no number is asked for twice",
        },
        Keep {
            path: "run:started.json",
            what: "which start of Polylet people were told of: restarts of one service are none",
        },
        Keep {
            path: "run:stops/",
            what: "stops and hooks under way, so that no grace starts afresh",
        },
        Keep {
            path: "root:image_manager/",
            what: "with what each image was pulled, so that no pod gets by another's password what its own would not give it",
        },
    ],
};

/// Builds the service.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let (book, entries) = journal::Book::open(ctx.state_dir(), ctx.run_dir())?;
    let intents = book.intents()?;
    let (underway, lifecycles) = underway::Underway::open(ctx.run_dir())?;
    let store = Store::new(ctx.incarnation());
    let kept = act::image::Kept::open(ctx.config())?;
    let hands = act::Hands::new(&ctx, book, kept);
    if hands.is_start
        && let Some(words) = act::resolver::limits(&ctx.config().kubelet)
    {
        let reason = "CheckLimitsForResolvConf";
        ctx.notices().of_node(Severity::Warning, reason, words);
    }
    let settling = Rc::clone(&hands);
    ctx.background("records of pulls", async move {
        settling.images.settle().await;
    });
    // No pod's start should wait for what the runtime is asked there.
    let keeping = Rc::clone(&hands);
    ctx.spawn("cgroups", async move {
        keeping.cgroups.keep(&keeping).await;
    });
    let following = Rc::clone(&hands);
    let of = ctx.clone();
    ctx.spawn("services", async move {
        following.services.follow(of).await;
    });
    let settings = Settings {
        room: act::node::room(&ctx, &hands),
        ..Settings::of(ctx.config())
    };
    let (running, keeper) = tokio::sync::mpsc::unbounded_channel();
    ctx.spawn("logs", act::logs::keep(Rc::clone(&hands), keeper));
    let (steps, done) = tokio::sync::mpsc::unbounded_channel();
    let coordinator = Coordinator::new(
        Rc::new(outside::Background::new(hands, underway, steps, running)),
        store.clone(),
        settings,
        Kept {
            entries,
            intents,
            lifecycles,
            taken_over: taken_over::read(&ctx.config().polylet.root_directory),
        },
        jiff::Timestamp::now(),
    );
    ctx.spawn("run", run::run(ctx.clone(), coordinator, done));
    Ok(Service::new().grpc(SyncServiceServer::new(server::Server { store })))
}
