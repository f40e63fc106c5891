use std::path::{Path, PathBuf};

use polylet_kit::Config;

/// Where the API server is, as the configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    kubeconfig: PathBuf,
    user_agent: String,
}

impl Access {
    /// Of a node that belongs to a cluster; `None` of one that stands alone.
    pub fn of(config: &Config, service: &str) -> Option<Access> {
        let kubeconfig = config.polylet.kubeconfig.clone()?;
        Some(Access::new(kubeconfig, service))
    }

    /// By the file, for a service of this name.
    pub fn new(kubeconfig: PathBuf, service: &str) -> Access {
        let version = env!("CARGO_PKG_VERSION");
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        Access {
            kubeconfig,
            user_agent: format!("polylet-{service}/{version} ({os}/{arch})"),
        }
    }

    /// The kubeconfig file. It may not be there yet: the first one comes from bootstrapping.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn user_agent(&self) -> &str {
        &self.user_agent
    }
}
