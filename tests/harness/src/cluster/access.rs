use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::authority::KeyPairFiles;
use super::kubeconfig::{self, User};
use super::{Cluster, Proxy, TcpProxy, args};
use crate::NodeOptions;
use crate::error::HarnessError;

/// A bootstrap token for a node's certificate request.
const BOOTSTRAP: (&str, &str) = ("polyle", "0123456789abcdef");

/// The DNS domain of services and pods.
pub const CLUSTER_DOMAIN: &str = "cluster.local";

impl Cluster {
    /// The admin kubeconfig.
    pub fn admin(&self) -> PathBuf {
        self.scratch.dir().join("admin.kubeconfig")
    }

    /// The kubeconfig of a node with a client certificate for its name.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn node_kubeconfig(&self, name: &str) -> Result<PathBuf, HarnessError> {
        self.node_kubeconfig_by(name, &self.server())
    }

    pub(super) fn node_kubeconfig_by(
        &self,
        name: &str,
        server: &str,
    ) -> Result<PathBuf, HarnessError> {
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

    /// A TCP proxy to the API server that can blackhole its connections.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub async fn line(&self) -> Result<TcpProxy, HarnessError> {
        TcpProxy::to(vec![self.port]).await
    }

    /// An HTTP proxy to the API server.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub async fn proxy(&self) -> Result<Proxy, HarnessError> {
        Proxy::to(self.port).await
    }

    /// The API server's cluster IP. It is in the server's certificate, but not reachable from the
    /// host.
    pub fn inner_server(&self) -> String {
        format!("https://{}:443", Ipv4Addr::from(args::FIRST_SERVICE))
    }

    /// The kubeconfig of a node with an expired certificate.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn ended_kubeconfig(&self, name: &str) -> Result<PathBuf, HarnessError> {
        let (file, user) = (format!("ended-{name}"), format!("system:node:{name}"));
        let identity = self
            .authority
            .ended_client(&file, &user, &["system:nodes"])?;
        let path = self.scratch.dir().join(format!("{file}.kubeconfig"));
        self.kubeconfig(&path, &User::Certificate(&identity))?;
        Ok(path)
    }

    /// A kubeconfig with a bootstrap token, for a node without a certificate. The cluster then
    /// approves nodes' client certificates automatically, as with kubeadm.
    ///
    /// # Errors
    /// Fails if a file cannot be written or the API server rejects a request.
    pub async fn bootstrap_kubeconfig(&self) -> Result<PathBuf, HarnessError> {
        let (id, secret) = BOOTSTRAP;
        self.apply_bootstrap(id, secret, true).await?;
        self.token_kubeconfig("bootstrap", &format!("{id}.{secret}"))
    }

    /// Like [`Cluster::bootstrap_kubeconfig`], without automatic approval of certificates.
    ///
    /// # Errors
    /// See [`Cluster::bootstrap_kubeconfig`].
    pub async fn unapproved_kubeconfig(&self) -> Result<PathBuf, HarnessError> {
        let (id, secret) = BOOTSTRAP;
        self.apply_bootstrap(id, secret, false).await?;
        self.token_kubeconfig("bootstrap", &format!("{id}.{secret}"))
    }

    /// A kubeconfig with a bearer token, valid or not.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn token_kubeconfig(&self, file: &str, token: &str) -> Result<PathBuf, HarnessError> {
        let path = self.scratch.dir().join(format!("{file}.kubeconfig"));
        self.kubeconfig(&path, &User::Token(token))?;
        Ok(path)
    }

    /// A kubeconfig with the node's certificate embedded, as written by installers.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written.
    pub fn embedded_kubeconfig(&self, name: &str) -> Result<PathBuf, HarnessError> {
        let user = format!("system:node:{name}");
        let file = format!("embedded-{name}");
        let identity = self.authority.client(&file, &user, &["system:nodes"])?;
        let path = self.scratch.dir().join(format!("{file}.kubeconfig"));
        self.kubeconfig(&path, &User::Embedded(&identity))?;
        Ok(path)
    }

    /// Enables automatic approval of certificate renewals, as kubeadm does.
    ///
    /// # Errors
    /// Fails if the API server rejects the request.
    pub async fn approve_renewals(&self) -> Result<(), HarnessError> {
        self.apply_approval("approve-next", "selfnodeclient", "system:nodes")
            .await
    }

    /// Options of a node that joins this cluster.
    ///
    /// # Errors
    /// Fails if its certificate cannot be written.
    pub fn node_options(&self, name: &str) -> Result<NodeOptions, HarnessError> {
        self.node_options_by(name, &self.server())
    }

    /// Like [`Cluster::node_options`], with another URL for the API server, such as that of a TCP
    /// proxy.
    ///
    /// # Errors
    /// See [`Cluster::node_options`].
    pub fn node_options_by(&self, name: &str, server: &str) -> Result<NodeOptions, HarnessError> {
        Ok(NodeOptions {
            name: name.to_owned(),
            kubelet: json!({
                // The API server connects to the node's address.
                "address": "0.0.0.0",
                // No DNS server responds there; without an address the node reports an event for
                // every pod.
                "clusterDNS": [Ipv4Addr::from(args::DNS)],
                "clusterDomain": CLUSTER_DOMAIN,
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

    /// A client certificate for this user and these groups.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn identity(
        &self,
        file: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<(PathBuf, PathBuf), HarnessError> {
        let KeyPairFiles { certificate, key } = self.authority.client(file, user, groups)?;
        Ok((certificate, key))
    }

    /// The same, expired.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn ended_identity(
        &self,
        file: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<(PathBuf, PathBuf), HarnessError> {
        let KeyPairFiles { certificate, key } = self.authority.ended_client(file, user, groups)?;
        Ok((certificate, key))
    }

    pub(super) fn kubeconfig(&self, path: &Path, user: &User<'_>) -> Result<(), HarnessError> {
        kubeconfig::write(path, &self.server(), &self.authority(), user)
    }
}
