use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use polylet_kit::Config;

use crate::kept;

/// Where the API server is, as the configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    kubeconfig: PathBuf,
    /// The client certificate that the node keeps, where it is rotated.
    kept: Option<PathBuf>,
    user_agent: String,
}

impl Access {
    /// Of a node that belongs to a cluster; `None` of one that stands alone.
    pub fn of(config: &Config, service: &str) -> Option<Access> {
        let kubeconfig = config.polylet.kubeconfig.clone()?;
        let mut access = Access::new(kubeconfig, service);
        if config.kubelet.rotate_certificates {
            let directory = config.polylet.cert_directory();
            access.kept = Some(directory.join("kubelet-client-current.pem"));
        }
        Some(access)
    }

    /// By the file, for a service of this name.
    pub fn new(kubeconfig: PathBuf, service: &str) -> Access {
        // The API server takes what is before the slash for the owner of the fields that are written:
        // that is the kubelet's, whichever agent runs.
        let version = polylet_model::node::kubelet_version(env!("CARGO_PKG_VERSION"));
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        Access {
            kubeconfig,
            kept: None,
            user_agent: format!("kubelet/{version} ({os}/{arch}) polylet-{service}"),
        }
    }

    /// The kubeconfig file. It may not be there yet: the first one comes from bootstrapping.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The server that the kubeconfig names, and the authority that it trusts, as PEM; nothing while
    /// the kubeconfig cannot be read.
    pub fn cluster(&self) -> Option<(String, String)> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).ok()?;
        let cluster = kept::cluster(&kubeconfig)?;
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

    pub(crate) fn kept(&self) -> Option<&Path> {
        self.kept.as_deref()
    }

    pub(crate) fn user_agent(&self) -> &str {
        &self.user_agent
    }
}
