//! The node's sign of life: a lease, renewed at a quarter of its duration.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use polylet_api::kube::Api;
use polylet_api::kube::api::PostParams;
use polylet_api::{Backoff, Connection, Refusal};
use polylet_kit::{CancellationToken, Ctx, report};
use tokio::sync::watch;

use super::Registered;
use super::calls::{CallError, within};

const NAMESPACE: &str = "kube-node-lease";
/// Renewals that are tried at once before there is a pause.
const TRIES: u32 = 5;

/// Keeps the lease, on a connection that nothing else uses.
pub(super) struct Keeper {
    name: String,
    seconds: i32,
    connection: Connection,
    /// The Node, as long as there is one.
    owner: watch::Receiver<Option<Registered>>,
    held: Option<Lease>,
    backoff: Backoff,
    complaint: String,
    drain: CancellationToken,
}

impl Keeper {
    pub(super) fn new(
        ctx: &Ctx,
        connection: Connection,
        owner: watch::Receiver<Option<Registered>>,
    ) -> Self {
        Self {
            name: ctx.node_name().to_owned(),
            seconds: ctx.config().kubelet.node_lease_duration_seconds,
            connection,
            owner,
            held: None,
            backoff: Backoff::new(Duration::from_millis(200), Duration::from_secs(7)),
            complaint: String::new(),
            drain: ctx.drain(),
        }
    }

    pub(super) async fn run(mut self) {
        let drain = self.drain.clone();
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&mut self) {
        loop {
            self.renew().await;
            let quarter = Duration::from_secs(u64::try_from(self.seconds).unwrap_or(40)) / 4;
            tokio::time::sleep(quarter.mul_f64(1.0 + 0.04 * polylet_api::random())).await;
        }
    }

    /// Returns when the lease is renewed.
    async fn renew(&mut self) {
        loop {
            let mut last = None;
            for _ in 0..TRIES {
                match self.once().await {
                    Ok(()) => return self.succeeded(),
                    // Somebody else changed it, or it is gone: it is read anew at once.
                    Err(error)
                        if matches!(error.refusal(), Refusal::Conflict | Refusal::NotFound) =>
                    {
                        self.held = None;
                        last = Some(error);
                    }
                    Err(error) => {
                        last = Some(error);
                        break;
                    }
                }
            }
            if let Some(error) = last {
                self.failed(&error).await;
            }
        }
    }

    async fn once(&mut self) -> Result<(), CallError> {
        let client = self.connection.ready().await;
        let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
        let held = match self.held.take() {
            Some(held) => Some(held),
            None => within("reading the lease", leases.get_opt(&self.name)).await?,
        };
        let parameters = PostParams::default();
        let held = match held {
            Some(mut held) => {
                self.fill(&mut held);
                let renewed = leases.replace(&self.name, &parameters, &held);
                within("renewing the lease", renewed).await?
            }
            None => {
                // A lease without an owner would outlive its node.
                if self.owner.wait_for(Option::is_some).await.is_err() {
                    return std::future::pending().await;
                }
                let mut made = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        namespace: Some(NAMESPACE.to_owned()),
                        ..ObjectMeta::default()
                    },
                    spec: None,
                };
                self.fill(&mut made);
                within("making the lease", leases.create(&parameters, &made)).await?
            }
        };
        self.held = Some(held);
        Ok(())
    }

    fn fill(&self, lease: &mut Lease) {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.name.clone());
        spec.lease_duration_seconds = Some(self.seconds);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let owners = lease.metadata.owner_references.get_or_insert_default();
        if let Some(Registered { uid, .. }) = self.owner.borrow().clone()
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

    fn succeeded(&mut self) {
        self.backoff.succeeded();
        if !std::mem::take(&mut self.complaint).is_empty() {
            tracing::info!("the lease is renewed again");
        }
    }

    async fn failed(&mut self, error: &CallError) {
        let refusal = error.refusal();
        if refusal == Refusal::Unauthorized {
            self.connection.refused();
        }
        let complaint = report(error);
        if complaint != self.complaint {
            tracing::warn!("{complaint}");
            self.complaint = complaint;
        }
        let asked = match refusal {
            Refusal::Busy(asked) => asked,
            _ => None,
        };
        tokio::time::sleep(self.backoff.failed(asked)).await;
    }
}
