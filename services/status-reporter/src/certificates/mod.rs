//! The node's certificates, requested by certificate signing requests and stored in `certDirectory`
//! under upstream's names. Other services only read the files.
//!
//! - `client`: the node's credentials for the API server. The first certificate is requested with the
//!   bootstrap kubeconfig, and the kubeconfig is created; later ones are renewed in time.
//! - `serving`: the certificate of the node API, with `serverTLSBootstrap`.
//! - `csr`: one signing request, from a key to a certificate; resumed after a restart.
//! - `store`: the files. [`crate::core::certificates`] decides when to request.

mod client;
mod csr;
mod error;
mod kubeconfig;
mod metrics;
mod serving;
pub(crate) mod store;

use polylet_api::{ApiConnection, ClientConfig};
use polylet_kit::Ctx;
use tokio::sync::watch;

use crate::node::RegisteredNode;

/// Starts the certificate managers; none on a standalone node.
pub(crate) fn start(ctx: &Ctx, registered: watch::Receiver<Option<RegisteredNode>>) {
    let config = ctx.config();
    let Some(access) = ClientConfig::from_config(config, crate::DESCRIPTOR.service) else {
        return;
    };
    let client = client::ClientCertificateManager::new(ctx, &access);
    ctx.spawn("client-certificate", client.run());
    if config.kubelet.server_tls_bootstrap && config.kubelet.tls_cert_file.is_empty() {
        let connection = ApiConnection::new(access);
        let serving = serving::ServingCertificateManager::new(ctx, connection, registered);
        ctx.spawn("serving-certificate", serving.run());
    }
}
