//! The node's CSINode: made with the Node, and written when a CSI driver comes or goes.

use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use polylet_api::kube::Api;
use polylet_api::kube::api::{Patch, PatchParams, PostParams};
use polylet_api::{Backoff, Connection, Refusal};
use polylet_kit::{CancellationToken, Ctx, follow, report};
use polylet_watch::Value;
use polylet_wire::volume::v1::{Driver as Wire, WatchDriversResponse};
use tokio::sync::watch;

use super::Registered;
use super::calls::{CallError, within};
use crate::core::node::csi::{self, Driver};

/// Keeps the CSINode as volume-manager says.
pub(super) struct Keeper {
    name: String,
    connection: Connection,
    /// The Node, as long as there is one.
    owner: watch::Receiver<Option<Registered>>,
    /// The uid of the Node and the drivers that were written last.
    written: Option<(String, Vec<Driver>)>,
    backoff: Backoff,
    complaint: String,
    drain: CancellationToken,
    /// Whether there is one.
    made: watch::Sender<bool>,
}

impl Keeper {
    pub(super) fn new(
        ctx: &Ctx,
        connection: Connection,
        owner: watch::Receiver<Option<Registered>>,
        made: watch::Sender<bool>,
    ) -> Self {
        Self {
            name: ctx.node_name().to_owned(),
            connection,
            owner,
            written: None,
            backoff: Backoff::new(Duration::from_millis(200), Duration::from_secs(30)),
            complaint: String::new(),
            drain: ctx.drain(),
            made,
        }
    }

    pub(super) async fn run(mut self, ctx: Ctx) {
        let drain = self.drain.clone();
        let told = follow::volume::drivers(&ctx);
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.keep(told) => {}
        }
    }

    async fn keep(&mut self, mut told: impl Stream<Item = Value<WatchDriversResponse>> + Unpin) {
        let mut drivers: Option<Vec<Driver>> = None;
        loop {
            let uid = self.owner.borrow().clone().map(|node| node.uid);
            let due = uid.zip(drivers.clone());
            let due = due.filter(|due| self.written.as_ref() != Some(due));
            let again = async {
                match &due {
                    Some(_) => self.backoff.wait().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(value) = told.next() => {
                    // What volume-manager said last holds while it is away.
                    if let Value::Current(answer) = value {
                        drivers = Some(answer.drivers.into_iter().map(driver).collect());
                    }
                    continue;
                }
                changed = self.owner.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                    continue;
                }
                () = again => {}
            }
            let Some((uid, drivers)) = due else { continue };
            match self.write(&uid, &drivers).await {
                Ok(()) => {
                    self.backoff.succeeded();
                    self.complaint.clear();
                    self.written = Some((uid, drivers));
                    self.made.send_replace(true);
                }
                Err(error) => self.failed(&error),
            }
        }
    }

    /// The Node first: a scheduler that sees a driver then knows where the node is.
    async fn write(&self, uid: &str, drivers: &[Driver]) -> Result<(), CallError> {
        let client = self.connection.ready().await;
        let (post, patching) = (PostParams::default(), PatchParams::default());
        let was_told = self
            .written
            .as_ref()
            .is_some_and(|(_, told)| !told.is_empty());
        if !drivers.is_empty() || was_told {
            let nodes: Api<Node> = Api::all(client.clone());
            let patch = Patch::Merge(csi::metadata(drivers));
            let told = nodes.patch(&self.name, &patching, &patch);
            within("telling the Node of its CSI drivers", told).await?;
        }
        let objects: Api<CSINode> = Api::all(client);
        let held = within("reading the CSINode", objects.get_opt(&self.name)).await?;
        let Some(wanted) = csi::object(held.as_ref(), &self.name, uid, drivers) else {
            return Ok(());
        };
        // With the version that was read: what somebody else writes meanwhile is not lost.
        let written = match held {
            Some(_) => {
                within(
                    "writing the CSINode",
                    objects.replace(&self.name, &post, &wanted),
                )
                .await
            }
            None => within("making the CSINode", objects.create(&post, &wanted)).await,
        };
        written.map(drop)
    }

    fn failed(&mut self, error: &CallError) {
        let refusal = error.refusal();
        let asked = match refusal {
            Refusal::Busy(asked) => asked,
            _ => None,
        };
        self.backoff.failed(asked);
        if refusal == Refusal::Unauthorized {
            self.connection.refused();
        }
        let complaint = report(error);
        if complaint != self.complaint {
            tracing::warn!("{complaint}");
            self.complaint = complaint;
        }
    }
}

fn driver(wire: Wire) -> Driver {
    Driver {
        name: wire.name,
        node_id: wire.node_id,
        topology: wire.topology.into_iter().collect(),
        max_volumes: wire.max_volumes,
    }
}
