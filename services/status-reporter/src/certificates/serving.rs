//! The serving certificate of the node API, signed by the cluster.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use polylet_api::{ApiConnection, Retry};
use polylet_kit::{CancellationToken, Ctx, clock};
use tokio::sync::watch;

use super::csr::{self, CsrSpec};
use super::error::CertificateError;
use super::metrics;
use super::store::{self, CertificateStore};
use crate::core::certificates::{CertificateAction, serving};
use crate::node::RegisteredNode;

const SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Requests the certificate, and renews it in time and when the node's addresses change.
pub(super) struct ServingCertificateManager {
    user: String,
    registered: watch::Receiver<Option<RegisteredNode>>,
    store: CertificateStore,
    /// Draws the renewal time.
    share: f64,
    retry: Retry,
    drain: CancellationToken,
}

impl ServingCertificateManager {
    pub(super) fn new(
        ctx: &Ctx,
        connection: ApiConnection,
        registered: watch::Receiver<Option<RegisteredNode>>,
    ) -> Self {
        let directory = ctx.config().polylet.cert_directory();
        let (initial, max) = (Duration::from_secs(1), Duration::from_secs(60));
        Self {
            user: format!("system:node:{}", ctx.node_name()),
            registered,
            store: CertificateStore::new(directory, "kubelet-server"),
            share: polylet_api::random(),
            retry: Retry::new("request serving certificate", connection, initial, max),
            drain: ctx.drain(),
        }
    }

    pub(super) async fn run(mut self) {
        let drain = self.drain.clone();
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.manage() => {}
        }
    }

    async fn manage(&mut self) {
        metrics::register_server_counts();
        loop {
            let names = self.names();
            let has_ip = names.iter().any(|name| name.parse::<IpAddr>().is_ok());
            let current = std::fs::read(self.store.current()).ok();
            let current = current.and_then(|pem| store::read(&pem));
            let validity = current.as_ref().map(|(validity, _)| *validity);
            metrics::set_server(validity);
            let current = current.as_ref().map(|(validity, names)| (*validity, names));
            match serving(current, &names, has_ip, self.share, Timestamp::now()) {
                CertificateAction::Renew
                | CertificateAction::Bootstrap
                | CertificateAction::TakeOver => match self.request(names).await {
                    Ok(()) => {
                        if let Some(replaced) = validity {
                            metrics::count_server_rotation(replaced, Timestamp::now());
                        }
                        self.retry.succeeded();
                    }
                    Err(error) => {
                        metrics::count_server_error();
                        self.retry.failed(&error);
                        self.retry.wait().await;
                    }
                },
                CertificateAction::Nothing => self.node_changed().await,
                CertificateAction::Wait(at) => {
                    tokio::select! {
                        () = clock::sleep_until(at) => {}
                        () = self.node_changed() => {}
                    }
                }
            }
        }
    }

    /// All addresses and names in the Node's status.
    fn names(&mut self) -> BTreeSet<String> {
        let registered = self.registered.borrow_and_update();
        registered
            .iter()
            .flat_map(|registered| registered.addresses.iter().cloned())
            .collect()
    }

    async fn node_changed(&mut self) {
        if self.registered.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn request(&self, names: BTreeSet<String>) -> Result<(), CertificateError> {
        let spec = CsrSpec {
            user: self.user.clone(),
            names: names.into_iter().collect(),
            signer: SIGNER,
            usage: "server auth",
            prefix: "csr-",
        };
        let key = self.store.pending_key()?;
        let certificate = csr::request_certificate(self.retry.connection(), &key, &spec).await;
        let certificate = certificate.inspect_err(|error| {
            if error.is_final() {
                self.store.remove_pending_key();
            }
        })?;
        self.store.save(&certificate, &key, Timestamp::now())?;
        let path = self.store.current();
        tracing::info!(path = %path.display(), "serving certificate stored");
        Ok(())
    }
}
