//! The controller of claims whose volumes are resized on this node. Each state is reported once, and
//! again after a failure.

use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use polylet_api::kube::api::{Patch, PatchParams};
use polylet_api::kube::{Api, Client};
use polylet_api::{ApiConnection, ApiErrorKind, Retry};
use polylet_kit::{CancellationToken, Ctx, follow};
use polylet_watch::Value;
use polylet_wire::volume::v1::{ClaimSize, ResizeStatus, WatchClaimSizesResponse};

use super::calls::{CallError, with_deadline};
use crate::core::node::claim_resize::{ClaimResizeState, ResizedClaim, patch};

/// Patches the statuses of claims as volume-manager reports them.
pub(super) struct ClaimController {
    /// The reported states that volume-manager still has.
    reported: Vec<ResizedClaim>,
    retry: Retry,
    drain: CancellationToken,
}

impl ClaimController {
    pub(super) fn new(ctx: &Ctx, connection: ApiConnection) -> Self {
        let (initial, max) = (Duration::from_millis(200), Duration::from_secs(30));
        Self {
            reported: Vec::new(),
            retry: Retry::new("report volume resize", connection, initial, max),
            drain: ctx.drain(),
        }
    }

    pub(super) async fn run(mut self, ctx: Ctx) {
        let drain = self.drain.clone();
        let claims = follow::volume::claim_sizes(&ctx);
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.reconcile(claims) => {}
        }
    }

    async fn reconcile(
        &mut self,
        mut updates: impl Stream<Item = Value<WatchClaimSizesResponse>> + Unpin,
    ) {
        let mut claims: Vec<ResizedClaim> = Vec::new();
        loop {
            self.reported.retain(|claim| claims.contains(claim));
            let next = claims.iter().find(|claim| !self.reported.contains(claim));
            let next = next.cloned();
            tokio::select! {
                biased;
                Some(value) = updates.next() => {
                    // While volume-manager is unavailable its last state stays.
                    if let Value::Current(response) = value {
                        claims = response.claims.into_iter().filter_map(from_wire).collect();
                    }
                    continue;
                }
                () = self.retry.wait(), if next.is_some() => {}
            }
            let Some(claim) = next else { continue };
            let client = self.retry.connection().ready().await;
            match patch_status(client, &claim).await {
                Ok(()) => {
                    self.retry.succeeded();
                    self.reported.push(claim);
                }
                // The claim is gone or replaced: nothing is left to report.
                Err(error)
                    if matches!(
                        error.kind(),
                        ApiErrorKind::NotFound | ApiErrorKind::Conflict
                    ) =>
                {
                    tracing::debug!(
                        claim = %format_args!("{}/{}", claim.namespace, claim.name),
                        error = polylet_kit::report(&error),
                        "resized claim is gone"
                    );
                    self.reported.push(claim);
                }
                Err(error) => {
                    self.retry.failed(&error);
                    // The others come first now.
                    claims.retain(|other| *other != claim);
                    claims.push(claim);
                }
            }
        }
    }
}

async fn patch_status(client: Client, claim: &ResizedClaim) -> Result<(), CallError> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &claim.namespace);
    let mut conditions = Vec::new();
    if claim.state.is_error() {
        let current = with_deadline("reading a claim", claims.get(&claim.name)).await?;
        let status = current.status.unwrap_or_default();
        conditions = status.conditions.unwrap_or_default();
    }
    let body = Patch::Strategic(patch(claim, &conditions, Timestamp::now()));
    let params = PatchParams::default();
    let patched = claims.patch_status(&claim.name, &params, &body);
    with_deadline("updating the status of a claim", patched).await?;
    Ok(())
}

fn from_wire(claim: ClaimSize) -> Option<ResizedClaim> {
    let state = match claim.status() {
        ResizeStatus::Unspecified => return None,
        ResizeStatus::InProgress => ClaimResizeState::InProgress,
        ResizeStatus::Finished => ClaimResizeState::Finished,
        ResizeStatus::Failed => ClaimResizeState::Failed(claim.message),
        ResizeStatus::Infeasible => ClaimResizeState::Infeasible(claim.message),
    };
    Some(ResizedClaim {
        namespace: claim.namespace,
        name: claim.name,
        uid: claim.uid,
        size: claim.size,
        state,
    })
}
