//! What the cluster is told of claims whose volumes grow here: each thing once, again after a failure.

use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use polylet_api::kube::Api;
use polylet_api::kube::api::{Patch, PatchParams};
use polylet_api::{Backoff, Connection, Refusal};
use polylet_kit::{CancellationToken, Ctx, follow, report};
use polylet_watch::Value;
use polylet_wire::volume::v1::{ClaimGrowth, ClaimSize, WatchClaimSizesResponse};

use super::calls::{CallError, within};
use crate::core::node::claims::{Claim, Growth, patch};

/// Tells claims what volume-manager says of their volumes.
pub(super) struct Keeper {
    connection: Connection,
    /// What was told, of claims that volume-manager still speaks of.
    told: Vec<Claim>,
    backoff: Backoff,
    drain: CancellationToken,
}

impl Keeper {
    pub(super) fn new(ctx: &Ctx, connection: Connection) -> Self {
        Self {
            connection,
            told: Vec::new(),
            backoff: Backoff::new(Duration::from_millis(200), Duration::from_secs(30)),
            drain: ctx.drain(),
        }
    }

    pub(super) async fn run(mut self, ctx: Ctx) {
        let drain = self.drain.clone();
        let said = follow::volume::claim_sizes(&ctx);
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.keep(said) => {}
        }
    }

    async fn keep(&mut self, mut said: impl Stream<Item = Value<WatchClaimSizesResponse>> + Unpin) {
        let mut claims: Vec<Claim> = Vec::new();
        loop {
            self.told.retain(|told| claims.contains(told));
            let due = claims.iter().find(|claim| !self.told.contains(claim));
            let due = due.cloned();
            let again = async {
                match &due {
                    Some(_) => self.backoff.wait().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(value) = said.next() => {
                    // What volume-manager said last holds while it is away.
                    if let Value::Current(answer) = value {
                        claims = answer.claims.into_iter().filter_map(claim).collect();
                    }
                    continue;
                }
                () = again => {}
            }
            let Some(due) = due else { continue };
            match self.tell(&due).await {
                Ok(()) => {
                    self.backoff.succeeded();
                    self.told.push(due);
                }
                Err(error) => {
                    // The others come first now.
                    claims.retain(|claim| *claim != due);
                    claims.push(due.clone());
                    self.failed(due, &error);
                }
            }
        }
    }

    async fn tell(&self, claim: &Claim) -> Result<(), CallError> {
        let client = self.connection.ready().await;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &claim.namespace);
        let body = Patch::Strategic(patch(claim));
        let params = PatchParams::default();
        let told = claims.patch_status(&claim.name, &params, &body);
        within("telling a claim of its volume's size", told).await?;
        Ok(())
    }

    fn failed(&mut self, claim: Claim, error: &CallError) {
        tracing::warn!(
            claim = claim.name,
            namespace = claim.namespace,
            "{}",
            report(error)
        );
        let asked = match error.refusal() {
            Refusal::Busy(asked) => asked,
            // It is gone, or another of its name has come: nobody is left to be told.
            Refusal::NotFound | Refusal::Conflict => {
                self.told.push(claim);
                return;
            }
            Refusal::Unauthorized => {
                self.connection.refused();
                None
            }
            _ => None,
        };
        self.backoff.failed(asked);
    }
}

fn claim(wire: ClaimSize) -> Option<Claim> {
    let growth = match wire.growth() {
        ClaimGrowth::Unspecified => return None,
        ClaimGrowth::InProgress => Growth::InProgress,
        ClaimGrowth::Finished => Growth::Finished,
        ClaimGrowth::Failed => Growth::Failed(wire.message),
        ClaimGrowth::Infeasible => Growth::Infeasible(wire.message),
    };
    Some(Claim {
        namespace: wire.namespace,
        name: wire.name,
        uid: wire.uid,
        size: wire.size,
        growth,
    })
}
