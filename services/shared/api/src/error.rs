use std::path::PathBuf;

use kube::config::KubeconfigError;

use crate::plugin::PluginError;
use crate::proxy::ProxyError;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read or makes no sense.
    #[error("the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: KubeconfigError,
    },
    /// The kubeconfig is no YAML of a kubeconfig's shape. The parser's own words quote the lines
    /// around, and so perhaps a token: only the place is told.
    #[error("the kubeconfig {path}: {place}: not a kubeconfig's YAML")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// `line 3 column 12`, as far as it is known.
        place: String,
    },
    /// The program that it names gives no credentials.
    #[error("the kubeconfig {path}: the program of its exec")]
    Plugin {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: PluginError,
    },
    /// The proxy that is named cannot be used.
    #[error("the kubeconfig {path}: the proxy of its server, named by {place}")]
    Proxy {
        /// The kubeconfig.
        path: PathBuf,
        /// `its proxy-url`, or a variable of the environment.
        place: &'static str,
        /// What is wrong with it.
        #[source]
        source: ProxyError,
    },
    /// Its certificates or keys cannot be used.
    #[error("the credentials that the kubeconfig {path} names")]
    Credentials {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
}
