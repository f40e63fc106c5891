//! Causes faults one after another and leaves them, in named steps.

use std::any::Any;
use std::time::Instant;

use polylet_e2e::steps::Steps;

use crate::evidence::{self, Evidence};
use crate::faulty_node::{FaultyNode, Starts};

/// The steps, the node, and the faults that last.
pub(crate) struct FaultRun {
    steps: Steps,
    node: FaultyNode,
    /// Names of the faults to cause; all if there is none.
    selected: Vec<String>,
    /// Faults end when these are dropped.
    lasting: Vec<Box<dyn Any>>,
    /// What names lasting faults, but takes a while.
    slow: Vec<(&'static str, Evidence)>,
}

impl FaultRun {
    /// Starts the node, and verifies it without a fault.
    pub(crate) async fn start() -> Self {
        let selected = std::env::var("POLYLET_TEST_FAULTS").unwrap_or_default();
        let selected = selected.split(',').filter(|name| !name.is_empty());
        let mut steps = Steps::new();
        let node = steps.require("thirty healthy pods", FaultyNode::start());
        let mut run = FaultRun {
            node: node.await,
            steps,
            selected: selected.map(str::to_owned).collect(),
            lasting: Vec::new(),
            slow: Vec::new(),
        };
        let nothing = async {
            run.node.measure_usual_start().await;
            evidence::wait_for_no_condition(&run.node.node).await;
            let (none, starts) = (Evidence::default(), Starts::AsUsual);
            run.node.verify("no fault", &none, starts).await;
        };
        run.steps.run("nothing is wrong", nothing).await;
        run
    }

    fn is_selected(&self, name: &str) -> bool {
        self.selected.is_empty() || self.selected.iter().any(|selected| selected == name)
    }

    /// Causes a fault that lasts, and verifies the node with it.
    pub(crate) async fn fault<T: 'static>(
        &mut self,
        name: &str,
        what: &'static str,
        cause: impl AsyncFnOnce(&FaultyNode) -> T,
        evidence: Evidence,
    ) {
        if let Some(fault) = self
            .cause(name, what, cause, evidence, Starts::AsUsual)
            .await
        {
            self.lasting.push(Box::new(fault));
        }
    }

    /// The same for a fault that is named only after a while: see [`FaultRun::slow_evidence`].
    pub(crate) async fn slow_fault<T: 'static>(
        &mut self,
        name: &str,
        what: &'static str,
        cause: impl AsyncFnOnce(&FaultyNode) -> T,
        evidence: Evidence,
    ) {
        if self.is_selected(name) {
            self.fault(name, what, cause, Evidence::default()).await;
            self.slow.push((what, evidence));
        }
    }

    /// The same for a fault that ends with the step.
    pub(crate) async fn passing_fault<T>(
        &mut self,
        name: &str,
        what: &'static str,
        cause: impl AsyncFnOnce(&FaultyNode) -> T,
        evidence: Evidence,
    ) {
        let fault = self.cause(name, what, cause, evidence, Starts::AsUsual);
        drop(fault.await);
    }

    /// The same for a fault that keeps pods from starting: one that was created meanwhile starts soon
    /// after its end, and others as usual.
    pub(crate) async fn blocking_fault<T>(
        &mut self,
        name: &'static str,
        what: &'static str,
        cause: impl AsyncFnOnce(&FaultyNode) -> T,
        evidence: Evidence,
    ) {
        let held = format!("held-{name}");
        let starts = Starts::Not { held: held.clone() };
        let Some(fault) = self.cause(name, what, cause, evidence, starts).await else {
            return;
        };
        drop(fault);
        let FaultRun { steps, node, .. } = self;
        let after = async {
            node.starts_soon(&held).await;
            let after = format!("after {what}");
            let none = Evidence::default();
            node.verify(&after, &none, Starts::AsUsual).await;
        };
        steps.run(&format!("{what}: over"), after).await;
    }

    async fn cause<T>(
        &mut self,
        name: &str,
        what: &'static str,
        cause: impl AsyncFnOnce(&FaultyNode) -> T,
        evidence: Evidence,
        starts: Starts,
    ) -> Option<T> {
        if !self.is_selected(name) {
            return None;
        }
        let FaultRun { steps, node, .. } = self;
        let mut fault = None;
        let step = async {
            node.measure_usual_start().await;
            let began = Instant::now();
            fault = Some(cause(node).await);
            println!("  caused within {:.1} s", began.elapsed().as_secs_f64());
            node.verify(what, &evidence, starts).await;
        };
        steps.run(what, step).await;
        fault
    }

    /// Verifies something more about a fault.
    pub(crate) async fn check(
        &mut self,
        name: &str,
        what: &str,
        check: impl AsyncFnOnce(&FaultyNode),
    ) {
        if self.is_selected(name) {
            self.steps.run(what, check(&self.node)).await;
        }
    }

    /// Verifies that the faults are named that take a while.
    pub(crate) async fn slow_evidence(&mut self) {
        for (what, evidence) in std::mem::take(&mut self.slow) {
            let node = &self.node;
            let named = evidence.wait(&node.cluster, &node.node);
            self.steps.run(&format!("{what}: named"), named).await;
        }
    }

    /// Verifies the node with all faults that last and after their end, prints what was measured, and
    /// removes everything.
    ///
    /// # Panics
    /// When a step failed.
    pub(crate) async fn finish(self) {
        let FaultRun {
            mut steps,
            mut node,
            lasting,
            ..
        } = self;
        // Each fault was compared with the time just before it; all of them are with the time after them.
        let together = steps.require("all faults together", async {
            let start = node.measure_start().await;
            start.min(node.measure_start().await)
        });
        let together = together.await;
        let end = async {
            drop(lasting);
            node.remove_faulty_pods().await;
            node.measure_usual_start().await;
            node.verify_together(together).await;
        };
        steps.run("all faults are over", end).await;
        let none = evidence::wait_for_no_condition(&node.node);
        steps.run("nothing is wrong any more", none).await;
        node.print_table();
        steps.finish();
        node.remove();
    }
}
