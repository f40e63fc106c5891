//! The node's certificates, asked for by certificate signing requests and kept in `certDirectory`
//! under upstream's names. Others only follow the files.
//!
//! - `client`: who the node is to the API server: the first one by the bootstrap kubeconfig, which
//!   also makes the kubeconfig, and the next ones in time.
//! - `serving`: who the node API is to its callers, with `serverTLSBootstrap`.
//! - `request`: one signing request, from a key to a certificate; taken up again after a restart.
//! - `store`: the files. [`crate::core::certificates`] decides when.

mod client;
mod kubeconfig;
mod request;
mod serving;
mod store;

use polylet_api::{Access, Connection};
use polylet_kit::Ctx;
use tokio::sync::watch;

use crate::node::Registered;

/// Starts what keeps the certificates, where there is a cluster.
pub(crate) fn start(ctx: &Ctx, registered: watch::Receiver<Option<Registered>>) {
    let config = ctx.config();
    let Some(access) = Access::of(config, "status-reporter") else {
        return;
    };
    ctx.spawn(
        "client-certificate",
        client::Keeper::new(ctx, &access).run(),
    );
    if config.kubelet.server_tls_bootstrap && config.kubelet.tls_cert_file.is_empty() {
        let connection = Connection::new(access);
        let keeper = serving::Keeper::new(ctx, connection, registered);
        ctx.spawn("serving-certificate", keeper.run());
    }
}
