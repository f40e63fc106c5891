//! A node on which services crash, and a pod that must not notice.

use std::collections::BTreeMap;

use polylet_e2e::{example, node_with, ok};
use polylet_harness::error::report;
use polylet_harness::{Node, NodeOptions, PodView};

use crate::control::{Control, Point};

/// Crashes of a service before the node agent is restarted as a whole: the supervisor waits longer
/// before each restart of a service that crashes often.
const MAX_CRASHES: u32 = 3;

/// A node and its bystander.
pub(crate) struct CrashRun {
    pub(crate) node: Node,
    pub(crate) control: Control,
    bystander: PodView,
    crashes: BTreeMap<String, u32>,
}

impl CrashRun {
    pub(crate) async fn start(options: NodeOptions) -> Self {
        let control = Control::new();
        let node = node_with(NodeOptions {
            env: control.environment(),
            ..options
        })
        .await;
        Self::with(node, control).await
    }

    pub(crate) async fn with(mut node: Node, control: Control) -> Self {
        let bystander = example(&node).await;
        ok(node.wait_in_step().await);
        Self {
            node,
            control,
            bystander,
            crashes: BTreeMap::new(),
        }
    }

    /// Ends a crash: whether the point was reached. The pod that runs all the time is undisturbed.
    pub(crate) async fn recovered(&mut self, point: &Point) -> (bool, Result<(), String>) {
        let has_crashed = self.control.disarm();
        if has_crashed {
            *self.crashes.entry(point.service.clone()).or_default() += 1;
        }
        (has_crashed, self.bystander_is_well().await)
    }

    pub(crate) async fn bystander_is_well(&self) -> Result<(), String> {
        let now = self.node.wait_ready("web").await.map_err(|e| report(&e))?;
        if now.identity() == self.bystander.identity() {
            return Ok(());
        }
        let (now, before) = (now.identity(), self.bystander.identity());
        Err(format!("another pod was disturbed: {before:?}, {now:?}"))
    }

    /// Before the next points: all services run, and none waits for its restart.
    pub(crate) async fn settle(&mut self) -> Result<(), String> {
        if self.crashes.values().any(|count| *count > MAX_CRASHES) {
            self.crashes.clear();
            self.node.down();
            self.node.up().await.map_err(|e| report(&e))?;
        }
        self.node.wait_in_step().await.map_err(|e| report(&e))
    }
}
