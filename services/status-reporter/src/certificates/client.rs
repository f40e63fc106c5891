//! The node's client certificate.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use polylet_api::{ApiConnection, ClientConfig, Retry};
use polylet_kit::{CancellationToken, Ctx, clock};

use super::csr::{self, CsrSpec};
use super::error::CertificateError;
use super::kubeconfig;
use super::metrics;
use super::store::{self, CertificateStore};
use crate::core::certificates::{CertificateAction, Credentials, client};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Requests the first certificate and renews it in time.
pub(super) struct ClientCertificateManager {
    user: String,
    rotate: bool,
    kubeconfig: PathBuf,
    bootstrap_kubeconfig: Option<PathBuf>,
    /// Requests as the node.
    renewal: Retry,
    /// Requests with the bootstrap kubeconfig, which may do nothing else.
    bootstrap: Option<Retry>,
    store: CertificateStore,
    /// Draws the renewal time.
    share: f64,
    /// The embedded certificate of the kubeconfig is in use until the cluster has signed another.
    taken_over: bool,
    last_warning: Option<String>,
    drain: CancellationToken,
}

impl ClientCertificateManager {
    pub(super) fn new(ctx: &Ctx, access: &ClientConfig) -> Self {
        let polylet = &ctx.config().polylet;
        let bootstrap_kubeconfig = polylet.bootstrap_kubeconfig.clone();
        let bootstrap = bootstrap_kubeconfig
            .clone()
            .map(|path| ClientConfig::new(path, crate::DESCRIPTOR.service));
        let retry = |access| {
            let (initial, max) = (Duration::from_secs(1), Duration::from_secs(60));
            let connection = ApiConnection::new(access);
            Retry::new("request client certificate", connection, initial, max)
        };
        Self {
            user: format!("system:node:{}", ctx.node_name()),
            rotate: ctx.config().kubelet.rotate_certificates,
            kubeconfig: access.kubeconfig().to_owned(),
            bootstrap_kubeconfig,
            renewal: retry(access.clone()),
            bootstrap: bootstrap.map(retry),
            store: CertificateStore::new(polylet.cert_directory(), "kubelet-client"),
            share: polylet_api::random(),
            taken_over: false,
            last_warning: None,
            drain: ctx.drain(),
        }
    }

    pub(super) async fn run(mut self) {
        // Other services wait for the kubeconfig by watching its directory.
        if let Some(directory) = self.kubeconfig.parent()
            && let Err(error) = store::create_directory(directory)
        {
            tracing::warn!(
                path = %directory.display(),
                %error,
                "failed to create the directory of the kubeconfig"
            );
        }
        let drain = self.drain.clone();
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.manage() => {}
        }
    }

    async fn manage(&mut self) {
        if self.rotate {
            metrics::register_client_counts();
        }
        loop {
            let now = Timestamp::now();
            let managed = self.store.current();
            let current = std::fs::read(&managed).ok();
            let current = current.and_then(|pem| store::read(&pem));
            metrics::set_client(current.map(|(validity, _)| validity));
            let credentials = kubeconfig::credentials(&self.kubeconfig, &managed, self.rotate);
            self.warn_about_validity(credentials, now);
            let has_bootstrap = self.bootstrap.is_some();
            match client(credentials, has_bootstrap, self.rotate, self.share, now) {
                CertificateAction::Bootstrap => self.request(true).await,
                CertificateAction::Renew => self.request(false).await,
                CertificateAction::TakeOver => self.take_over(now).await,
                CertificateAction::Wait(_) if self.taken_over => self.request(false).await,
                CertificateAction::Wait(at) => {
                    tokio::select! {
                        () = clock::sleep_until(at) => {}
                        () = self.renewal.connection().credentials_changed() => {}
                    }
                }
                CertificateAction::Nothing => {
                    self.renewal.connection().credentials_changed().await;
                }
            }
        }
    }

    /// Copies the embedded certificate of the kubeconfig to the managed file.
    async fn take_over(&mut self, now: Timestamp) {
        let copied = match kubeconfig::embedded(&self.kubeconfig) {
            Some((certificate, key)) => self
                .store
                .save_pair(&certificate, &key, now)
                .map_err(CertificateError::Store),
            None => Err(CertificateError::NoEmbeddedKey),
        };
        match copied {
            Ok(()) => self.taken_over = true,
            Err(error) => {
                self.renewal.failed(&error);
                self.renewal.wait_or_new_credentials().await;
            }
        }
    }

    /// Warns about a certificate that only an administrator can replace.
    fn warn_about_validity(&mut self, credentials: Credentials, now: Timestamp) {
        let Credentials::Certificate(validity, _) = credentials else {
            return;
        };
        let (message, at) = if validity.from > now {
            (
                "client certificate is not valid yet; check the clock",
                validity.from,
            )
        } else if validity.until <= now && self.bootstrap.is_none() {
            (
                "client certificate has expired, and there is no bootstrapKubeconfig to request another",
                validity.until,
            )
        } else {
            return;
        };
        let warning = format!("{message} {at}");
        if self.last_warning.as_ref() != Some(&warning) {
            tracing::warn!(%at, "{message}");
            self.last_warning = Some(warning);
        }
    }

    /// Requests a certificate, and waits after a failure.
    async fn request(&mut self, first: bool) {
        let retry = if first {
            self.bootstrap.as_ref()
        } else {
            Some(&self.renewal)
        };
        let Some(retry) = retry else {
            return;
        };
        let obtained = self.obtain(retry.connection(), first).await;
        let retry = match &mut self.bootstrap {
            Some(bootstrap) if first => bootstrap,
            _ => &mut self.renewal,
        };
        match obtained {
            Ok(()) => {
                retry.succeeded();
                self.last_warning = None;
                self.taken_over = false;
            }
            Err(error) => {
                metrics::count_client_error();
                retry.failed(&error);
                retry.wait_or_new_credentials().await;
            }
        }
    }

    /// Requests and stores a certificate. As upstream, the kubeconfig is written with the first one alone: later it is
    /// the administrator's, and the bootstrap kubeconfig may be gone.
    async fn obtain(
        &self,
        connection: &ApiConnection,
        first: bool,
    ) -> Result<(), CertificateError> {
        let spec = CsrSpec {
            user: self.user.clone(),
            names: Vec::new(),
            signer: SIGNER,
            usage: "client auth",
            prefix: "node-csr-",
        };
        let key = self.store.pending_key()?;
        let certificate = csr::request_certificate(connection, &key, &spec).await;
        let certificate = certificate.inspect_err(|error| {
            if error.is_final() {
                self.store.remove_pending_key();
            }
        })?;
        self.store.save(&certificate, &key, Timestamp::now())?;
        let path = self.store.current();
        tracing::info!(path = %path.display(), "client certificate stored");
        if let Some(bootstrap) = self.bootstrap_kubeconfig.as_ref().filter(|_| first) {
            kubeconfig::create(bootstrap, &self.kubeconfig, &path)?;
        }
        Ok(())
    }
}
