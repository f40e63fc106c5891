//! What of the node's configuration concerns this service.

use std::path::PathBuf;
use std::time::Duration;

use polylet_kit::Config;

/// Which sources there are.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// This node's name.
    pub node: String,
    /// `staticPodPath`.
    pub directory: Option<DirectorySettings>,
    /// `staticPodURL`.
    pub http: Option<HttpSettings>,
}

/// The directory, or a single file.
#[derive(Clone, Debug)]
pub struct DirectorySettings {
    /// Where.
    pub path: PathBuf,
    /// How often everything is looked at, whatever inotify has said.
    pub every: Duration,
}

/// The URL.
#[derive(Clone)]
pub struct HttpSettings {
    /// Where. May hold a password.
    pub url: String,
    /// Sent with each request. May hold secrets.
    pub headers: Vec<(String, String)>,
    /// How often.
    pub every: Duration,
}

/// By hand, for the secrets.
impl std::fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSettings")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Reads them out of the configuration.
    pub fn of(config: &Config) -> Settings {
        let kubelet = &config.kubelet;
        let or_default = |every: Duration| {
            if every.is_zero() {
                Duration::from_secs(20)
            } else {
                every
            }
        };
        let directory = (!kubelet.static_pod_path.is_empty()).then(|| DirectorySettings {
            path: PathBuf::from(&kubelet.static_pod_path),
            every: or_default(kubelet.file_check_frequency),
        });
        let headers = kubelet.static_pod_url_header.iter();
        let http = (!kubelet.static_pod_url.is_empty()).then(|| HttpSettings {
            url: kubelet.static_pod_url.clone(),
            headers: headers
                .flat_map(|(name, values)| values.iter().map(|v| (name.clone(), v.clone())))
                .collect(),
            every: or_default(kubelet.http_check_frequency),
        });
        Settings {
            node: config.polylet.node_name.clone(),
            directory,
            http,
        }
    }
}
