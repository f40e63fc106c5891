//! sync-coordinator: brings the pods on the node to their desired state.
//!
//! It watches desired pods (pod-config), the state of the runtime (pleg), volume states
//! (volume-manager), probe results (prober) and evictions (eviction). Everything known about a pod is
//! a [`core::view::PodSyncStatus`]; [`core::pod_worker::plan`] decides what to do for it now; [`runtime`]
//! executes the steps, whose results come back as inputs. No other service creates, starts, stops or
//! removes sandboxes and containers, or pulls images. It serves the sync status of each pod.
//!
//! One task (`run`) owns the [`coordinator`]; a pod at rest costs nothing. Another task rotates the
//! logs of running containers ([`runtime::logs`]).

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod checkpoint;
mod clock_monitor;
pub mod config;
mod convert;
pub mod coordinator;
pub mod core;
pub mod effects;
#[doc(hidden)]
pub mod fuzzing;
pub mod input;
mod run;
pub mod runtime;
mod server;
mod state;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::rc::Rc;

use polylet_kit::{
    Api, BoxError, Ctx, Dependency, Service, ServiceDescriptor, StateFileDecl, StateFormat,
};
use polylet_watch::Store;
use polylet_wire::levels;
use polylet_wire::notice::v1::Severity;
use polylet_wire::sync::v1::sync_service_server::SyncServiceServer;

use crate::checkpoint::RestoredState;
use crate::checkpoint::kubelet_checkpoint;
use crate::checkpoint::lifecycle_store::LifecycleStore;
use crate::checkpoint::pod_store::CheckpointStore;
use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::effects::Executor;
use crate::run::EventLoop;
use crate::runtime::RuntimeManager;

/// The service's APIs, dependencies and state files.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "sync-coordinator",
    version: env!("CARGO_PKG_VERSION"),
    about: "Brings pods to their desired state",
    serves: &[Api {
        package: "polylet.sync.v1",
        level: levels::SYNC,
    }],
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
            service: "device-manager",
            package: "polylet.device.v1",
            level: levels::DEVICE,
        },
        Dependency {
            service: "prober",
            package: "polylet.prober.v1",
            level: levels::PROBER,
        },
        Dependency {
            service: "eviction",
            package: "polylet.eviction.v1",
            level: levels::EVICTION,
        },
    ],
    state_files: &[
        StateFileDecl {
            path: "state:checkpoints/",
            format: Some(StateFormat::only(checkpoint::pod_store::VERSION)),
            description: "when each pod was admitted, its allocated resources, and why one may never run again",
        },
        StateFileDecl {
            path: "run:sandbox_attempts/",
            format: Some(StateFormat::only(checkpoint::pod_store::VERSION)),
            description: "attempt numbers of sandboxes in creation, so that none is requested twice",
        },
        StateFileDecl {
            path: "run:started.json",
            format: Some(StateFormat::only(polylet_kit::boot_marker::VERSION)),
            description: "the boot that node events were recorded for: a restart of the service records none",
        },
        StateFileDecl {
            path: "run:lifecycles/",
            format: Some(StateFormat::only(checkpoint::lifecycle_store::VERSION)),
            description: "stops and hooks in progress, so that no grace period restarts",
        },
        StateFileDecl {
            path: "root:image_manager/",
            format: None,
            description: "the credentials that each image was pulled with, so that no pod uses an image by those of another",
        },
        StateFileDecl {
            path: "root:checkpoints/",
            format: None,
            description: "the directory into which the runtime writes checkpoints of containers",
        },
    ],
    subprocesses: &[],
};

/// Builds the service.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    runtime::metrics::register_counts();
    let (checkpoints, stored) = CheckpointStore::open(ctx.state_dir(), ctx.run_dir())?;
    let (lifecycle_store, lifecycles) = LifecycleStore::open(ctx.run_dir())?;
    let restored = RestoredState {
        checkpoints: stored.pods,
        pending_sandboxes: stored.attempts,
        lifecycles,
        kubelet_allocations: kubelet_checkpoint::read(&ctx.config().polylet.root_directory),
    };
    let image_state = runtime::image::ImageState::open(ctx.config())?;
    let manager = RuntimeManager::new(&ctx, checkpoints, image_state);
    check_resolv_conf(&ctx, &manager);
    create_checkpoint_directory(&ctx);
    spawn_runtime_tasks(&ctx, &manager);
    let (running, log_targets) = tokio::sync::mpsc::unbounded_channel();
    ctx.spawn("logs", runtime::logs::run(Rc::clone(&manager), log_targets));

    let config = Config::new(
        ctx.config(),
        runtime::capacity::node_resources(&ctx, &manager),
    );
    let store = Store::new(ctx.incarnation());
    let (results_tx, results) = tokio::sync::mpsc::unbounded_channel();
    let executor = Executor::new(manager, lifecycle_store, results_tx, running);
    let coordinator = Coordinator::new(
        Rc::new(executor),
        store.clone(),
        config,
        restored,
        jiff::Timestamp::now(),
    );
    let event_loop = EventLoop::new(ctx.clone(), coordinator, results);
    ctx.spawn("run", event_loop.run());
    let pods = store.clone();
    Ok(Service::new()
        .grpc(SyncServiceServer::new(server::Server { store }))
        .activity(move || format!("{} pods", pods.keys().len())))
}

/// Records an event of the node if its resolv.conf exceeds what resolvers accept.
fn check_resolv_conf(ctx: &Ctx, manager: &RuntimeManager) {
    if manager.is_agent_start
        && let Some(message) = runtime::dns::check_limits(&ctx.config().kubelet)
    {
        let reason = "CheckLimitsForResolvConf";
        ctx.notices().node(Severity::Warning, reason, message);
    }
}

/// Creates the directory into which the runtime writes checkpoints of containers, for root alone. A failure shows
/// in the requests for them.
fn create_checkpoint_directory(ctx: &Ctx) {
    let config = ctx.config();
    if config.kubelet.feature_gates.get("ContainerCheckpoint") == Some(&false) {
        return;
    }
    let directory = config.polylet.root_directory.join("checkpoints");
    let created = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory);
    if let Err(error) = created {
        let directory = directory.display();
        tracing::warn!(%directory, %error, "cannot create the directory of container checkpoints");
    }
}

/// Starts the tasks that no start of a pod should wait for.
fn spawn_runtime_tasks(ctx: &Ctx, manager: &Rc<RuntimeManager>) {
    let (images, drain) = (Rc::clone(manager), ctx.drain());
    ctx.spawn("image pull records", async move {
        drain
            .run_until_cancelled(images.images.reconcile_records())
            .await;
    });
    let cgroups = Rc::clone(manager);
    ctx.spawn("cgroups", async move {
        cgroups.cgroups.run(&cgroups).await;
    });
    let services = Rc::clone(manager);
    let watch_ctx = ctx.clone();
    ctx.spawn("services", async move {
        services.services.watch(watch_ctx).await;
    });
}
