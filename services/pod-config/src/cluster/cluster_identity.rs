//! The cluster that the state files belong to. A node that joined another cluster must not run the
//! pods of the previous one, nor give its Secrets to pods of the same names.

use std::path::{Path, PathBuf};

use polylet_api::ClientConfig;
use polylet_kit::report;
use polylet_kit::state_file::{StateFile, StateFileError};
use tokio::sync::watch;

use crate::core::cluster::state::{PersistedCluster, VERSION};

/// State files with objects of the API server.
const CACHED_STATE_FILES: [&str; 5] = [
    "api.json",
    "node.json",
    "services.json",
    "objects.json",
    "tokens.json",
];

/// The identity of the node's cluster.
pub(crate) struct ClusterIdentity {
    config: ClientConfig,
    dir: PathBuf,
    file: StateFile<PersistedCluster>,
    known: Option<PersistedCluster>,
}

impl ClusterIdentity {
    /// Removes the cached state of another cluster. Must run before any of it is loaded.
    ///
    /// # Errors
    /// The file cannot be read, or a newer build wrote it.
    pub(crate) fn verify(
        config: ClientConfig,
        dir: &Path,
    ) -> Result<ClusterIdentity, StateFileError> {
        let file = StateFile::new(dir.join("cluster.json"), VERSION);
        let known = file.restore("cluster of the cached state is unknown; assuming the same")?;
        let mut identity = ClusterIdentity {
            config,
            dir: dir.to_owned(),
            file,
            known,
        };
        if let Some(server) = identity.probe() {
            tracing::warn!(
                server,
                "node joined another cluster; discarding cached state"
            );
            identity.remove_cached_state();
            identity.known = None;
            identity.probe();
        }
        Ok(identity)
    }

    /// Returns when the kubeconfig names another cluster: the process must restart, since nothing in
    /// memory, such as resource versions, is valid then.
    pub(crate) async fn watch(mut self, mut credentials: watch::Receiver<u64>) {
        while credentials.changed().await.is_ok() {
            if let Some(server) = self.probe() {
                return tracing::warn!(server, "kubeconfig names another cluster; restarting");
            }
        }
    }

    /// Returns the server if it is of another cluster; otherwise saves changes of the identity.
    fn probe(&mut self) -> Option<String> {
        let (server, authority) = self.config.server_and_ca()?;
        let now = PersistedCluster { server, authority };
        match &self.known {
            Some(known) if known.is_another(&now) => return Some(now.server),
            Some(known) if *known == now => return None,
            _ => {}
        }
        if let Err(error) = self.file.save(&now) {
            let error = report(&error);
            tracing::warn!(error, "failed to save the cluster's identity");
        }
        self.known = Some(now);
        None
    }

    fn remove_cached_state(&self) {
        for name in CACHED_STATE_FILES {
            // With what is left of an earlier write, or was set aside.
            for suffix in ["", ".new", ".broken"] {
                let path = self.dir.join(format!("{name}{suffix}"));
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        let path = path.display();
                        tracing::warn!(%path, %error, "failed to remove cached state");
                    }
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_state_of_another_cluster_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.conf");
        let put = |server: &str, authority: &str| {
            let text = format!(
                "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
                 clusters: [{{name: k, cluster: {{server: '{server}', certificate-authority-data: {authority}}}}}]\n"
            );
            std::fs::write(&path, text).unwrap();
        };
        let api = dir.path().join("api.json");
        let broken = dir.path().join("objects.json.broken");
        let verify = || {
            std::fs::write(&api, "{}").unwrap();
            std::fs::write(&broken, "{}").unwrap();
            let config = ClientConfig::new(path.clone(), "test");
            drop(ClusterIdentity::verify(config, dir.path()).unwrap());
            assert_eq!(api.exists(), broken.exists());
            api.exists()
        };
        assert!(verify(), "there is no kubeconfig yet");
        put("https://a", "eA==");
        assert!(verify(), "the first one");
        put("https://b", "eA==");
        assert!(verify(), "another address");
        put("https://c", "eQ==");
        assert!(!verify(), "another cluster");
        assert!(verify(), "still the same one");
    }
}
