//! The controller of the CSINode: created with the Node, updated when a CSI driver registers or
//! unregisters.

use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use polylet_api::kube::api::{Patch, PatchParams, PostParams};
use polylet_api::kube::{Api, Client};
use polylet_api::{ApiConnection, Retry};
use polylet_kit::{CancellationToken, Ctx, follow};
use polylet_watch::Value;
use polylet_wire::volume::v1::{Driver, WatchDriversResponse};
use tokio::sync::watch;

use super::RegisteredNode;
use super::calls::{CallError, with_deadline};
use crate::core::node::csi_node::{self, NodeDriver};

/// Writes the drivers that volume-manager reports.
pub(super) struct CsiNodeController {
    name: String,
    /// The registered Node, the owner of the CSINode.
    owner: watch::Receiver<Option<RegisteredNode>>,
    /// The owner's uid and the drivers that were written last.
    written: Option<(String, Vec<NodeDriver>)>,
    retry: Retry,
    drain: CancellationToken,
    /// Set once the CSINode exists.
    created: watch::Sender<bool>,
}

impl CsiNodeController {
    pub(super) fn new(
        ctx: &Ctx,
        connection: ApiConnection,
        owner: watch::Receiver<Option<RegisteredNode>>,
        created: watch::Sender<bool>,
    ) -> Self {
        let (initial, max) = (Duration::from_millis(200), Duration::from_secs(30));
        Self {
            name: ctx.node_name().to_owned(),
            owner,
            written: None,
            retry: Retry::new("update CSINode", connection, initial, max),
            drain: ctx.drain(),
            created,
        }
    }

    pub(super) async fn run(mut self, ctx: Ctx) {
        let drain = self.drain.clone();
        let drivers = follow::volume::drivers(&ctx);
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.reconcile(drivers) => {}
        }
    }

    async fn reconcile(
        &mut self,
        mut updates: impl Stream<Item = Value<WatchDriversResponse>> + Unpin,
    ) {
        let mut drivers: Option<Vec<NodeDriver>> = None;
        loop {
            let uid = self.owner.borrow().clone().map(|node| node.uid);
            let desired = uid.zip(drivers.clone());
            let desired = desired.filter(|desired| self.written.as_ref() != Some(desired));
            let has_work = desired.is_some();
            tokio::select! {
                biased;
                Some(value) = updates.next() => {
                    // While volume-manager is unavailable its last state stays.
                    if let Value::Current(response) = value {
                        drivers = Some(response.drivers.into_iter().map(from_wire).collect());
                    }
                    continue;
                }
                changed = self.owner.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                    continue;
                }
                () = self.retry.wait(), if has_work => {}
            }
            let Some((uid, drivers)) = desired else {
                continue;
            };
            let client = self.retry.connection().ready().await;
            match self.write(client, &uid, &drivers).await {
                Ok(()) => {
                    self.retry.succeeded();
                    self.written = Some((uid, drivers));
                    self.created.send_replace(true);
                }
                Err(error) => {
                    self.retry.failed(&error);
                }
            }
        }
    }

    /// Writes the Node's metadata first: a scheduler that sees a driver then knows the topology.
    async fn write(
        &self,
        client: Client,
        uid: &str,
        drivers: &[NodeDriver],
    ) -> Result<(), CallError> {
        let (post, patching) = (PostParams::default(), PatchParams::default());
        let had_drivers = self
            .written
            .as_ref()
            .is_some_and(|(_, drivers)| !drivers.is_empty());
        if !drivers.is_empty() || had_drivers {
            let nodes: Api<Node> = Api::all(client.clone());
            let patch = Patch::Merge(csi_node::metadata(drivers));
            let patched = nodes.patch(&self.name, &patching, &patch);
            with_deadline("updating the CSI drivers of the Node", patched).await?;
        }
        let objects: Api<CSINode> = Api::all(client);
        let current = with_deadline("reading the CSINode", objects.get_opt(&self.name)).await?;
        let Some(desired) = csi_node::object(current.as_ref(), &self.name, uid, drivers) else {
            return Ok(());
        };
        // Replaced with the resource version that was read: concurrent writes of others are not lost.
        let written = match current {
            Some(_) => {
                let replaced = objects.replace(&self.name, &post, &desired);
                with_deadline("updating the CSINode", replaced).await
            }
            None => with_deadline("creating the CSINode", objects.create(&post, &desired)).await,
        };
        written.map(drop)
    }
}

fn from_wire(driver: Driver) -> NodeDriver {
    NodeDriver {
        name: driver.name,
        node_id: driver.node_id,
        topology: driver.topology.into_iter().collect(),
        max_volumes: driver.max_volumes,
    }
}
