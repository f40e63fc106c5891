//! The node API's certificate, where the cluster signs it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use polylet_api::{Backoff, Connection};
use polylet_kit::{CancellationToken, Ctx, report};
use tokio::sync::watch;

use super::request::{self, Wish};
use super::store::{self, Store};
use crate::core::certificates::{Next, serving};
use crate::node::Registered;

const SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The wall clock may jump: no sleep is longer.
const NAP: Duration = Duration::from_secs(600);

pub(super) struct Keeper {
    user: String,
    connection: Connection,
    registered: watch::Receiver<Option<Registered>>,
    store: Store,
    share: f64,
    backoff: Backoff,
    complaint: String,
    drain: CancellationToken,
}

impl Keeper {
    pub(super) fn new(
        ctx: &Ctx,
        connection: Connection,
        registered: watch::Receiver<Option<Registered>>,
    ) -> Self {
        let directory = ctx.config().polylet.cert_directory();
        Self {
            user: format!("system:node:{}", ctx.node_name()),
            connection,
            registered,
            store: Store::new(directory, "kubelet-server"),
            share: polylet_api::random(),
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)),
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
            let names = self.names();
            let has_ip = names.iter().any(|name| name.parse::<IpAddr>().is_ok());
            let held = std::fs::read(self.store.current()).ok();
            let held = held.and_then(|pem| store::read(&pem));
            let held = held.as_ref().map(|(validity, names)| (*validity, names));
            let now = Timestamp::now();
            match serving(held, &names, has_ip, self.share, now) {
                Next::Renew | Next::Bootstrap | Next::TakeOver => self.ask(names).await,
                Next::Nothing => self.changed().await,
                Next::Wait(at) => {
                    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                    tokio::select! {
                        () = tokio::time::sleep(left.min(NAP)) => {}
                        () = self.changed() => {}
                    }
                }
            }
        }
    }

    /// Every address that the Node tells.
    fn names(&mut self) -> BTreeSet<String> {
        let registered = self.registered.borrow_and_update();
        registered
            .iter()
            .flat_map(|registered| registered.addresses.iter().cloned())
            .collect()
    }

    async fn changed(&mut self) {
        if self.registered.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn ask(&mut self, names: BTreeSet<String>) {
        let wish = Wish {
            user: self.user.clone(),
            names: names.into_iter().collect(),
            signer: SIGNER,
            usage: "server auth",
            prefix: "csr-",
        };
        let failure = match self.store.key() {
            Err(error) => report(&error),
            Ok(key) => match request::certificate(&self.connection, &key, &wish).await {
                Ok(certificate) => match self.store.put(&certificate, &key, Timestamp::now()) {
                    Ok(()) => {
                        tracing::info!(file = %self.store.current().display(), "a new serving certificate");
                        self.backoff.succeeded();
                        self.complaint.clear();
                        return;
                    }
                    Err(error) => report(&error),
                },
                Err(error) => {
                    if error.is_final() {
                        self.store.drop_key();
                    }
                    report(&error)
                }
            },
        };
        if failure != self.complaint {
            tracing::warn!("no serving certificate: {failure}");
            self.complaint = failure;
        }
        tokio::time::sleep(self.backoff.failed(None)).await;
    }
}
