//! Configuration of the static sources, from the node's configuration.

use std::path::PathBuf;
use std::time::Duration;

/// The kubelet's default of `fileCheckFrequency` and `httpCheckFrequency`.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(20);

/// The static sources of this node.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Node name.
    pub node: String,
    /// The directory or file of `staticPodPath`.
    pub directory: Option<DirectoryConfig>,
    /// The URL of `staticPodURL`.
    pub http: Option<UrlConfig>,
}

/// The manifest directory, or a single file.
#[derive(Clone, Debug)]
pub struct DirectoryConfig {
    /// Path of the directory or file.
    pub path: PathBuf,
    /// Interval of complete scans, which are independent of inotify.
    pub interval: Duration,
    /// The directory of pods' logs, which names the pods that a kubelet left running.
    pub pod_logs: PathBuf,
}

/// The manifest URL.
#[derive(Clone)]
pub struct UrlConfig {
    /// The URL; may contain a password.
    pub url: String,
    /// Headers of each request; may contain secrets.
    pub headers: Vec<(String, String)>,
    /// Interval of requests.
    pub interval: Duration,
}

/// Manual, so that no secret is printed.
impl std::fmt::Debug for UrlConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UrlConfig")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Derives the sources from the node's configuration.
    pub fn new(config: &polylet_kit::Config) -> Config {
        let kubelet = &config.kubelet;
        let or_default = |interval: Duration| {
            if interval.is_zero() {
                DEFAULT_INTERVAL
            } else {
                interval
            }
        };
        let directory = (!kubelet.static_pod_path.is_empty()).then(|| DirectoryConfig {
            path: PathBuf::from(&kubelet.static_pod_path),
            interval: or_default(kubelet.file_check_frequency),
            pod_logs: PathBuf::from(&kubelet.pod_logs_dir),
        });
        let headers = kubelet.static_pod_url_header.iter();
        let http = (!kubelet.static_pod_url.is_empty()).then(|| UrlConfig {
            url: kubelet.static_pod_url.clone(),
            headers: headers
                .flat_map(|(name, values)| values.iter().map(|v| (name.clone(), v.clone())))
                .collect(),
            interval: or_default(kubelet.http_check_frequency),
        });
        Config {
            node: config.polylet.node_name.clone(),
            directory,
            http,
        }
    }
}
