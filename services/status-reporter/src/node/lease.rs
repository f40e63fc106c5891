//! The node's lease, renewed at a quarter of its duration.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use polylet_api::kube::Api;
use polylet_api::kube::api::PostParams;
use polylet_api::{ApiConnection, ApiErrorKind, Retry};
use polylet_kit::{CancellationToken, Ctx};
use tokio::sync::watch;

use super::RegisteredNode;
use super::calls::{CallError, with_deadline};

const NAMESPACE: &str = "kube-node-lease";
/// Immediate attempts after conflicts, as upstream (`maxUpdateRetries`).
const MAX_UPDATE_RETRIES: u32 = 5;

/// Creates and renews the lease, on a connection that nothing else uses.
pub(super) struct LeaseController {
    name: String,
    duration_seconds: i32,
    /// The registered Node, the owner of the lease.
    owner: watch::Receiver<Option<RegisteredNode>>,
    current: Option<Lease>,
    retry: Retry,
    drain: CancellationToken,
}

impl LeaseController {
    pub(super) fn new(
        ctx: &Ctx,
        connection: ApiConnection,
        owner: watch::Receiver<Option<RegisteredNode>>,
    ) -> Self {
        let (initial, max) = (Duration::from_millis(200), Duration::from_secs(7));
        Self {
            name: ctx.node_name().to_owned(),
            duration_seconds: ctx.config().kubelet.node_lease_duration_seconds,
            owner,
            current: None,
            retry: Retry::new("renew lease", connection, initial, max),
            drain: ctx.drain(),
        }
    }

    pub(super) async fn run(mut self) {
        let drain = self.drain.clone();
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.renew_forever() => {}
        }
    }

    async fn renew_forever(&mut self) {
        let duration = u64::try_from(self.duration_seconds).unwrap_or(40);
        let interval = Duration::from_secs(duration) / 4;
        loop {
            self.renew().await;
            tokio::time::sleep(interval.mul_f64(1.0 + 0.04 * polylet_api::random())).await;
        }
    }

    /// Returns once the lease is renewed.
    async fn renew(&mut self) {
        loop {
            self.retry.wait().await;
            match self.update_with_retries().await {
                Ok(()) => return self.retry.succeeded(),
                Err(error) => {
                    self.retry.failed(&error);
                }
            }
        }
    }

    /// Renews the lease; after a conflict, or if it is gone, reads it and tries again at once.
    async fn update_with_retries(&mut self) -> Result<(), CallError> {
        let mut retries = 1;
        loop {
            let Err(error) = self.update().await else {
                return Ok(());
            };
            let outdated = matches!(
                error.kind(),
                ApiErrorKind::Conflict | ApiErrorKind::NotFound
            );
            if !outdated || retries == MAX_UPDATE_RETRIES {
                return Err(error);
            }
            self.current = None;
            retries += 1;
        }
    }

    async fn update(&mut self) -> Result<(), CallError> {
        let client = self.retry.connection().ready().await;
        let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
        let current = match self.current.take() {
            Some(current) => Some(current),
            None => with_deadline("reading the lease", leases.get_opt(&self.name)).await?,
        };
        let params = PostParams::default();
        let mut lease = match current {
            Some(mut lease) => {
                self.fill(&mut lease);
                let replaced = leases.replace(&self.name, &params, &lease);
                with_deadline("renewing the lease", replaced).await?
            }
            None => {
                // A lease without an owner would outlive its node.
                if self.owner.wait_for(Option::is_some).await.is_err() {
                    return std::future::pending().await;
                }
                let mut lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        namespace: Some(NAMESPACE.to_owned()),
                        ..ObjectMeta::default()
                    },
                    spec: None,
                };
                self.fill(&mut lease);
                with_deadline("creating the lease", leases.create(&params, &lease)).await?
            }
        };
        // The API server keeps those that a request leaves out.
        lease.metadata.managed_fields = None;
        self.current = Some(lease);
        Ok(())
    }

    fn fill(&self, lease: &mut Lease) {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.name.clone());
        spec.lease_duration_seconds = Some(self.duration_seconds);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let owners = lease.metadata.owner_references.get_or_insert_default();
        if let Some(RegisteredNode { uid, .. }) = self.owner.borrow().clone()
            && owners.is_empty()
        {
            owners.push(OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: self.name.clone(),
                uid,
                ..OwnerReference::default()
            });
        }
    }
}
