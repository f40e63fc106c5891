use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::go_duration;

/// `polylet.dev/v1alpha1`, kind `PolyletConfiguration`: settings that upstream does not have, or has
/// as flags.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolyletConfiguration {
    /// The node's name; by default the lower-case host name.
    pub node_name: String,
    /// The node's address; detected by default.
    #[serde(rename = "nodeIP")]
    pub node_ip: Option<IpAddr>,
    /// Its address of the other family on a dual-stack node; requires `nodeIP`.
    #[serde(rename = "secondaryNodeIP")]
    pub secondary_node_ip: Option<IpAddr>,
    /// Upstream's `--cloud-provider`: `external` when a cloud controller sets the node's addresses.
    pub cloud_provider: String,
    /// Directory of sockets, locks and state of running containers.
    pub run_directory: PathBuf,
    /// Directory of state that outlives a reboot.
    pub state_directory: PathBuf,
    /// Upstream's `--root-dir`: directory of pods, volumes and plugins.
    pub root_directory: PathBuf,
    /// Directory in which device plugins register. Upstream's is fixed, whatever its root directory.
    pub device_plugin_directory: PathBuf,
    /// Directory of links to container logs, for log collectors.
    pub container_logs_directory: PathBuf,
    /// Directory of the services' programs; by default that of `polylet`.
    pub bin_directory: Option<PathBuf>,
    /// Upstream's `--kubeconfig`: access to the API server. Without it the node runs static pods
    /// only.
    pub kubeconfig: Option<PathBuf>,
    /// Upstream's `--bootstrap-kubeconfig`: used to request a client certificate while the
    /// kubeconfig is missing or its certificate has expired.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Upstream's `--cert-dir`: directory of requested and self-signed certificates; by default
    /// `pki` below the root directory.
    pub cert_directory: Option<PathBuf>,
    /// Upstream's `--node-labels`: labels of the Node object at registration.
    pub node_labels: BTreeMap<String, String>,
    /// Upstream's `--image-credential-provider-config`: credential provider plugins of image
    /// registries; a file or a directory of files. Requires the plugins' directory.
    pub image_credential_provider_config_file: Option<PathBuf>,
    /// Upstream's `--image-credential-provider-bin-dir`: directory of the plugins' programs.
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// Most concurrent pod starts. By default as many as the runtime is busy with, which is measured.
    pub parallel_starts: Option<u32>,
    /// Lets eviction rank static pods by priority. Upstream never evicts a static pod, so a node
    /// without others could free nothing.
    pub evict_static_pods: bool,
    /// Where Secrets and service account tokens are kept for outages of the API server.
    pub keep_secrets: KeepSecrets,
    /// How long streams of containers and followed logs may go on, carried by the old process, when the node
    /// API is restarted or upgraded. Where another service manager than Polylet's supervisor runs the
    /// services, it is three seconds at most.
    #[serde(with = "go_duration")]
    pub stream_drain_timeout: Duration,
    /// Limits of the traces that the supervisor keeps.
    pub trace_ring: TraceRing,
    /// Traces that come from other programs, and which are exported besides those of `tracing.samplingRatePerMillion`.
    pub tracing: PolyletTracing,
    /// `error`, `warn`, `info`, `debug`, `trace`, or `target=level` pairs.
    pub log_level: String,
}

/// Where Secrets and service account tokens are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeepSecrets {
    /// On disk, readable by root alone: pods that need them start after a reboot during an outage.
    #[default]
    Disk,
    /// In memory only: such pods wait for the API server after a restart of the node agent.
    Memory,
}

/// Limits of the traces that the supervisor keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TraceRing {
    /// Most spans.
    pub max_spans: usize,
    /// Most bytes.
    pub max_bytes: usize,
}

/// What the node's traces have to do with those of other programs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolyletTracing {
    /// Address at which the supervisor receives spans of the container runtime over OTLP (gRPC). Off by default.
    pub receive: Option<SocketAddr>,
    /// What the annotation `tracing.k8s.io/traceparent` of a pod means.
    pub trace_parent: TraceParent,
    /// Traces that are exported though the sampling rate leaves them out.
    pub tail_sampling: TailSampling,
}

/// What the annotation `tracing.k8s.io/traceparent` of a pod means for the trace of its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TraceParent {
    /// The trace is linked to that span.
    #[default]
    Link,
    /// The trace continues that span's.
    Parent,
}

/// Traces that are exported for what they turned out to be. They wait for their end before they are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TailSampling {
    /// Those with a failed step.
    pub errors: bool,
    /// The slowest of each kind, in percent.
    pub slowest: u8,
}

impl PolyletConfiguration {
    /// `certDirectory`, or its default below the root directory.
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
            device_plugin_directory: "/var/lib/kubelet/device-plugins".into(),
            container_logs_directory: "/var/log/containers".into(),
            bin_directory: None,
            kubeconfig: None,
            bootstrap_kubeconfig: None,
            cert_directory: None,
            node_labels: BTreeMap::new(),
            image_credential_provider_config_file: None,
            image_credential_provider_bin_dir: None,
            parallel_starts: None,
            evict_static_pods: false,
            keep_secrets: KeepSecrets::default(),
            stream_drain_timeout: Duration::from_secs(5 * 60),
            trace_ring: TraceRing::default(),
            tracing: PolyletTracing::default(),
            log_level: "info".to_owned(),
        }
    }
}

impl Default for TraceRing {
    fn default() -> TraceRing {
        TraceRing {
            max_spans: 8_000,
            max_bytes: 3 << 20,
        }
    }
}

/// Upstream's default node name.
fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().trim().to_lowercase()
}
