//! The files of pods.
//!
//! The coordinator declares which pods need which volumes (`ApplyPod`, `ReleasePod`,
//! `CompleteDesired`); this service, and no other, mounts, writes, unmounts and removes, and tells
//! how far it is as a stream of `PodVolumes`.
//!
//! - Inputs: declarations; requests for parts of volumes that a container mounts; ConfigMaps and Secrets from pod-config, each watched while a pod refers
//!   to it; tokens of service accounts, asked for again before they end; certificates of pods; CSI
//!   drivers that register; outcomes of steps; what was on disk and mounted at the start.
//! - Tasks: [`run`], which owns all state; one short task per step; one per watched object.
//! - Outputs: the directories under `<rootDirectory>/pods/<uid>/volumes`, in upstream's layout, and
//!   the stream.
//!
//! [`core`] decides: what is wished ([`core::declare`], [`core::manifest`], [`core::payload`]) and
//! what is there give steps ([`core::plan`]). [`volume`] acts. A step can be done again without
//! harm, so a process that is killed at any point is followed by one that finds what is there and
//! goes on. Nothing is taken away before the declarer that counts has released the pod, or has
//! declared everything without it. What can hang on somebody else runs in a child ([`job`]).

pub mod alone;
pub mod certificates;
pub mod convert;
pub mod core;
pub mod csi;
pub mod job;
pub mod node;
pub mod objects;
pub mod place;
pub mod run;
pub mod server;
pub mod tokens;
pub mod volume;
pub mod watches;
pub mod worker;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::rc::Rc;

use polylet_kit::{
    Api, BoxError, Call, Ctx, Keep, LARGEST_MESSAGE, Manifest, Service, follow, started,
};
use polylet_watch::Store;
use polylet_wire::notice::v1::Severity;
use polylet_wire::volume::v1::volume_service_server::VolumeServiceServer;
use tokio::sync::{mpsc, watch};

use crate::convert::CsiTold;
use crate::core::layout::Layout;
use crate::core::state::State;
use crate::csi::volume::Drivers;
use crate::job::Jobs;
use crate::run::Runner;
use crate::server::Server;
use crate::watches::Watches;
use crate::worker::Worker;

/// What this service is.
pub static MANIFEST: Manifest = Manifest {
    service: "volume-manager",
    version: env!("CARGO_PKG_VERSION"),
    about: "The files of pods: sets volumes up, keeps them up to date, takes them away.",
    serves: &[Api {
        package: "polylet.volume.v1",
        level: 1,
    }],
    calls: &[Call {
        service: "pod-config",
        package: "polylet.podconfig.v1",
        level: 1,
    }],
    keeps: &[
        Keep {
            path: "run:started.json",
            what: "which start of Polylet was told of already",
        },
        Keep {
            path: "root:pods/<uid>/plugins/polylet.dev~volume/pod.json",
            what: "whose a pod directory is, and which paths of the node are its volumes: the directory does not tell",
        },
        Keep {
            path: "root:pods/<uid>/volumes/kubernetes.io~csi/<volume>/vol_data.json",
            what: "which volume of which CSI driver is mounted beside it, in upstream's words",
        },
    ],
};

/// How many inputs may wait.
const INPUTS: usize = 256;

/// The process: one job in a child that can be given up, or the service.
pub fn main() -> ExitCode {
    match job::in_arguments() {
        Some(code) => code,
        None => polylet_kit::main(&MANIFEST, build),
    }
}

/// Finds what is there, and starts the task.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let root = &ctx.config().polylet.root_directory;
    // The mount table knows no links.
    let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.clone());
    let layout = Layout::new(root.clone());
    if let Err(error) = tokio::task::spawn_blocking(move || volume::mount::share(&root)).await? {
        // Everything but propagation works without.
        tracing::warn!(
            error = polylet_kit::report(&error),
            "mounts do not propagate"
        );
    }
    if started::for_the_first_time(&ctx)
        && volume::mount::is_swapped()
        && !volume::mount::can_stay_in_memory()
    {
        let (reason, words) = core::telling::ON_DISK;
        ctx.notices().of_node(Severity::Warning, reason, words);
    }
    let finding = layout.clone();
    let found = tokio::task::spawn_blocking(move || volume::find::all(&finding)).await??;
    tracing::info!(pods = found.len(), "found on disk");
    let store = Store::new(ctx.incarnation());
    let (inputs, heard) = mpsc::channel(INPUTS);
    let spawner = ctx.clone();
    let (told, registry) = (CsiTold::default(), layout.plugins_registry());
    let (tokens, notices) = (inputs.clone(), ctx.notices().clone());
    let certificates = certificates::from_peer(&ctx, ctx.peer("pod-config"), inputs.clone());
    let (recounts, recounted) = watch::channel(BTreeMap::new());
    let runner = Runner::new(
        State::new(layout.clone(), found).on(ctx.node_name()),
        store.clone(),
        Worker::new(layout.clone(), Jobs::default()).with(Drivers::of(ctx.node_name())),
        Rc::new(move |work| spawner.background("step", work)),
        Watches::new(objects::from_peer(
            &ctx,
            ctx.peer("pod-config"),
            inputs.clone(),
        )),
        Watches::new(tokens::from_peer(&ctx, ctx.peer("pod-config"), tokens)),
        inputs.clone(),
    )
    .telling(Rc::new(move |told| convert::notice(&notices, told)))
    .with_certificates(Watches::new(certificates))
    .telling_of_drivers(told.clone())
    .recounting(recounts);
    let spawner = ctx.clone();
    let spawn = Rc::new(move |work| spawner.background("driver", work));
    let registry = csi::registry::follow(registry, inputs.clone(), spawn, ctx.drain(), recounted);
    ctx.spawn("drivers", registry);
    ctx.spawn(
        "node",
        place::follow(follow::podconfig::node(&ctx), inputs.clone(), ctx.drain()),
    );
    ctx.spawn("volumes", runner.run(heard, ctx.drain()));
    let node = node::allocatable(ctx.config());
    let server = VolumeServiceServer::new(Server {
        inputs,
        store,
        csi: told,
        layout,
        node,
    });
    // Pods are declared with their manifests.
    Ok(Service::new().grpc(server.max_decoding_message_size(LARGEST_MESSAGE)))
}
