use std::fs;
use std::path::{Path, PathBuf};

use polylet_harness::cluster::Component;
use polylet_harness::error::{file, report};
use polylet_harness::{Cluster, ClusterOptions, Flavour, HarnessError, Node, Registry};
use serde_json::json;

use crate::images::SuiteImage;
use crate::node_suite::NodeSuite;
use crate::suite::SuitePrograms;
use crate::unit::{UnitReply, UnitRequest, unit_line};
use crate::{AgentKind, SuiteKind, images};

/// A control plane and one node with a private containerd. Removed completely on drop.
#[derive(Debug)]
pub(crate) struct Testbed {
    agent: AgentKind,
    /// Declared before the node, so that it is dropped first.
    kubelet: Option<Component>,
    pub(crate) node_suite: Option<NodeSuite>,
    /// For specs that pull images always.
    registry: Registry,
    pub(crate) node: Node,
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
        options.standard_paths = suite.kind == SuiteKind::Node;
        if options.standard_paths {
            // As upstream runs the suite.
            options.kubelet["readOnlyPort"] = json!(10_255);
        }
        let node = Node::prepare(options, say).await?;
        let registry = Registry::start(&node.containerd, images::REGISTRY, false).await?;
        for SuiteImage { reference, archive } in images::write(node.scratch(), suite)? {
            node.containerd.import(&archive)?;
            registry.push_archive(&node.containerd, &reference, &archive)?;
            file("remove", &archive, fs::remove_file(&archive))?;
        }
        let node_suite = match suite.kind {
            SuiteKind::Cluster => None,
            SuiteKind::Node => Some(NodeSuite::prepare(&cluster, &node).await?),
        };
        let mut testbed = Self {
            agent,
            kubelet: None,
            node_suite,
            registry,
            node,
            cluster,
        };
        testbed.start_agent()?;
        testbed.cluster.wait_node_ready(testbed.node.name()).await?;
        say(&format!(
            "{} is Ready on {}, API server at {}",
            agent.name(),
            testbed.node.containerd.version().await?,
            testbed.cluster.server()
        ));
        Ok(testbed)
    }

    /// Removes what a spec of the node's suite leaves behind, a RuntimeClass that it creates again in the
    /// next round.
    ///
    /// # Errors
    /// Fails if the API server rejects the request.
    pub(crate) async fn begin_round(&self) -> Result<(), HarnessError> {
        if self.node_suite.is_some() {
            let classes = "/apis/node.k8s.io/v1/runtimeclasses";
            self.cluster.client().delete(classes, &json!({})).await?;
        }
        Ok(())
    }

    fn start_agent(&mut self) -> Result<(), HarnessError> {
        match self.agent {
            AgentKind::Polylet => self.node.spawn(),
            AgentKind::Kubelet => {
                let mut kubelet = self.cluster.kubelet(&self.node)?;
                kubelet.start()?;
                self.kubelet = Some(kubelet);
                Ok(())
            }
        }
    }

    fn stop_agent(&mut self) {
        match self.agent {
            AgentKind::Polylet => {
                self.node.down();
            }
            AgentKind::Kubelet => {
                if let Some(mut kubelet) = self.kubelet.take() {
                    kubelet.stop(false);
                }
            }
        }
    }

    fn is_agent_running(&self) -> bool {
        self.kubelet.is_some() || self.node.supervisor_pid().is_some()
    }

    /// The next request of a spec for the agent's unit; none ever if the suite makes none.
    pub(crate) async fn next_unit_request(&self) -> (UnitRequest, UnitReply) {
        match &self.node_suite {
            Some(suite) => suite.units.next().await,
            None => std::future::pending().await,
        }
    }

    /// Does what a spec asks of the agent's unit.
    pub(crate) async fn handle(&mut self, request: UnitRequest, reply: UnitReply) {
        let answer = match request {
            UnitRequest::List { only_running } => Ok(match self.is_agent_running() {
                false if only_running => String::new(),
                is_running => unit_line(is_running),
            }),
            UnitRequest::ResetFailed => Ok(String::new()),
            UnitRequest::Stop => {
                self.stop_agent();
                Ok(String::new())
            }
            UnitRequest::Restart => self.restart_agent().map(|()| String::new()),
        };
        reply.send(answer.map_err(|error| report(&error))).await;
    }

    /// Restarts the agent with the configuration that the suite has written.
    fn restart_agent(&mut self) -> Result<(), HarnessError> {
        self.stop_agent();
        if let Some(suite) = &self.node_suite {
            self.node.set_kubelet_fields(suite.configuration()?)?;
        }
        self.start_agent()
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
        drop((self.kubelet, self.registry));
        self.node.remove()?;
        self.cluster.remove()
    }
}
