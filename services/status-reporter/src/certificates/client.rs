//! The node's own certificate.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use polylet_api::{Access, Backoff, Connection, Refusal};
use polylet_kit::{CancellationToken, Ctx, report};

use super::kubeconfig;
use super::request::{self, Wish};
use super::store::{self, Store};
use crate::core::certificates::{Credentials, Next, client};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The wall clock may jump: no sleep is longer.
const NAP: Duration = Duration::from_secs(600);

pub(super) struct Keeper {
    user: String,
    rotate: bool,
    kubeconfig: PathBuf,
    bootstrap: Option<PathBuf>,
    connection: Connection,
    /// As one who may do nothing but ask for a certificate.
    newcomer: Option<Connection>,
    store: Store,
    share: f64,
    /// The kubeconfig's own certificate is used until the cluster has signed another.
    taken_over: bool,
    backoff: Backoff,
    complaint: String,
    drain: CancellationToken,
}

impl Keeper {
    pub(super) fn new(ctx: &Ctx, access: &Access) -> Self {
        let polylet = &ctx.config().polylet;
        let bootstrap = polylet.bootstrap_kubeconfig.clone();
        let newcomer = bootstrap
            .clone()
            .map(|path| Access::new(path, "status-reporter"));
        Self {
            user: format!("system:node:{}", ctx.node_name()),
            rotate: ctx.config().kubelet.rotate_certificates,
            kubeconfig: access.kubeconfig().to_owned(),
            bootstrap,
            connection: Connection::new(access.clone()),
            newcomer: newcomer.map(Connection::new),
            store: Store::new(polylet.cert_directory(), "kubelet-client"),
            share: polylet_api::random(),
            taken_over: false,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)),
            complaint: String::new(),
            drain: ctx.drain(),
        }
    }

    pub(super) async fn run(mut self) {
        // Whoever waits for the kubeconfig waits for a change of its directory.
        if let Some(directory) = self.kubeconfig.parent()
            && let Err(error) = store::make(directory)
        {
            tracing::warn!(%error, directory = %directory.display(), "no place for the kubeconfig");
        }
        let drain = self.drain.clone();
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&mut self) {
        loop {
            let now = Timestamp::now();
            let kept = self.store.current();
            let found = kubeconfig::credentials(&self.kubeconfig, &kept, self.rotate);
            self.explain(found, now);
            let bootstrap = self.bootstrap.is_some();
            match client(found, bootstrap, self.rotate, self.share, now) {
                Next::Bootstrap => self.ask(true).await,
                Next::Renew => self.ask(false).await,
                Next::TakeOver => self.take_over(now),
                Next::Wait(_) if self.taken_over => self.ask(false).await,
                Next::Wait(at) => {
                    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                    tokio::select! {
                        () = tokio::time::sleep(left.min(NAP)) => {}
                        () = self.connection.renewed() => {}
                    }
                }
                Next::Nothing => self.connection.renewed().await,
            }
        }
    }

    /// The kubeconfig's own certificate is kept like those that come after it.
    fn take_over(&mut self, now: Timestamp) {
        let Some((certificate, key)) = kubeconfig::embedded(&self.kubeconfig) else {
            return self.complain("no key for the kubeconfig's certificate".to_owned());
        };
        match self.store.take_over(&certificate, &key, now) {
            Ok(()) => self.taken_over = true,
            Err(error) => self.complain(format!("no client certificate: {}", report(&error))),
        }
    }

    /// What only people can put right.
    fn explain(&mut self, found: Credentials, now: Timestamp) {
        let Credentials::Certificate(validity, _) = found else {
            return;
        };
        if validity.from > now {
            let from = validity.from;
            self.complain(format!(
                "the node's certificate is not valid before {from}: is the clock right?"
            ));
        } else if validity.until <= now && self.bootstrap.is_none() {
            let until = validity.until;
            self.complain(format!(
                "the node's certificate ended at {until}, and there is no bootstrapKubeconfig to get another by"
            ));
        }
    }

    async fn ask(&mut self, first: bool) {
        let Some(connection) = (if first {
            self.newcomer.clone()
        } else {
            Some(self.connection.clone())
        }) else {
            return;
        };
        match self.obtain(&connection).await {
            Ok(()) => {
                self.backoff.succeeded();
                self.complaint.clear();
                self.taken_over = false;
            }
            Err((refusal, what)) => {
                if refusal == Some(Refusal::Unauthorized) {
                    connection.refused();
                }
                let asked = match refusal {
                    Some(Refusal::Busy(asked)) => asked,
                    _ => None,
                };
                self.complain(format!("no client certificate: {what}"));
                // Other credentials may be what was waited for.
                tokio::select! {
                    () = tokio::time::sleep(self.backoff.failed(asked)) => {}
                    () = connection.renewed() => {}
                }
            }
        }
    }

    async fn obtain(&self, connection: &Connection) -> Result<(), (Option<Refusal>, String)> {
        let unkept = |error: &dyn std::error::Error| (None, error.to_string());
        let wish = Wish {
            user: self.user.clone(),
            names: Vec::new(),
            signer: SIGNER,
            usage: "client auth",
            prefix: "node-csr-",
        };
        let key = self.store.key().map_err(|error| (None, report(&error)))?;
        let certificate = request::certificate(connection, &key, &wish).await;
        let certificate = certificate.map_err(|error| {
            if error.is_final() {
                self.store.drop_key();
            }
            (error.refusal(), report(&error))
        })?;
        let put = self.store.put(&certificate, &key, Timestamp::now());
        put.map_err(|error| unkept(&error))?;
        tracing::info!(file = %self.store.current().display(), "a new client certificate");
        if let Some(bootstrap) = &self.bootstrap {
            let kept = self.store.current();
            let made = kubeconfig::make(bootstrap, &self.kubeconfig, &kept);
            made.map_err(|error| (None, report(&error)))?;
        }
        Ok(())
    }

    /// Once for each reason, not for each attempt.
    fn complain(&mut self, what: String) {
        if what != self.complaint {
            tracing::warn!("{what}");
            self.complaint = what;
        }
    }
}
