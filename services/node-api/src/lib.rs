//! Node-api serves people and the control plane over HTTPS: pods, logs, statistics, metrics, health.
//!
//! Tasks:
//! - `https`: the node API (port 10250), TLS, authentication by client certificate or
//!   token, authorisation by the API server (`reviews`), whose answers are kept for a while;
//! - `healthz`: plain HTTP on the loopback address (port 10248);
//! - `read-only`: plain HTTP without authentication (port 10255), only where the configuration asks.
//!
//! It keeps no other state: each answer is made from what its peers say at that moment (status-reporter:
//! pods and statuses; pleg: what runs; eviction: the usage summary; prober: counts of probes). At rest it does nothing.

mod auth;
mod config;
mod core;
mod http;
mod listen;
mod peers;
mod reviews;
mod tls;

use polylet_kit::{BoxError, Call, Ctx, Keep, Manifest, Service};

/// What this service is to the others.
pub static MANIFEST: Manifest = Manifest {
    service: "node-api",
    version: env!("CARGO_PKG_VERSION"),
    about: "serves people and the control plane over HTTPS",
    serves: &[],
    calls: &[
        Call {
            service: "status-reporter",
            package: "polylet.status.v1",
            level: 1,
        },
        Call {
            service: "eviction",
            package: "polylet.stats.v1",
            level: 1,
        },
        Call {
            service: "pleg",
            package: "polylet.pleg.v1",
            level: 1,
        },
        Call {
            service: "prober",
            package: "polylet.prober.v1",
            level: 1,
        },
    ],
    keeps: &[Keep {
        path: "state:node-api.pem",
        what: "the self-made serving certificate and its key",
    }],
};

/// Builds the service: binds every port before it says that it is up.
///
/// # Errors
/// When a port is taken, or the certificate or the client CA cannot be read or made.
pub async fn build(ctx: Ctx) -> Result<Service, BoxError> {
    let settings = config::Settings::read(&ctx)?;
    let state = http::State::new(&ctx, &settings);
    if let Some(address) = settings.healthz {
        let listener = listen::bind(address).await?;
        ctx.spawn(
            "healthz",
            listen::plain(listener, http::health::router(), ctx.drain()),
        );
    }
    if let Some(address) = settings.read_only {
        let listener = listen::bind(address).await?;
        let router = http::read_only(state.clone());
        ctx.spawn("read-only", listen::plain(listener, router, ctx.drain()));
    }
    if let Some(address) = settings.https {
        let listener = listen::bind(address).await?;
        let router = http::node(state, settings.access, reviews::Reviews::of(&ctx));
        let tls = tls::Tls::new(settings, ctx.state_dir(), ctx.node_name())?;
        ctx.spawn("https", listen::secure(listener, tls, router, ctx.drain()));
    }
    Ok(Service::new())
}
