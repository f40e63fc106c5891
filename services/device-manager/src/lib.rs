//! Device-manager: devices that plugins offer, and their allocation to containers.
//!
//! Plugins register at `kubelet.sock` in the directory of device plugins, and list their devices for
//! as long as they run. One event loop (`run.rs`) owns what there is ([`core::inventory`]) and who has
//! it ([`core::allocations`]); sync-coordinator asks it to allocate devices before a pod is admitted,
//! and to prepare those of a container before it is created. It publishes the number of devices by resource,
//! which status-reporter puts into the Node object, and the devices of pods with their health.
//!
//! Allocations are stored in the kubelet's own checkpoint, so that a node can change between the kubelet and
//! Polylet while containers have devices. A restart of this service disturbs no plugin: it connects to
//! the plugins that its former process knew, and publishes nothing before they have listed their
//! devices. Plugins see no reason to register again then, so that a connection that fails is tried again
//! until the plugin's socket is gone.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod checkpoint;
mod config;
mod convert;
pub mod core;
#[doc(hidden)]
pub mod fuzzing;
mod input;
mod metrics;
mod plugin;
mod plugin_files;
mod run;
mod server;
mod state;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use polylet_kit::{
    Api, BoxError, Ctx, Service, ServiceDescriptor, StateFileDecl, StateFormat, report,
};
use polylet_schedule::Backoff;
use polylet_watch::Store;
use polylet_wire::device::v1::device_service_server::DeviceServiceServer;
use polylet_wire::levels;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::plugin::input::PluginInput;
use crate::plugin::{directory, registration};
use crate::run::{EventLoop, PublishedDevices};

/// The service and its dependencies.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "device-manager",
    version: env!("CARGO_PKG_VERSION"),
    about: "allocates devices of device plugins to containers",
    serves: &[Api {
        package: "polylet.device.v1",
        level: levels::DEVICE,
    }],
    calls: &[],
    state_files: &[
        StateFileDecl {
            path: "run:plugins.json",
            format: Some(StateFormat::only(plugin_files::VERSION)),
            description: "sockets of the device plugins, to which the next process connects",
        },
        StateFileDecl {
            path: "run:listed-plugins.json",
            format: Some(StateFormat::only(plugin_files::VERSION)),
            description: "resources of which device plugins have listed devices since the node booted",
        },
        StateFileDecl {
            path: "root:device-plugins/kubelet_internal_checkpoint",
            format: None,
            description: "the kubelet's checkpoint: which containers have which devices",
        },
    ],
    subprocesses: &[],
};

/// Delays before the directory of plugins is tried again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);

/// Builds the service.
///
/// # Errors
/// The sockets of plugins that a former process has stored cannot be read.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    metrics::register_counts();
    let config = Config::new(&ctx);
    let published = PublishedDevices {
        resources: Store::new(ctx.incarnation()),
        pods: Store::new(ctx.incarnation()),
    };
    let (inputs, receiver) = mpsc::channel(64);
    let (plugin_inputs, plugin_receiver) = mpsc::channel(64);
    let directory = config.directory.clone();
    let background = ctx.clone();
    let event_loop = EventLoop::new(
        config,
        ctx.drain(),
        Rc::new(move |name, work| background.background(name, work)),
        published.clone(),
        (inputs.clone(), receiver),
        (plugin_inputs.clone(), plugin_receiver),
    )?;
    let known: BTreeSet<PathBuf> = event_loop.known_sockets().cloned().collect();
    ctx.spawn("run", event_loop.run());
    ctx.spawn(
        "registration",
        serve_registration(ctx.clone(), directory, known, plugin_inputs),
    );
    let server = server::Server::new(published.clone(), inputs);
    let (resources, pods) = (published.resources, published.pods);
    Ok(Service::new()
        .grpc(DeviceServiceServer::new(server))
        .activity(move || {
            let (resources, pods) = (resources.keys().len(), pods.keys().len());
            format!("{resources} device resources, {pods} pods with devices")
        }))
}

/// Serves the registration of plugins, as soon as their directory can be used.
async fn serve_registration(
    ctx: Ctx,
    directory: PathBuf,
    known: BTreeSet<PathBuf>,
    inputs: mpsc::Sender<PluginInput>,
) {
    const CONDITION: &str = "DevicePluginsCannotRegister";
    let drain = ctx.drain();
    let mut backoff = Backoff::new(FIRST_RETRY, MAX_RETRY);
    let listener = loop {
        match directory::listen(&ctx, &directory, &known) {
            Ok(listener) => break listener,
            Err(error) => {
                let conditions = ctx.conditions();
                conditions.set(CONDITION, directory.display(), report(&error));
                tokio::select! {
                    () = drain.cancelled() => return,
                    () = tokio::time::sleep(backoff.next_delay()) => {}
                }
            }
        }
    };
    ctx.conditions().clear(CONDITION, directory.display());
    let path = directory.join(directory::REGISTRATION_SOCKET);
    registration::serve(listener, path, inputs, drain).await;
}
