use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polylet_kit::Config;

use crate::kubeconfig;

/// How the node reaches and identifies itself to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    kubeconfig: PathBuf,
    /// The rotated client certificate, where certificates are rotated.
    client_cert: Option<PathBuf>,
    user_agent: String,
}

impl ClientConfig {
    /// The client configuration of a node in a cluster; `None` for a standalone node.
    pub fn from_config(config: &Config, service: &str) -> Option<ClientConfig> {
        let kubeconfig = config.polylet.kubeconfig.clone()?;
        let mut client_config = ClientConfig::new(kubeconfig, service);
        if config.kubelet.rotate_certificates {
            let directory = config.polylet.cert_directory();
            client_config.client_cert = Some(directory.join("kubelet-client-current.pem"));
        }
        Some(client_config)
    }

    /// A client configuration from a kubeconfig file, for the service of this name.
    pub fn new(kubeconfig: PathBuf, service: &str) -> ClientConfig {
        // The API server takes the part before the slash as the field manager: it has to be the
        // kubelet's, so that fields keep their owner when a node changes its agent.
        let version = polylet_model::node::kubelet_version(env!("CARGO_PKG_VERSION"));
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        ClientConfig {
            kubeconfig,
            client_cert: None,
            user_agent: format!("kubelet/{version} ({os}/{arch}) polylet-{service}"),
        }
    }

    /// The path of the kubeconfig. Before bootstrapping the file does not exist.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The URL of the server in the kubeconfig and the certificate authority that it trusts, as
    /// PEM; `None` while the kubeconfig cannot be read.
    pub fn server_and_ca(&self) -> Option<(String, String)> {
        let kubeconfig = kubeconfig::read(&self.kubeconfig).ok()?;
        let cluster = kubeconfig::current_cluster(&kubeconfig)?;
        let authority = match (
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        ) {
            (Some(data), _) => STANDARD.decode(data).ok()?,
            (None, Some(path)) => std::fs::read(path).ok()?,
            (None, None) => Vec::new(),
        };
        let authority = String::from_utf8(authority).ok()?;
        Some((cluster.server.clone()?, authority.trim().to_owned()))
    }

    pub(crate) fn client_cert(&self) -> Option<&Path> {
        self.client_cert.as_deref()
    }

    pub(crate) fn user_agent(&self) -> &str {
        &self.user_agent
    }
}
