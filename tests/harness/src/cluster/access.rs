use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::authority::Identity;
use super::kubeconfig::{self, User};
use super::{Cluster, Line, Proxy, args};
use crate::NodeOptions;
use crate::error::HarnessError;

/// A token with which a node may ask for its certificate.
const BOOTSTRAP: (&str, &str) = ("polyle", "0123456789abcdef");

impl Cluster {
    /// The kubeconfig of one who may do everything.
    pub fn admin(&self) -> PathBuf {
        self.scratch.dir().join("admin.kubeconfig")
    }

    /// The kubeconfig of a node, with a client certificate of its name.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn node_kubeconfig(&self, name: &str) -> Result<PathBuf, HarnessError> {
        self.node_kubeconfig_by(name, &self.server())
    }

    fn node_kubeconfig_by(&self, name: &str, server: &str) -> Result<PathBuf, HarnessError> {
        let user = format!("system:node:{name}");
        let identity = self
            .authority
            .client(&format!("node-{name}"), &user, &["system:nodes"])?;
        let path = self.scratch.dir().join(format!("node-{name}.kubeconfig"));
        kubeconfig::write(
            &path,
            server,
            &self.authority(),
            &User::Certificate(&identity),
        )?;
        Ok(path)
    }

    /// A line to the API server that can go dead.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn line(&self) -> Result<Line, HarnessError> {
        Line::to(vec![self.port]).await
    }

    /// A proxy before the API server.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn proxy(&self) -> Result<Proxy, HarnessError> {
        Proxy::to(self.port).await
    }

    /// The address that the API server has inside the cluster. It is in its certificate, and from
    /// here nobody reaches it.
    pub fn inner_server(&self) -> String {
        format!("https://{}:443", Ipv4Addr::from(args::FIRST_SERVICE))
    }

    /// The kubeconfig of a node whose certificate ended long ago.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn ended_kubeconfig(&self, name: &str) -> Result<PathBuf, HarnessError> {
        let (file, user) = (format!("ended-{name}"), format!("system:node:{name}"));
        let identity = self
            .authority
            .ended_client(&file, &user, &["system:nodes"])?;
        let path = self.scratch.dir().join(format!("{file}.kubeconfig"));
        self.kubeconfig(&path, &User::Certificate(&identity))?;
        Ok(path)
    }

    /// A kubeconfig with a bootstrap token, as a node has one before it has its certificate. The
    /// cluster then approves nodes' client certificates by itself, as one of kubeadm does.
    ///
    /// # Errors
    /// When a file cannot be written, or the API server refuses.
    pub async fn bootstrap_kubeconfig(&self) -> Result<PathBuf, HarnessError> {
        let (id, secret) = BOOTSTRAP;
        self.apply_bootstrap(id, secret, true).await?;
        self.token_kubeconfig("bootstrap", &format!("{id}.{secret}"))
    }

    /// The same in a cluster where people approve every certificate.
    ///
    /// # Errors
    /// As [`Cluster::bootstrap_kubeconfig`].
    pub async fn unapproved_kubeconfig(&self) -> Result<PathBuf, HarnessError> {
        let (id, secret) = BOOTSTRAP;
        self.apply_bootstrap(id, secret, false).await?;
        self.token_kubeconfig("bootstrap", &format!("{id}.{secret}"))
    }

    /// A kubeconfig with a token, which the cluster may know or not.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn token_kubeconfig(&self, file: &str, token: &str) -> Result<PathBuf, HarnessError> {
        let path = self.scratch.dir().join(format!("{file}.kubeconfig"));
        self.kubeconfig(&path, &User::Token(token))?;
        Ok(path)
    }

    /// The kubeconfig of a node that holds the node's certificate itself, as installers write it.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn embedded_kubeconfig(&self, name: &str) -> Result<PathBuf, HarnessError> {
        let user = format!("system:node:{name}");
        let file = format!("embedded-{name}");
        let identity = self.authority.client(&file, &user, &["system:nodes"])?;
        let path = self.scratch.dir().join(format!("{file}.kubeconfig"));
        self.kubeconfig(&path, &User::Embedded(&identity))?;
        Ok(path)
    }

    /// Lets nodes renew their certificates, as a cluster of kubeadm does.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn approve_renewals(&self) -> Result<(), HarnessError> {
        self.apply_approval("approve-next", "selfnodeclient", "system:nodes")
            .await
    }

    /// A node that belongs to this cluster.
    ///
    /// # Errors
    /// When its certificate cannot be written.
    pub fn node_options(&self, name: &str) -> Result<NodeOptions, HarnessError> {
        self.node_options_by(name, &self.server())
    }

    /// The same, with the API server elsewhere: behind a [`Line`].
    ///
    /// # Errors
    /// As [`Cluster::node_options`].
    pub fn node_options_by(&self, name: &str, server: &str) -> Result<NodeOptions, HarnessError> {
        Ok(NodeOptions {
            name: name.to_owned(),
            kubelet: json!({
                // The API server comes by the node's address.
                "address": "0.0.0.0",
                // Nobody answers there; without one an agent complains of every pod.
                "clusterDNS": [Ipv4Addr::from(args::DNS)],
                "clusterDomain": "cluster.local",
                "authentication": {
                    "anonymous": { "enabled": false },
                    "webhook": { "enabled": true },
                    "x509": { "clientCAFile": self.authority() },
                },
                "authorization": { "mode": "Webhook" },
            }),
            polylet: json!({ "kubeconfig": self.node_kubeconfig_by(name, server)? }),
            ..NodeOptions::default()
        })
    }

    /// A client certificate of this user in these groups.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn identity(
        &self,
        file: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<(PathBuf, PathBuf), HarnessError> {
        let Identity { certificate, key } = self.authority.client(file, user, groups)?;
        Ok((certificate, key))
    }

    pub(super) fn kubeconfig(&self, path: &Path, user: &User<'_>) -> Result<(), HarnessError> {
        kubeconfig::write(path, &self.server(), &self.authority(), user)
    }
}
