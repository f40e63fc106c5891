//! What befalls control planes in a long life: compaction, another authority, several API servers.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rcgen::SanType;
use serde_json::{Value, json};

use super::authority::Authority;
use super::{Client, Cluster, Line, Part, args};
use crate::error::{HarnessError, file};
use crate::machine;
use crate::wait::{Look, until};

impl Cluster {
    /// Makes etcd forget all that was before now: whoever asks for what changed since then is told that
    /// it is too old. The API server, which remembers some of it, is started anew.
    ///
    /// # Errors
    /// When one of them refuses, or does not come back.
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

    /// The API server serves with a certificate that another authority signed, as after the end of a
    /// rotation: gives the file of that authority. What reaches it by the former one, as the controllers
    /// do, is cut off; clients' certificates count as before.
    ///
    /// # Errors
    /// When a file cannot be written, or the server does not come back.
    pub async fn change_authority(&mut self) -> Result<PathBuf, HarnessError> {
        let next = Authority::create(&self.scratch.sub("pki-next")?)?;
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

    /// A second API server on the same etcd, and one address that leads to either, to the one after the
    /// other, as a balancer of connections does.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn second_api(&self) -> Result<(Part, Line), HarnessError> {
        let port = machine::free_port()?;
        let log = self.scratch.dir().join("audit-second.log");
        let changed = [
            ("secure-port", port.to_string()),
            ("audit-log-path", log.display().to_string()),
        ];
        let mut second = self.api.like("kube-apiserver-second", &changed);
        second.up()?;
        let admin = self.authority.issued("admin");
        let client = Client::new(port, &self.authority(), &admin)?;
        until("the second API server to be ready", || async {
            match client.text("/readyz").await {
                Ok(_) => Look::Done(()),
                Err(error) => Look::NotYet(crate::error::report(&error)),
            }
        })
        .await?;
        let line = Line::to(vec![self.port, port]).await?;
        Ok((second, line))
    }
}

/// Sets a field of the one cluster of a kubeconfig; `null` takes it out. The file is replaced at once.
///
/// # Errors
/// When it cannot be read or written.
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
