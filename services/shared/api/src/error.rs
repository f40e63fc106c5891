use std::path::PathBuf;

use kube::config::KubeconfigError;

use crate::exec_credential::PluginError;
use crate::proxy::ProxyError;

/// A client that could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read or is incomplete.
    #[error("reading kubeconfig {path}")]
    Kubeconfig {
        /// The kubeconfig.
        path: PathBuf,
        /// The cause.
        #[source]
        source: KubeconfigError,
    },
    /// The kubeconfig is not valid YAML, or has fields of wrong types. The parser's own message
    /// quotes the lines around, and so perhaps a token: only the position is reported.
    #[error("reading kubeconfig {path}: invalid YAML at {position}")]
    Yaml {
        /// The kubeconfig.
        path: PathBuf,
        /// `line 3 column 12`, or `unknown position`.
        position: String,
    },
    /// The credential plugin failed.
    #[error("running the credential plugin of kubeconfig {path}")]
    Plugin {
        /// The kubeconfig.
        path: PathBuf,
        /// The cause.
        #[source]
        source: PluginError,
    },
    /// The proxy setting is invalid.
    #[error("configuring the proxy for kubeconfig {path} from {setting}")]
    Proxy {
        /// The kubeconfig.
        path: PathBuf,
        /// `proxy-url`, or the name of an environment variable.
        setting: &'static str,
        /// The cause.
        #[source]
        source: ProxyError,
    },
    /// The certificates or keys are unusable.
    #[error("loading the credentials of kubeconfig {path}")]
    Credentials {
        /// The kubeconfig.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}
