//! The node API: pods, logs, streams of containers, statistics, metrics and health over HTTPS, for users
//! and the control plane.
//!
//! Tasks:
//! - `https`: the node API (port 10250) with TLS, authentication by client certificate or token, and
//!   authorization by the API server (`reviews`), whose decisions are cached;
//! - `healthz`: plain HTTP on the loopback address (port 10248);
//! - `read-only`: plain HTTP without authentication (port 10255), if configured.
//!
//! The service has no event loop, and no other state than what the supervisor has counted, as it publishes that
//! (`published_metrics`): each response is computed from responses of its peers (status-reporter: pods and statuses;
//! pleg: containers, URLs of the runtime's streams; eviction: the stats summary; prober: counts of probes; all
//! services: what they count). At rest it observes now and then whether pods are synced (`health`).
//!
//! When it is restarted or upgraded, streams of containers and followed logs stay with the old process, which has
//! released its ports, and end with them or at `streamDrainTimeout`; all else is served by the new one.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod auth;
mod config;
mod convert;
mod core;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod peer_calls;
mod peers;
mod published_metrics;
mod reviews;
mod server;
mod service_channels;
mod stats_client;
mod streaming;
mod tls;
mod tls_settings;

use polylet_kit::{BoxError, Ctx, Dependency, Service, ServiceDescriptor, StateFileDecl};
use polylet_wire::levels;

/// The counts of a peer that is too old to tell them are left out.
const ANY_LEVEL: u32 = 1;

/// Interfaces, dependencies and state files of this service.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "node-api",
    version: env!("CARGO_PKG_VERSION"),
    about: "serves pods, logs, statistics, metrics and health over HTTPS",
    serves: &[],
    calls: &[
        Dependency {
            service: "status-reporter",
            package: "polylet.status.v1",
            level: levels::STATUS,
        },
        Dependency {
            service: "eviction",
            package: "polylet.stats.v1",
            level: levels::STATS,
        },
        Dependency {
            service: "pleg",
            package: "polylet.pleg.v1",
            level: levels::PLEG,
        },
        Dependency {
            service: "prober",
            package: "polylet.prober.v1",
            level: levels::PROBER,
        },
        // What they count, their logs and their profiles.
        Dependency {
            service: "device-manager",
            package: "polylet.lifecycle.v1",
            level: ANY_LEVEL,
        },
        Dependency {
            service: "image-gc",
            package: "polylet.lifecycle.v1",
            level: ANY_LEVEL,
        },
        Dependency {
            service: "pod-config",
            package: "polylet.lifecycle.v1",
            level: ANY_LEVEL,
        },
        Dependency {
            service: "sync-coordinator",
            package: "polylet.lifecycle.v1",
            level: ANY_LEVEL,
        },
        Dependency {
            service: "volume-manager",
            package: "polylet.lifecycle.v1",
            level: ANY_LEVEL,
        },
    ],
    state_files: &[StateFileDecl {
        path: "root:pki",
        format: None,
        description: "the self-signed serving certificate and its key (certDirectory), under upstream's names",
    }],
    subprocesses: &[],
};

/// Builds the service. All ports are bound before it reports ready.
///
/// # Errors
/// When a port is in use, or the certificate or the client CA is invalid.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let config = config::Config::from_ctx(&ctx)?;
    let limits = server::ServerLimits::default();
    let tasks = server::ServerTasks::default();
    let streams = streaming::Streams::new(&ctx, tasks.lasting.clone());
    let published = published_metrics::PublishedMetrics::new(ctx.drain());
    let state = http::HandlerState::new(&ctx, &config, streams, published.clone());
    let health = state.health.clone();
    if let Some(address) = config.healthz {
        let listener = ctx.bind_port("healthz", address)?;
        ctx.spawn(
            "healthz",
            server::plain(
                listener,
                http::health::router(state.health.clone()),
                limits,
                tasks.clone(),
                ctx.drain(),
            ),
        );
    }
    if let Some(address) = config.read_only {
        let listener = ctx.bind_port("read-only", address)?;
        let router = http::read_only(state.clone());
        ctx.spawn(
            "read-only",
            server::plain(listener, router, limits, tasks.clone(), ctx.drain()),
        );
    }
    if let Some(address) = config.https {
        let listener = ctx.bind_port("https", address)?;
        let reviews = reviews::Reviews::from_ctx(&ctx);
        let router = http::node(state, config.access, config.switches, reviews);
        let tls = tls::ReloadingTls::new(config, ctx.node_name())?;
        ctx.spawn(
            "https",
            server::secure(listener, tls, router, limits, tasks.clone(), ctx.drain()),
        );
    }
    ctx.spawn("health", health.watch(ctx.drain()));
    let (drain, lasting) = (ctx.drain(), tasks.lasting.clone());
    ctx.background("connections", async move {
        drain.cancelled().await;
        tasks.connections.close();
        tasks.connections.wait().await;
    });
    let limit = ctx.config().polylet.stream_drain_timeout;
    let service = Service::new().grpc(published.server());
    Ok(service.lingering(limit, async move {
        lasting.close();
        lasting.wait().await;
    }))
}
