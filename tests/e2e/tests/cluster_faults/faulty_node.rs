//! The node under test, and what must hold whatever is wrong.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, cluster, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

use crate::healthy_pods::HealthyPods;
use crate::measure::{self, Measured};
use crate::network::SilentResolver;
use crate::runtime_proxy::RuntimeProxy;

/// The pods of the default namespace.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// How much longer than usual a simple pod may take to start.
const START_FACTOR: u32 = 3;

/// A node of a cluster, its runtime behind a proxy and its resolver silent.
pub(crate) struct FaultyNode {
    pub(crate) cluster: Cluster,
    pub(crate) node: Node,
    pods: HealthyPods,
    usual_start: Duration,
    measured: Vec<Measured>,
    _proxy: RuntimeProxy,
    _resolver: SilentResolver,
    _sockets: tempfile::TempDir,
}

/// Where a fault must be named.
#[derive(Default)]
pub(crate) struct Evidence {
    /// Part of a health condition of `polylet status`.
    condition: Option<&'static str>,
    /// Pod, reason and part of the message of an event.
    event: Option<(&'static str, &'static str, &'static str)>,
    /// The agent itself lacks what it needs to start pods.
    starts_nothing: bool,
}

impl Evidence {
    pub(crate) fn none() -> Self {
        Self::default()
    }

    pub(crate) fn condition(part: &'static str) -> Self {
        Self {
            condition: Some(part),
            ..Self::default()
        }
    }

    pub(crate) fn event(pod: &'static str, reason: &'static str, part: &'static str) -> Self {
        Self {
            event: Some((pod, reason, part)),
            ..Self::default()
        }
    }

    /// Starts are measured again when the fault is over.
    pub(crate) fn without_start(self) -> Self {
        Self {
            starts_nothing: true,
            ..self
        }
    }
}

impl FaultyNode {
    pub(crate) async fn start() -> Self {
        polylet_harness::guard::on_signals();
        let cluster = cluster().await;
        let sockets = ok(tempfile::tempdir());
        let socket = sockets.path().join("runtime.sock");
        let resolver = SilentResolver::start(sockets.path()).await;
        let mut options = ok(cluster.node_options("node"));
        options.kubelet["containerRuntimeEndpoint"] = format!("unix://{}", socket.display()).into();
        // Seen, but nothing is evicted: the grace period is longer than the test.
        options.kubelet["evictionSoft"] =
            json!({ "memory.available": measure::pressure_threshold() });
        options.kubelet["evictionSoftGracePeriod"] = json!({ "memory.available": "2h" });
        options.kubelet["evictionPressureTransitionPeriod"] = "1s".into();
        options.state_disk = Some(64);
        options.resolv_conf = Some(resolver.configuration());
        let prepared = Node::prepare(options, &|line| eprintln!("{line}")).await;
        let mut node = ok(prepared);
        crate::network::hanging_cni_plugin(&node);
        let proxy = RuntimeProxy::start(&socket, &node.containerd.endpoint());
        ok(node.up().await);
        ok(cluster.wait_node_ready("node").await);
        let watch = Watch::start(&node);
        let pods = HealthyPods::start(&cluster, watch).await;
        let mut this = Self {
            cluster,
            node,
            pods,
            usual_start: Duration::ZERO,
            measured: Vec::new(),
            _proxy: proxy,
            _resolver: resolver,
            _sockets: sockets,
        };
        this.usual_start = measure::start_time(&this.cluster, 5).await;
        println!("usual start: {:?}", this.usual_start);
        this
    }

    /// Creates a pod that runs, and does not wait for it.
    pub(crate) async fn start_pod(&self, name: &str) {
        self.create(&bound(name, RUNS, &json!({}))).await;
    }

    pub(crate) async fn create(&self, pod: &Value) {
        ok(self.cluster.client().create(PODS, pod).await);
    }

    /// The directories with files of the agent's own, on disks of their own.
    pub(crate) fn own_directories(&self) -> [(&'static str, PathBuf); 2] {
        let dirs = self.node.dirs();
        [
            ("the state directory", dirs.state.clone()),
            ("the run directory", dirs.run.clone()),
        ]
    }

    /// Verifies all that must hold, and prints how long it took.
    ///
    /// # Panics
    /// When something of it does not hold.
    pub(crate) async fn verify(&mut self, fault: &str, evidence: Evidence) {
        let mut measured = Measured::new(fault);
        if let Some(part) = evidence.condition {
            self.wait_for_condition(part).await;
        }
        if let Some((pod, reason, part)) = evidence.event {
            self.wait_for_event(pod, reason, part).await;
        }
        if !evidence.starts_nothing {
            let start = measure::start_time(&self.cluster, 3).await;
            measured.start = Some(start);
        }
        measured.pressure = Some(measure::pressure_is_seen(&self.cluster).await);
        measured.memory = measure::memory(&self.node).await;
        println!("{measured}");
        self.measured.push(measured.clone());
        self.pods.verify();
        for service in ok(self.node.services().await) {
            assert_eq!(service.restarts, 0, "{} was restarted", service.name);
        }
        measured.verify(self.usual_start * START_FACTOR);
    }

    async fn wait_for_condition(&self, part: &str) {
        ok(until(format!("a condition with {part:?}"), || async {
            let output = match self.node.cli(&["status", "-o", "json"]).await {
                Ok(output) => output,
                Err(error) => return Poll::Pending(polylet_harness::error::report(&error)),
            };
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let services = status["services"].as_array().cloned().unwrap_or_default();
            let conditions = services.iter().map(|service| &service["conditions"]);
            let conditions: Vec<String> = conditions
                .filter(|conditions| !conditions.is_null())
                .map(Value::to_string)
                .collect();
            match conditions.iter().any(|one| one.contains(part)) {
                true => Poll::Ready(()),
                false => Poll::Pending(conditions.join(" ")),
            }
        })
        .await);
    }

    /// Waits for an event of a pod.
    pub(crate) async fn wait_for_event(&self, pod: &str, reason: &str, part: &str) {
        let path =
            format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{pod}");
        ok(until(format!("an event {reason} of {pod}"), || async {
            let list = self.cluster.client().get(&path).await;
            let list = list.ok().flatten().unwrap_or_default();
            let events = list["items"].as_array().cloned().unwrap_or_default();
            let lines: Vec<String> = events
                .iter()
                .map(|event| format!("{} {}", event["reason"], event["message"]))
                .collect();
            let is_it = |line: &&String| line.contains(reason) && line.contains(part);
            match lines.iter().find(is_it) {
                Some(line) => {
                    println!("{pod}: {line}");
                    Poll::Ready(())
                }
                None => Poll::Pending(lines.join("; ")),
            }
        })
        .await);
    }

    pub(crate) fn print_table(&self) {
        println!("usual start {:?}, with each fault:", self.usual_start);
        for measured in &self.measured {
            println!("{measured}");
        }
    }

    /// Removes the node and the cluster.
    pub(crate) fn remove(self) {
        let started = Instant::now();
        ok(self.node.remove());
        ok(self.cluster.remove());
        println!("removed within {:?}", started.elapsed());
    }
}

/// A bound pod with one container and without a token.
pub(crate) fn bound(name: &str, script: &str, more: &Value) -> Value {
    let mut pod: Value = ok(serde_json::from_str(&pod(name, script, more)));
    pod["spec"]["nodeName"] = "node".into();
    pod["spec"]["automountServiceAccountToken"] = false.into();
    pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
    // Not BestEffort: admitted under memory pressure as well.
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "memory": "1Mi" } });
    pod
}
