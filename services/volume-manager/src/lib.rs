//! The volume manager: mounts, updates and unmounts the volumes of pods.
//!
//! The coordinator declares which pods need which volumes (`ApplyPod`, `ReleasePod`,
//! `CompleteDesired`). This service, and no other, mounts and writes them, unmounts and removes
//! them, and publishes their status as a stream of `PodVolumes`.
//!
//! - Inputs: declarations; subPaths of containers; ConfigMaps, Secrets and other objects from
//!   pod-config, each watched while a pod refers to it; service account tokens, refreshed before
//!   they expire; pod certificates; registrations of CSI drivers; results of operations; the
//!   volumes found on disk at the start.
//! - Tasks: the event loop in [`run`], which owns all state; one task for each operation; one for
//!   each subscription.
//! - Outputs: the directories below `<rootDirectory>/pods/<uid>/volumes`, in the kubelet's layout,
//!   and the stream.
//!
//! [`core`] decides: from the desired and the actual state of world the reconciler makes operations.
//! [`executor`] executes them. Each operation is idempotent: after a kill at any point the next
//! process finds the volumes that are there ([`reconstruct`]) and goes on. Nothing is torn down
//! before the current client of the coordinator has released the pod, or has declared everything
//! without it. Calls that can hang run in a child process ([`subprocess`]).

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod allocatable;
pub mod background;
pub mod certificates;
pub mod convert;
pub mod core;
pub mod csi;
pub mod driver_state;
pub mod event;
pub mod executor;
pub mod input;
pub mod keyed_lock;
mod metrics;
pub mod node_info;
pub mod reconstruct;
pub mod references;
pub mod run;
pub mod server;
pub mod subprocess;
mod subprocess_tasks;
pub mod subscriptions;
pub mod tokens;
pub mod volume;

use std::collections::BTreeMap;
use std::rc::Rc;

use polylet_kit::{
    Api, BoxError, Ctx, Dependency, MAX_MESSAGE_SIZE, Service, ServiceDescriptor, StateFileDecl,
    StateFormat, boot_marker, follow,
};
use polylet_watch::Store;
use polylet_wire::levels;
use polylet_wire::notice::v1::Severity;
use polylet_wire::volume::v1::volume_service_server::VolumeServiceServer;
use tokio::sync::{mpsc, watch};

use crate::background::Spawn;
use crate::core::layout::Layout;
use crate::core::state_of_world::StateOfWorld;
use crate::csi::volume::CsiDrivers;
use crate::driver_state::DriverState;
use crate::executor::OperationExecutor;
use crate::run::EventLoop;
use crate::server::Server;
use crate::subprocess::Subprocesses;
use crate::subscriptions::Subscriptions;

/// Describes this service.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "volume-manager",
    version: env!("CARGO_PKG_VERSION"),
    about: "Mounts, updates and unmounts the volumes of pods.",
    serves: &[Api {
        package: "polylet.volume.v1",
        level: levels::VOLUME,
    }],
    calls: &[Dependency {
        service: "pod-config",
        package: "polylet.podconfig.v1",
        level: levels::PODCONFIG,
    }],
    state_files: &[
        StateFileDecl {
            path: "run:started.json",
            format: Some(StateFormat::only(polylet_kit::boot_marker::VERSION)),
            description: "the start of Polylet for which node events have been emitted",
        },
        StateFileDecl {
            path: "root:pods/<uid>/plugins/polylet.dev~volume/pod.json",
            format: Some(StateFormat::only(volume::metadata::VERSION)),
            description: "the pod's name and the host paths of its volumes, which the directory does not tell",
        },
        StateFileDecl {
            path: "root:pods/<uid>/volumes/kubernetes.io~csi/<volume>/vol_data.json",
            format: None,
            description: "the driver and handle of the CSI volume mounted beside it, in the kubelet's format",
        },
    ],
    subprocesses: subprocess_tasks::TASKS,
};

/// The capacity of the event loop's queue.
const INPUT_QUEUE: usize = 256;

/// Reconstructs the actual state from disk, and starts the event loop.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    metrics::register_counts();
    let root = ctx.config().polylet.root_directory.clone();
    let root = tokio::task::spawn_blocking(move || volume::mount::make_root(&root)).await??;
    let layout = Layout::new(root.clone());
    if let Err(error) = tokio::task::spawn_blocking(move || volume::mount::share(&root)).await? {
        // Everything but propagation works without.
        let error = polylet_kit::report(&error);
        tracing::warn!(
            error,
            "failed to make the root directory shared; mounts do not propagate"
        );
    }
    if boot_marker::is_first_start(&ctx)
        && volume::mount::is_swap_on()
        && !volume::mount::supports_noswap()
    {
        let (reason, message) = core::events::MEMORY_SWAPPED;
        ctx.notices().node(Severity::Warning, reason, message);
    }
    let reconstruct_layout = layout.clone();
    let reconstructed =
        tokio::task::spawn_blocking(move || reconstruct::pods(&reconstruct_layout)).await??;
    tracing::info!(count = reconstructed.len(), "reconstructed pods from disk");
    let store = Store::new(ctx.incarnation());
    let (inputs, queue) = mpsc::channel(INPUT_QUEUE);
    let drivers = DriverState::default();
    let (allocatable_updates, updates) = watch::channel(BTreeMap::new());
    let peer = || ctx.peer("pod-config");
    let notices = ctx.notices().clone();
    let event_loop = EventLoop::new(
        StateOfWorld::new(layout.clone(), reconstructed).with_node_name(ctx.node_name()),
        store.clone(),
        OperationExecutor::new(layout.clone(), Subprocesses::new(&DESCRIPTOR))
            .with_drivers(CsiDrivers::new(ctx.node_name())),
        spawner(&ctx, "operation"),
        Subscriptions::new(references::subscribe(&ctx, peer(), inputs.clone())),
        Subscriptions::new(tokens::subscribe(&ctx, peer(), inputs.clone())),
        inputs.clone(),
    )
    .with_events(Rc::new(move |event| convert::notice(&notices, event)))
    .with_certificates(Subscriptions::new(certificates::subscribe(
        &ctx,
        peer(),
        inputs.clone(),
    )))
    .with_conditions(ctx.conditions())
    .with_driver_state(drivers.clone())
    .with_allocatable_updates(allocatable_updates);
    let registry = csi::registry::run(
        layout.plugins_registry(),
        inputs.clone(),
        spawner(&ctx, "driver"),
        ctx.drain(),
        updates,
    );
    ctx.spawn("drivers", registry);
    ctx.spawn(
        "node",
        node_info::follow(follow::podconfig::node(&ctx), inputs.clone(), ctx.drain()),
    );
    ctx.spawn("volumes", event_loop.run(queue, ctx.drain()));
    let server = VolumeServiceServer::new(Server {
        inputs,
        store: store.clone(),
        drivers,
        layout,
        allocatable: allocatable::allocatable(ctx.config()),
    });
    // Pods are declared with their manifests.
    Ok(Service::new()
        .grpc(server.max_decoding_message_size(MAX_MESSAGE_SIZE))
        .activity(move || format!("volumes of {} pods", store.keys().len())))
}

fn spawner(ctx: &Ctx, name: &'static str) -> Spawn {
    let ctx = ctx.clone();
    Rc::new(move |work| ctx.background(name, work))
}
