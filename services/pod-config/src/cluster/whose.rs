//! Whose words the kept files are: a node that was moved to another cluster must not run the pods of
//! the one before, nor show its Secrets to pods of the same names, until the new one is heard.

use std::path::{Path, PathBuf};

use polylet_api::Access;
use polylet_kit::report;
use tokio::sync::watch;

use crate::core::cluster::kept::{KeptCluster, VERSION};
use crate::keep::File;

/// All that the API server said last.
const FILES: [&str; 5] = [
    "api.json",
    "node.json",
    "services.json",
    "objects.json",
    "tokens.json",
];

/// The cluster of the kept files.
pub(crate) struct Whose {
    access: Access,
    dir: PathBuf,
    known: Option<KeptCluster>,
}

impl Whose {
    /// Takes away what another cluster said. To be called before anything kept is read.
    pub(crate) fn settle(access: Access, dir: &Path) -> Whose {
        let known = File::new(dir.join("cluster.json"), VERSION).load::<KeptCluster>();
        let mut whose = Whose {
            access,
            dir: dir.to_owned(),
            known,
        };
        if let Some(server) = whose.look() {
            tracing::warn!(
                server,
                "the node belongs to another cluster now: nothing stands of what the one before said"
            );
            whose.forget();
            whose.known = None;
            whose.look();
        }
        whose
    }

    /// Ends when the kubeconfig names another cluster than before: nothing that is known in this
    /// life of the process, not even a position in a watch, is of any use then.
    pub(crate) async fn watch(mut self, mut credentials: watch::Receiver<u64>) {
        while credentials.changed().await.is_ok() {
            if let Some(server) = self.look() {
                return tracing::warn!(
                    server,
                    "the kubeconfig names another cluster: beginning anew"
                );
            }
        }
    }

    /// The server of another cluster; notes what is new of this one.
    fn look(&mut self) -> Option<String> {
        let (server, authority) = self.access.cluster()?;
        let now = KeptCluster { server, authority };
        match &self.known {
            Some(known) if known.is_another(&now) => return Some(now.server),
            Some(known) if *known == now => return None,
            _ => {}
        }
        let path = self.dir.join("cluster.json");
        if let Err(error) = polylet_kit::kept::save(&path, VERSION, &now) {
            tracing::warn!("{}", report(&error));
        }
        self.known = Some(now);
        None
    }

    fn forget(&self) {
        for name in FILES {
            let path = self.dir.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(%error, path = %path.display(), "not removed");
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_cluster_said_is_taken_away() {
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
        let settle = || {
            std::fs::write(&api, "{}").unwrap();
            drop(Whose::settle(Access::new(path.clone(), "test"), dir.path()));
            api.exists()
        };
        assert!(settle(), "there is no kubeconfig yet");
        put("https://a", "eA==");
        assert!(settle(), "the first one");
        put("https://b", "eA==");
        assert!(settle(), "another address");
        put("https://c", "eQ==");
        assert!(!settle(), "another cluster");
        assert!(settle(), "still that");
    }
}
