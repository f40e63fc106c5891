//! The node under test, and what must hold whatever is wrong.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use polylet_e2e::priority::prefer_pods;
use polylet_e2e::runtime_proxy::RuntimeProxy;
use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, cluster, ok, pod};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

use crate::evidence::Evidence;
use crate::healthy_pods::{HealthyPods, is_healthy_pod};
use crate::measure::{self, Measured, PRESSURE_LIMIT, START_FACTOR};
use crate::network::{self, SilentResolver};
use crate::slow_runtime;

/// The pods of the default namespace.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// How many starts the median is taken of.
const STARTS: usize = 3;
/// How often starts and pressure are measured with a fault until they are in time: what delays all of
/// them is the fault, what delays some may be another program of the machine.
const ATTEMPTS: usize = 3;
/// A pod whose start has failed for lack of something is tried again after ten seconds at most.
const RETRY_LIMIT: Duration = Duration::from_secs(12);

/// A node of a cluster, its runtime behind a proxy and its resolver silent.
pub(crate) struct FaultyNode {
    pub(crate) cluster: Cluster,
    pub(crate) node: Node,
    pub(crate) proxy: RuntimeProxy,
    pods: HealthyPods,
    threshold_mib: u64,
    /// Measured before each fault: other programs of the machine make it longer and shorter.
    usual_start: Duration,
    measured: Vec<Measured>,
    kept: RefCell<Vec<Box<dyn Any>>>,
    _resolver: SilentResolver,
    _sockets: tempfile::TempDir,
}

/// Whether pods can start.
pub(crate) enum Starts {
    /// Within three times the usual time.
    AsUsual,
    /// Not before the fault is over. This pod is created meanwhile.
    Not { held: String },
}

impl FaultyNode {
    pub(crate) async fn start() -> Self {
        polylet_harness::guard::on_signals();
        let cluster = cluster().await;
        let sockets = ok(tempfile::tempdir());
        let socket = sockets.path().join("runtime.sock");
        let resolver = SilentResolver::start(sockets.path()).await;
        let threshold_mib = measure::pressure_threshold_mib();
        let mut options = ok(cluster.node_options("node"));
        options.kubelet["containerRuntimeEndpoint"] = format!("unix://{}", socket.display()).into();
        // Seen, but nothing is evicted: the grace period is longer than the test.
        options.kubelet["evictionSoft"] =
            json!({ "memory.available": format!("{threshold_mib}Mi") });
        options.kubelet["evictionSoftGracePeriod"] = json!({ "memory.available": "2h" });
        options.kubelet["evictionPressureTransitionPeriod"] = "1s".into();
        options.state_disk = Some(64);
        options.resolv_conf = Some(resolver.configuration());
        let prepared = Node::prepare(options, &|line| eprintln!("{line}")).await;
        let mut node = ok(prepared);
        network::install_cni_plugin(&node);
        let proxy =
            RuntimeProxy::start(&socket, &node.containerd.endpoint(), &slow_runtime::delay());
        prefer_pods(&node);
        ok(node.up().await);
        ok(cluster.wait_node_ready("node").await);
        let watch = Watch::start(&node);
        let pods = HealthyPods::start(&cluster, watch).await;
        Self {
            cluster,
            node,
            proxy,
            pods,
            threshold_mib,
            usual_start: Duration::ZERO,
            measured: Vec::new(),
            kept: RefCell::default(),
            _resolver: resolver,
            _sockets: sockets,
        }
    }

    /// Creates a pod that runs, and does not wait for it.
    pub(crate) async fn start_pod(&self, name: &str) {
        self.create(&bound(name, RUNS, &json!({}))).await;
    }

    pub(crate) async fn create(&self, pod: &Value) {
        ok(self.cluster.client().create(PODS, pod).await);
    }

    /// Keeps what the node needs until its removal.
    pub(crate) fn keep(&self, part: impl Any) {
        self.kept.borrow_mut().push(Box::new(part));
    }

    /// How long the start of a simple pod takes now.
    pub(crate) async fn measure_start(&self) -> Duration {
        measure::start_time(&self.cluster, STARTS).await
    }

    /// The same with a fault, compared with what was usual just before it.
    pub(crate) async fn measure_start_with_fault(&self) -> Duration {
        let mut start = self.measure_start().await;
        for _ in 1..ATTEMPTS {
            if start <= self.usual_start * START_FACTOR {
                break;
            }
            let usual = self.usual_start;
            println!("  a start took {start:?}, usually {usual:?}; measuring again");
            start = start.min(self.measure_start().await);
        }
        start
    }

    /// How long memory pressure takes to be seen.
    async fn measure_pressure(&self) -> Duration {
        let mut seen = measure::pressure_is_seen(&self.cluster, self.threshold_mib).await;
        for _ in 1..ATTEMPTS {
            if seen <= PRESSURE_LIMIT {
                break;
            }
            println!("  pressure was seen after {seen:?}; measuring again");
            let again = measure::pressure_is_seen(&self.cluster, self.threshold_mib).await;
            seen = seen.min(again);
        }
        seen
    }

    /// Measures what is usual now.
    pub(crate) async fn measure_usual_start(&mut self) {
        self.usual_start = self.measure_start().await;
    }

    /// Verifies all that must hold with a fault, and prints what was measured.
    ///
    /// # Panics
    /// When something of it does not hold.
    pub(crate) async fn verify(&mut self, fault: &str, evidence: &Evidence, starts: Starts) {
        let mut measured = Measured::new(fault, self.usual_start);
        match &starts {
            Starts::AsUsual => measured.start = Some(self.measure_start_with_fault().await),
            Starts::Not { held } => self.start_pod(held).await,
        }
        measured.pressure = Some(self.measure_pressure().await);
        measured.memory = measure::memory(&self.node).await;
        println!("  {measured}");
        self.measured.push(measured.clone());
        evidence.wait(&self.cluster, &self.node).await;
        if let Starts::Not { held } = &starts {
            let pod = ok(self.cluster.client().get(&pod_path(held)).await);
            let pod = pod.unwrap_or_default();
            assert_eq!(pod["status"]["phase"], "Pending", "{}", pod["status"]);
        }
        let mut problems = measured.problems();
        problems.extend(self.pods.problems(&self.cluster).await);
        for service in ok(self.node.services().await) {
            if service.restarts != 0 {
                problems.push(format!("{} was restarted", service.name));
            }
        }
        assert!(problems.is_empty(), "{fault}: {}", problems.join("; "));
    }

    /// Verifies that a pod starts soon after what has kept it from that.
    pub(crate) async fn starts_soon(&self, held: &str) {
        let over = Instant::now();
        ok(self.cluster.wait_pod_ready(held).await);
        let took = over.elapsed();
        println!("  {held} started after {:.1} s", took.as_secs_f64());
        let limit = RETRY_LIMIT + self.usual_start * START_FACTOR;
        assert!(took <= limit, "{held} started {took:?} after the fault");
    }

    /// Verifies how long a start took with all faults together, now that there is none.
    pub(crate) async fn verify_together(&mut self, start: Duration) {
        let mut together = Measured::new("all faults together", self.usual_start);
        together.start = Some(start);
        println!("  {together}");
        self.measured.push(together.clone());
        let mut problems = together.problems();
        problems.extend(self.pods.problems(&self.cluster).await);
        assert!(problems.is_empty(), "{}", problems.join("; "));
    }

    /// Removes all pods but the healthy ones.
    pub(crate) async fn remove_faulty_pods(&self) {
        let list = ok(self.cluster.client().get(PODS).await).unwrap_or_default();
        let pods = list["items"].as_array().into_iter().flatten();
        let names = pods.filter_map(|pod| pod["metadata"]["name"].as_str());
        let names: BTreeSet<String> = names
            .filter(|name| !is_healthy_pod(name))
            .map(str::to_owned)
            .collect();
        for name in &names {
            ok(self
                .cluster
                .client()
                .delete(&pod_path(name), &Value::Null)
                .await);
        }
        for name in &names {
            let path = pod_path(name);
            // A call to the driver that was silent may take until its deadline.
            let mut absent = self.cluster.wait_absent(&path).await;
            if absent.is_err() {
                absent = self.cluster.wait_absent(&path).await;
            }
            ok(absent);
        }
    }

    pub(crate) fn print_table(&self) {
        println!("{}", Measured::titles());
        for measured in &self.measured {
            println!("{}", measured.row());
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

/// Whether a pod of the API server is Ready with these restart counts.
pub(crate) fn is_well(pod: &Value, restarts: &[u64]) -> bool {
    is_ready(pod) && restart_counts(&pod["status"]) == restarts
}

/// The restart counts of a status.
pub(crate) fn restart_counts(status: &Value) -> Vec<u64> {
    let all = status["containerStatuses"].as_array().into_iter().flatten();
    all.filter_map(|one| one["restartCount"].as_u64()).collect()
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
