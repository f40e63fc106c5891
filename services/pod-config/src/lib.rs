//! What should run on this node.
//!
//! pod-config reads static pods from a directory (or one file) and from a URL, gives them their
//! identity, checks them, and serves one stream of pods per source, together with the Secrets and
//! ConfigMaps (and RuntimeClasses) that local manifests define and a list of what could not be accepted.
//! On a node of a cluster it follows what the API server holds for this node ([`cluster`]): its pods,
//! their mirrors, the Node, Services, the objects that pods refer to; and has tokens and certificates
//! of pods issued.
//!
//! | task | reads | writes |
//! | --- | --- | --- |
//! | `directory` ([`source::directory`]) | `staticPodPath`: inotify and a slow rescan | [`run::Input`] |
//! | `http` ([`source::http`]) | `staticPodURL`, each `httpCheckFrequency` | [`run::Input`] |
//! | `pods`, `node`, `services`, `objects` ([`cluster`]) | the API server: lists and watches | the stores behind the streams |
//! | `certificates` ([`cluster`]) | what pods ask for, what signers say | PodCertificateRequests; keys, in memory alone |
//! | `run` ([`run`]) | [`run::Input`] | the stores behind the streams; what is to be kept |
//! | `keep …` ([`keep`]) | the last accepted set | `state:file.json`, `state:http.json` |
//! | `keep …` ([`keep`]) | what the API server said last | `state:api.json`, `objects.json`: each thing by itself; `node.json`, `services.json`, `tokens.json` |
//!
//! Which cluster said it is in `state:cluster.json` ([`cluster`]).
//!
//! A source that has not answered in this life serves nothing; one that is not configured is empty
//! at once. While the API server is away, what it said last stands: also after a restart, from
//! `state:api.json` and its like, and marked as such.

pub mod cluster;
pub mod config;
mod convert;
pub mod core;
pub mod keep;
pub mod run;
pub mod server;
mod set;
pub mod source;

use polylet_api::Access;
use polylet_kit::{Api, BoxError, Ctx, Keep, Manifest, Service};
use polylet_wire::podconfig::v1::object_service_server::ObjectServiceServer;
use polylet_wire::podconfig::v1::pod_config_service_server::PodConfigServiceServer;
use tokio::sync::mpsc;

/// What this service is.
pub const MANIFEST: Manifest = Manifest {
    service: "pod-config",
    version: env!("CARGO_PKG_VERSION"),
    about: "what should run on this node",
    serves: &[Api {
        package: "polylet.podconfig.v1",
        level: 1,
    }],
    calls: &[],
    keeps: &[
        Keep {
            path: "state:file.json",
            what: "pods and objects last accepted from files: stand in for a file that is broken at start",
        },
        Keep {
            path: "state:http.json",
            what: "pods last accepted from the URL: stand while it is away",
        },
        Keep {
            path: "state:api.json",
            what: "pods that the API server bound to this node: run while it is away",
        },
        Keep {
            path: "state:cluster.json",
            what: "which cluster said what is kept: nothing of another one stands",
        },
        Keep {
            path: "state:node.json",
            what: "this node's object: stands while the API server is away",
        },
        Keep {
            path: "state:services.json",
            what: "Services with an address: pods start with their variables while the API server is away",
        },
        Keep {
            path: "state:objects.json",
            what: "Secrets, ConfigMaps and whatever else pods refer to: pods start with them while the API server is away",
        },
        Keep {
            path: "state:tokens.json",
            what: "service-account tokens that pods were given: pods start with them while the API server is away",
        },
    ],
};

/// Builds the service and starts its tasks.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let settings = config::Settings::of(ctx.config());
    let (inputs, received) = mpsc::channel(64);
    let file_keeper = keep::AtOnce::new(ctx.state_dir().join("file.json"));
    let http_keeper = keep::AtOnce::new(ctx.state_dir().join("http.json"));
    let (desk, shared) = run::Desk::open(
        &settings,
        ctx.incarnation(),
        file_keeper.clone(),
        http_keeper.clone(),
    );

    if let Some(directory) = settings.directory {
        let task = source::directory::Directory::new(directory, desk.stamps());
        ctx.spawn("directory", task.run(inputs.clone(), ctx.drain()));
    }
    if let Some(url) = settings.http {
        let task = source::http::Http::new(url, desk.http_stamp());
        ctx.spawn("http", task.run(inputs.clone(), ctx.drain()));
    }
    drop(inputs);
    ctx.spawn("keep file", file_keeper.clone().run(ctx.drain()));
    ctx.spawn("keep http", http_keeper.clone().run(ctx.drain()));
    ctx.spawn("run", desk.run(received, ctx.drain()));

    let cluster = match Access::of(ctx.config(), MANIFEST.service) {
        Some(access) => cluster::Cluster::follow(&ctx, access),
        None => cluster::Cluster::none(ctx.incarnation()),
    };
    let server = server::Server::new(shared, cluster.clone());
    Ok(Service::new()
        .grpc(PodConfigServiceServer::new(server.clone()))
        .grpc(ObjectServiceServer::new(server))
        .on_drain(async move { file_keeper.finish().await })
        .on_drain(async move { http_keeper.finish().await })
        .on_drain(cluster.finish()))
}
