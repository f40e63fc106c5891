//! Control plane faults: etcd compaction, CA change, several API servers.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rcgen::SanType;
use serde_json::{Value, json};

use super::authority::CertificateAuthority;
use super::{Client, Cluster, Component, TcpProxy, args};
use crate::error::{HarnessError, file};
use crate::machine;
use crate::wait::{Poll, until};

impl Cluster {
    /// Compacts etcd up to the current revision, so that watches from older revisions fail with 410
    /// Gone, and restarts the API server to clear its watch cache.
    ///
    /// # Errors
    /// Fails if a request is rejected or the API server does not become ready.
    pub async fn forget_history(&mut self) -> Result<(), HarnessError> {
        let list = self.client.get("/api/v1/namespaces").await?;
        let revision = list.and_then(|list| {
            let revision = list["metadata"]["resourceVersion"].as_str()?;
            revision.parse::<u64>().ok()
        });
        let etcd = Client::new(
            self.etcd_port,
            &self.authority(),
            &self.authority.issued("to-etcd"),
        )?;
        let compaction = json!({ "revision": revision, "physical": true });
        etcd.create("/v3/kv/compaction", &compaction).await?;
        self.stop_api();
        self.start_api().await
    }

    /// Restarts the API server with a certificate of a new CA, as at the end of a CA rotation, and
    /// returns the path of that CA's certificate. Clients that trust only the former CA, such as
    /// the controllers, can no longer connect; client certificates remain valid.
    ///
    /// # Errors
    /// Fails if a file cannot be written or the server does not become ready.
    pub async fn change_authority(&mut self) -> Result<PathBuf, HarnessError> {
        let next = CertificateAuthority::create(&self.scratch.sub("pki-next")?)?;
        let first: Ipv4Addr = args::FIRST_SERVICE.into();
        let serving = next.server("kube-apiserver", &[SanType::IpAddress(first.into())])?;
        let served = self.authority.issued("kube-apiserver");
        self.stop_api();
        for (from, to) in [
            (&serving.certificate, &served.certificate),
            (&serving.key, &served.key),
        ] {
            file("replace", to, fs::copy(from, to))?;
        }
        let certificate = next.own().certificate;
        let admin = self.authority.issued("admin");
        self.client = Client::new(self.port, &certificate, &admin)?;
        self.start_api().await?;
        Ok(certificate)
    }

    /// Starts a second API server on the same etcd, and a proxy that alternates connections between
    /// both, as a TCP load balancer does.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn second_api(&self) -> Result<(Component, TcpProxy), HarnessError> {
        let port = machine::free_port()?;
        let log = self.scratch.dir().join("audit-second.log");
        let changed = [
            ("secure-port", port.to_string()),
            ("audit-log-path", log.display().to_string()),
        ];
        let mut second = self.api.with_args("kube-apiserver-second", &changed);
        second.start()?;
        let admin = self.authority.issued("admin");
        let client = Client::new(port, &self.authority(), &admin)?;
        until("the second API server to be ready", || async {
            match client.text("/readyz").await {
                Ok(_) => Poll::Ready(()),
                Err(error) => Poll::Pending(crate::error::report(&error)),
            }
        })
        .await?;
        let line = TcpProxy::to(vec![self.port, port]).await?;
        Ok((second, line))
    }
}

/// Sets a field of the only cluster in a kubeconfig; `null` removes it. The file is replaced
/// atomically.
///
/// # Errors
/// Fails if the file cannot be read or written.
pub fn set_in_kubeconfig(path: &Path, field: &str, value: Value) -> Result<(), HarnessError> {
    let yaml = |source| HarnessError::Yaml {
        what: "kubeconfig",
        source,
    };
    let text = file("read", path, fs::read_to_string(path))?;
    let mut kubeconfig: Value = serde_yaml_ng::from_str(&text).map_err(yaml)?;
    kubeconfig["clusters"][0]["cluster"][field] = value;
    let text = serde_yaml_ng::to_string(&kubeconfig).map_err(yaml)?;
    let aside = path.with_extension("aside");
    file("write", &aside, fs::write(&aside, text))?;
    file("move", path, fs::rename(&aside, path))
}
