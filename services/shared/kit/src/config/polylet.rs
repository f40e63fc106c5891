use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `polylet.dev/v1alpha1`, kind `PolyletConfiguration`: what upstream has no word for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolyletConfiguration {
    /// The node's name; the host's name in lower case when not given.
    pub node_name: String,
    /// The node's address; found out when not given.
    #[serde(rename = "nodeIP")]
    pub node_ip: Option<IpAddr>,
    /// Its address of the other family, on a node that has both; goes with the first one.
    #[serde(rename = "secondaryNodeIP")]
    pub secondary_node_ip: Option<IpAddr>,
    /// Upstream's `--cloud-provider`: `external` when somebody else gives the node its addresses.
    pub cloud_provider: String,
    /// Sockets, locks and facts about running containers.
    pub run_directory: PathBuf,
    /// Promises that outlive a reboot.
    pub state_directory: PathBuf,
    /// Upstream's `--root-dir`: pods, volumes, plugins.
    pub root_directory: PathBuf,
    /// Where links to container logs are made for log collectors.
    pub container_logs_directory: PathBuf,
    /// Where the services' programs are; beside `polylet` when not given.
    pub bin_directory: Option<PathBuf>,
    /// Upstream's `--kubeconfig`: how the API server is reached. Without it the node runs what its
    /// own manifests say.
    pub kubeconfig: Option<PathBuf>,
    /// Upstream's `--bootstrap-kubeconfig`: with it a client certificate is asked for while the
    /// kubeconfig is missing or its certificate has ended.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Upstream's `--cert-dir`: certificates that are asked for or made; `pki` below the root
    /// directory when not given.
    pub cert_directory: Option<PathBuf>,
    /// Upstream's `--node-labels`: what the Node is labelled with when it is made.
    pub node_labels: BTreeMap<String, String>,
    /// Upstream's `--image-credential-provider-config`: which plugins are asked for logins of image
    /// registries; a file, or a directory of them. Goes with the next one.
    pub image_credential_provider_config_file: Option<PathBuf>,
    /// Upstream's `--image-credential-provider-bin-dir`: where the plugins' programs are.
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// How many pod starts run at once.
    pub parallel_starts: u32,
    /// Lets eviction take static pods by their priority. Upstream never evicts a static pod, so a
    /// node that has no others could free nothing.
    pub evict_static_pods: bool,
    /// How much of the traces the supervisor holds.
    pub trace_ring: TraceRing,
    /// `error`, `warn`, `info`, `debug`, `trace`, or `target=level` pairs.
    pub log_level: String,
}

/// Bounds of the supervisor's trace ring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TraceRing {
    /// Spans at most.
    pub max_spans: usize,
    /// Bytes at most.
    pub max_bytes: usize,
}

impl PolyletConfiguration {
    /// Where certificates that are asked for or made are.
    pub fn cert_directory(&self) -> PathBuf {
        let given = self.cert_directory.clone();
        given.unwrap_or_else(|| self.root_directory.join("pki"))
    }
}

impl Default for PolyletConfiguration {
    fn default() -> PolyletConfiguration {
        PolyletConfiguration {
            node_name: host_name(),
            node_ip: None,
            secondary_node_ip: None,
            cloud_provider: String::new(),
            run_directory: "/run/polylet".into(),
            state_directory: "/var/lib/polylet".into(),
            root_directory: "/var/lib/kubelet".into(),
            container_logs_directory: "/var/log/containers".into(),
            bin_directory: None,
            kubeconfig: None,
            bootstrap_kubeconfig: None,
            cert_directory: None,
            node_labels: BTreeMap::new(),
            image_credential_provider_config_file: None,
            image_credential_provider_bin_dir: None,
            parallel_starts: 10,
            evict_static_pods: false,
            trace_ring: TraceRing::default(),
            log_level: "info".to_owned(),
        }
    }
}

impl Default for TraceRing {
    fn default() -> TraceRing {
        TraceRing {
            max_spans: 5_000,
            max_bytes: 2 << 20,
        }
    }
}

/// As upstream names a node that was given no name.
fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().trim().to_lowercase()
}
