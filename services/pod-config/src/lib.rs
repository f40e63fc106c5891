//! The pods that should run on this node.
//!
//! pod-config reads static pods from a directory (or one file) and from a URL, assigns their
//! identity, validates them, and serves one stream of pods per source, together with the Secrets,
//! ConfigMaps and RuntimeClasses that manifests define and a list of manifest errors. On a node of a
//! cluster it lists and watches the API server's objects for this node ([`cluster`]): its pods, mirror
//! pods, the Node, Services, and the objects that pods refer to; and requests tokens and certificates
//! for pods.
//!
//! | task | input | output |
//! | --- | --- | --- |
//! | `directory` ([`source::directory`]) | `staticPodPath`: inotify and periodic scans | [`input::Input`] |
//! | `http` ([`source::http`]) | `staticPodURL`, every `httpCheckFrequency` | [`input::Input`] |
//! | `run` ([`run`]) | [`input::Input`] | the stores behind the streams; state to persist |
//! | `pods`, `node`, `services`, `objects` ([`cluster`]) | the API server: lists and watches | the stores behind the streams; state to persist |
//! | `certificates` ([`cluster`]) | subscriptions, PodCertificateRequests | certificates, with keys in memory only |
//! | `persist …` ([`persist`]) | state of the static sources | `state:file.json`, `state:http.json` |
//! | `persist …` ([`persist`]) | state of the API server's objects | `state:api.json` and `objects.json` (logs), `node.json`, `services.json`, `tokens.json` |
//!
//! `state:cluster.json` identifies the cluster that the state belongs to ([`cluster`]).
//!
//! A source serves nothing before it was read by this process; a source that is not configured is
//! empty from the start. During an outage of the API server its last state is served, after a restart
//! from the state files and marked as stale.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod cluster;
pub mod config;
mod convert;
pub mod core;
pub mod input;
pub mod persist;
pub mod run;
pub mod server;
pub mod source;
pub mod state;
mod trace;

use polylet_api::ClientConfig;
use polylet_kit::{Api, BoxError, Ctx, Service, ServiceDescriptor, StateFileDecl, StateFormat};
use polylet_wire::levels;
use polylet_wire::podconfig::v1::object_service_server::ObjectServiceServer;
use polylet_wire::podconfig::v1::pod_config_service_server::PodConfigServiceServer;
use tokio::sync::mpsc;

/// Descriptor of this service.
pub const DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "pod-config",
    version: env!("CARGO_PKG_VERSION"),
    about: "the pods that should run on this node",
    serves: &[Api {
        package: "polylet.podconfig.v1",
        level: levels::PODCONFIG,
    }],
    calls: &[],
    state_files: &[
        StateFileDecl {
            path: "state:file.json",
            format: Some(StateFormat::only(crate::core::state::VERSION)),
            description: "last valid manifests of the directory: used when a file is invalid at start",
        },
        StateFileDecl {
            path: "state:http.json",
            format: Some(StateFormat::only(crate::core::state::VERSION)),
            description: "last valid manifest of the URL: used while the URL is unavailable",
        },
        StateFileDecl {
            path: "state:api.json",
            format: Some(StateFormat::only(persist::KEYED_LOG_VERSION)),
            description: "pods bound to this node: run while the API server is unavailable",
        },
        StateFileDecl {
            path: "state:cluster.json",
            format: Some(StateFormat::only(crate::core::cluster::state::VERSION)),
            description: "identity of the cluster: cached state of another one is discarded",
        },
        StateFileDecl {
            path: "state:node.json",
            format: Some(StateFormat::only(crate::core::cluster::state::VERSION)),
            description: "the Node object: used while the API server is unavailable",
        },
        StateFileDecl {
            path: "state:services.json",
            format: Some(StateFormat::only(crate::core::cluster::state::VERSION)),
            description: "Services with a cluster IP: variables of containers while the API server is unavailable",
        },
        StateFileDecl {
            path: "state:objects.json",
            format: Some(StateFormat::only(persist::KEYED_LOG_VERSION)),
            description: "Secrets, ConfigMaps and other objects that pods refer to: used while the API server is unavailable",
        },
        StateFileDecl {
            path: "state:tokens.json",
            format: Some(StateFormat::only(crate::core::cluster::state::VERSION)),
            description: "service account tokens: used while the API server is unavailable",
        },
    ],
    subprocesses: &[],
};

/// Builds the service and starts its tasks.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let config = config::Config::new(ctx.config());
    let (inputs, received) = mpsc::channel(64);
    let keep_secrets = ctx.config().polylet.keep_secrets;
    let file_writer =
        persist::ImmediateWriter::new(ctx.state_dir().join("file.json"), keep_secrets);
    let http_writer =
        persist::ImmediateWriter::new(ctx.state_dir().join("http.json"), keep_secrets);
    let (sources, streams) = state::PodSources::new(
        &config,
        ctx.incarnation(),
        file_writer.clone(),
        http_writer.clone(),
    )?;

    if let Some(directory) = config.directory {
        let task = source::directory::DirectoryWatcher::new(directory, sources.fingerprints());
        ctx.spawn("directory", task.run(inputs.clone(), ctx.drain()));
    }
    if let Some(url) = config.http {
        let task = source::http::UrlPoller::new(url, sources.http_fingerprint());
        ctx.spawn("http", task.run(inputs.clone(), ctx.drain()));
    }
    drop(inputs);
    ctx.spawn("persist file", file_writer.clone().run(ctx.drain()));
    ctx.spawn("persist http", http_writer.clone().run(ctx.drain()));
    let event_loop = run::EventLoop::new(sources);
    ctx.spawn("run", event_loop.run(received, ctx.drain()));

    let cluster = match ClientConfig::from_config(ctx.config(), DESCRIPTOR.service) {
        Some(config) => cluster::ApiServerSource::start(&ctx, config)?,
        None => cluster::ApiServerSource::standalone(ctx.incarnation()),
    };
    let server = server::Server::new(streams, cluster.clone());
    Ok(Service::new()
        .grpc(PodConfigServiceServer::new(server.clone()))
        .grpc(ObjectServiceServer::new(server))
        .on_drain(async move { file_writer.flush().await })
        .on_drain(async move { http_writer.flush().await })
        .on_drain(cluster.flush()))
}
