use std::path::PathBuf;

use serde_json::Value;

use crate::Flavour;

/// Options of a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Node name, appended to the names of static pods.
    pub name: String,
    /// The containerd version.
    pub flavour: Flavour,
    /// Directory of the binaries; [`super::default_bin_dir`] if `None`.
    pub bin_dir: Option<PathBuf>,
    /// Fields merged into `KubeletConfiguration`.
    pub kubelet: Value,
    /// Fields merged into `PolyletConfiguration`.
    pub polylet: Value,
    /// Environment variables of `polylet run`.
    pub env: Vec<(String, String)>,
    /// Size in MiB of a separate disk (tmpfs) for images and containers.
    pub image_disk: Option<u32>,
    /// Size in MiB of a separate disk (tmpfs) for state files.
    pub state_disk: Option<u32>,
    /// Resolver configuration of the services instead of the machine's.
    pub resolv_conf: Option<PathBuf>,
    /// The pods' network masquerades; see [`crate::Network::create`].
    pub masquerade: bool,
    /// Root directory, parent cgroup and ports of a machine's only node, which Kubernetes' own tests
    /// of nodes expect. The machine must not have another one.
    pub standard_paths: bool,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            name: "node".to_owned(),
            flavour: Flavour::from_env(),
            bin_dir: None,
            kubelet: Value::Null,
            polylet: Value::Null,
            env: Vec::new(),
            image_disk: None,
            state_disk: None,
            resolv_conf: None,
            masquerade: false,
            standard_paths: false,
        }
    }
}
