//! This node's objects at the API server. Nothing of this runs on a standalone node.
//!
//! - `controller`: creates the Node and keeps its status up to date, one request at a time;
//!   [`crate::core::node`] decides what is written and when.
//! - `lease`: renews the lease, on a connection of its own so that no other request delays it.
//! - `csi_node`: updates the CSINode as drivers register and unregister.
//! - `claim_resize`: reports the resize of volumes in the statuses of their claims.
//! - `sources`, `settings`: what the Node's status is computed from.

mod calls;
mod claim_resize;
mod controller;
mod csi_node;
mod input;
mod lease;
mod settings;
mod sources;

use polylet_api::{ApiConnection, ClientConfig};
use polylet_kit::Ctx;
use tokio::sync::watch;

pub(crate) use calls::{CallError, with_deadline};

/// The registered Node, as far as other controllers need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegisteredNode {
    /// The uid of the object.
    pub(crate) uid: String,
    /// Names and IP addresses in its status.
    pub(crate) addresses: Vec<String>,
}

/// Starts the controllers; none on a standalone node. Returns the registered Node, while there is one.
pub(crate) fn start(ctx: &Ctx) -> watch::Receiver<Option<RegisteredNode>> {
    let (registered, node) = watch::channel(None);
    if let Some(access) = ClientConfig::from_config(ctx.config(), crate::DESCRIPTOR.service) {
        let connection = ApiConnection::new(access.clone());
        let (created, has_csi_node) = watch::channel(false);
        let controller =
            controller::NodeController::new(ctx, connection.clone(), registered, has_csi_node);
        ctx.spawn("node", controller.run());
        let claims = claim_resize::ClaimController::new(ctx, connection.clone());
        ctx.spawn("claims", claims.run(ctx.clone()));
        let csi = csi_node::CsiNodeController::new(ctx, connection, node.clone(), created);
        ctx.spawn("csi-node", csi.run(ctx.clone()));
        let lease = lease::LeaseController::new(ctx, ApiConnection::new(access), node.clone());
        ctx.spawn("lease", lease.run());
    }
    node
}
