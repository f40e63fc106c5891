//! This node in the cluster: its Node object and its lease. Nothing of this runs on a node that
//! stands alone.
//!
//! - `task`: owns what is known of the object, and writes it when it changes ([`crate::core::node`]
//!   decides what and when); one request at a time.
//! - `lease`: the sign of life, on a connection of its own, so that nothing else can hold it up.
//! - `csi`: the CSINode, as drivers come and go.
//! - `claims`: the sizes of claims whose volumes grow here.
//! - `sources`, `settings`: what the status is made of.

mod calls;
mod claims;
mod csi;
mod lease;
mod settings;
mod sources;
mod task;

use polylet_api::{Access, Connection};
use polylet_kit::Ctx;
use tokio::sync::watch;

pub(crate) use calls::{CallError, within};

/// The node's place in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    /// Of the Node object.
    pub(crate) uid: String,
    /// Names and IP addresses that the Node tells.
    pub(crate) addresses: Vec<String>,
}

/// Starts what keeps the Node object and the lease, where there is a cluster; tells where the node
/// stands in it.
pub(crate) fn start(ctx: &Ctx) -> watch::Receiver<Option<Registered>> {
    let (registered, told) = watch::channel(None);
    if let Some(access) = Access::of(ctx.config(), "status-reporter") {
        let connection = Connection::new(access.clone());
        let (made, csi_node) = watch::channel(false);
        let task = task::Task::new(ctx, connection.clone(), registered, csi_node);
        ctx.spawn("node", task.run());
        let claims = claims::Keeper::new(ctx, connection.clone());
        ctx.spawn("claims", claims.run(ctx.clone()));
        let csi = csi::Keeper::new(ctx, connection, told.clone(), made);
        ctx.spawn("csi node", csi.run(ctx.clone()));
        let lease = lease::Keeper::new(ctx, Connection::new(access), told.clone());
        ctx.spawn("lease", lease.run());
    }
    told
}
