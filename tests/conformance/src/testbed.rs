use std::fs;
use std::path::{Path, PathBuf};

use polylet_harness::cluster::Component;
use polylet_harness::error::file;
use polylet_harness::{Cluster, ClusterOptions, Flavour, HarnessError, Node};

use crate::suite::SuitePrograms;
use crate::{AgentKind, images};

/// A control plane and one node with a private containerd. Removed completely on drop.
#[derive(Debug)]
pub(crate) struct Testbed {
    /// Declared before the node, so that it is dropped first.
    kubelet: Option<Component>,
    node: Node,
    pub(crate) cluster: Cluster,
}

impl Testbed {
    /// Starts everything, imports the suite's images and waits until the node is Ready.
    ///
    /// # Errors
    /// Fails if a program is missing or does not become ready.
    pub(crate) async fn start(
        agent: AgentKind,
        bin_dir: PathBuf,
        suite: &SuitePrograms,
        say: &dyn Fn(&str),
    ) -> Result<Self, HarnessError> {
        let cluster = Cluster::start(&ClusterOptions::default(), say).await?;
        let mut options = cluster.node_options("node")?;
        options.bin_dir = Some(bin_dir);
        // The version that kubelets of this minor are tested with.
        options.flavour = Flavour::V2;
        let mut node = Node::prepare(options, say).await?;
        for archive in images::write(node.scratch(), suite)? {
            node.containerd.import(&archive)?;
            file("remove", &archive, fs::remove_file(&archive))?;
        }
        let kubelet = match agent {
            AgentKind::Kubelet => {
                let mut kubelet = cluster.kubelet(&node)?;
                kubelet.start()?;
                Some(kubelet)
            }
            AgentKind::Polylet => {
                node.up().await?;
                None
            }
        };
        cluster.wait_node_ready(node.name()).await?;
        say(&format!(
            "{} is Ready on {}, API server at {}",
            agent.name(),
            node.containerd.version().await?,
            cluster.server()
        ));
        Ok(Self {
            kubelet,
            node,
            cluster,
        })
    }

    /// Copies the logs of the agent and of the runtime, as they are now.
    ///
    /// # Errors
    /// Fails if one cannot be copied.
    pub(crate) fn save_logs(&self, dir: &Path) -> Result<(), HarnessError> {
        let agent = match &self.kubelet {
            Some(kubelet) => kubelet.log().to_owned(),
            None => self.node.log(),
        };
        for log in [agent, self.node.containerd.log()] {
            let name = log.file_name().unwrap_or_default();
            file("copy", &log, fs::copy(&log, dir.join(name)))?;
        }
        Ok(())
    }

    /// Removes everything.
    ///
    /// # Errors
    /// [`HarnessError::Leftover`] if something could not be removed.
    pub(crate) fn remove(self) -> Result<(), HarnessError> {
        drop(self.kubelet);
        self.node.remove()?;
        self.cluster.remove()
    }
}
