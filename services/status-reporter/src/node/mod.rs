//! This node in the cluster: its Node object and its lease. Nothing of this runs on a node that
//! stands alone.
//!
//! - `task`: owns what is known of the object, and writes it when it changes ([`crate::core::node`]
//!   decides what and when); one request at a time.
//! - `lease`: the sign of life, on a connection of its own, so that nothing else can hold it up.
//! - `sources`, `settings`: what the status is made of.

mod calls;
mod lease;
mod settings;
mod sources;
mod started;
mod task;

use polylet_api::{Access, Connection};
use polylet_kit::Ctx;
use tokio::sync::watch;

/// Starts what keeps the Node object and the lease, where there is a cluster.
pub(crate) fn start(ctx: &Ctx) {
    let Some(access) = Access::of(ctx.config(), "status-reporter") else {
        return;
    };
    let (uid, told) = watch::channel(None);
    let task = task::Task::new(ctx, Connection::new(access.clone()), uid);
    ctx.spawn("node", task.run());
    let lease = lease::Keeper::new(ctx, Connection::new(access), told);
    ctx.spawn("lease", lease.run());
}
