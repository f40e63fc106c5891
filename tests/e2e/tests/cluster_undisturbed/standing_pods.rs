//! The pods that must not notice anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, ok, pod};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::{Cluster, Node, PodView};
use serde_json::{Value, json};

/// The pods of the default namespace.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
/// Port of the HTTP servers.
pub(crate) const PORT: u16 = 8080;

/// A pod's containers: names, ids, restart counts.
type Identity = Vec<(String, String, u64)>;

/// What is true of the pods as long as nothing disturbs them.
pub(crate) struct StandingPods {
    watch: Watch,
    pods: BTreeMap<String, StandingPod>,
    /// Sandboxes and containers: id, state, time of creation.
    runtime: BTreeSet<(String, i32, i64)>,
    mounts: BTreeSet<PathBuf>,
}

struct StandingPod {
    address: String,
    identity: Identity,
}

impl StandingPods {
    /// Starts the pods and waits until all are Ready, and have had their restart.
    pub(crate) async fn start(cluster: &Cluster, node: &Node, count: usize) -> Self {
        let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "settings" }, "data": { "key": "value" } });
        let maps = "/api/v1/namespaces/default/configmaps";
        ok(cluster.client().create(maps, &settings).await);
        for number in 0..count {
            ok(cluster.client().create(PODS, &standing(number)).await);
        }
        let watch = Watch::start(node);
        let mut pods = BTreeMap::new();
        for number in 0..count {
            let (name, restarts) = (name(number), restarts(number));
            let is_settled = |pod: &Value| {
                let count = &pod["status"]["containerStatuses"][0]["restartCount"];
                is_ready(pod) && count.as_u64() == Some(restarts)
            };
            let object = ok(cluster
                .wait(&pod_path(&name), "to be Ready", is_settled)
                .await);
            let view = view(&name, &object);
            let address = view.ip().to_owned();
            let identity = view.identity();
            pods.insert(name, StandingPod { address, identity });
        }
        let mut this = Self {
            watch,
            pods,
            runtime: BTreeSet::new(),
            mounts: mounts(node),
        };
        this.runtime = runtime(node).await;
        for name in this.pods.keys() {
            this.watch.take(name);
        }
        this
    }

    /// Addresses of the pods with an HTTP server.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let servers = self.pods.iter().enumerate();
        let servers = servers.filter(|(number, _)| serves(*number));
        servers.map(|(_, (_, pod))| pod.address.clone()).collect()
    }

    /// # Panics
    /// When a pod was not Ready for a moment since the last call, or one of its containers, sandboxes and
    /// mounts is not the one from the beginning.
    pub(crate) async fn assert_undisturbed(&self, cluster: &Cluster, node: &Node) {
        let mut problems = Vec::new();
        for (name, pod) in &self.pods {
            let seen = self.watch.take(name).into_iter();
            let unwell = seen.filter(|seen| !seen.is_ready() || seen.identity() != pod.identity);
            problems.extend(unwell.map(|seen: PodView| seen.line()));
            let object = ok(cluster.client().get(&pod_path(name)).await).unwrap_or_default();
            if !is_ready(&object) || view(name, &object).identity() != pod.identity {
                problems.push(format!("{name} at the API server: {}", object["status"]));
            }
        }
        let (runtime, mounts) = (runtime(node).await, mounts(node));
        let gone = self.runtime.difference(&runtime);
        problems.extend(gone.map(|gone| format!("{gone:?} is not in the runtime")));
        let unmounted = self.mounts.difference(&mounts);
        problems.extend(unmounted.map(|path| format!("{} is not mounted", path.display())));
        assert_eq!(problems, Vec::<String>::new());
    }
}

/// A pod of the API server.
fn view(name: &str, object: &Value) -> PodView {
    PodView {
        uid: String::new(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        status: object["status"].clone(),
        manifest: Value::Null,
        waiting_for: Vec::new(),
        stale: Vec::new(),
    }
}

/// Whether a pod of this name is one of them.
pub(crate) fn is_standing(name: &str) -> bool {
    name.starts_with("standing-")
}

fn name(number: usize) -> String {
    format!("standing-{number:02}")
}

fn serves(number: usize) -> bool {
    number.is_multiple_of(3)
}

/// How often the container of a pod exits at first.
fn restarts(number: usize) -> u64 {
    u64::from(number % 3 == 2)
}

/// An HTTP server, an exec probe on a ConfigMap, or one that has restarted once; all with all probes.
fn standing(number: usize) -> Value {
    let script = if serves(number) {
        format!("echo here > /scratch/index.html; exec httpd -f -p {PORT} -h /scratch")
    } else if restarts(number) == 0 {
        RUNS.to_owned()
    } else {
        format!("test -e /scratch/again || {{ touch /scratch/again; exit 1; }}; {RUNS}")
    };
    let check = if serves(number) {
        json!({ "httpGet": { "path": "/index.html", "port": PORT },
            "periodSeconds": 1, "timeoutSeconds": 5 })
    } else {
        json!({ "exec": { "command": ["test", "-s", "/map/key"] },
            "periodSeconds": 2, "timeoutSeconds": 5 })
    };
    let more = json!({
        "volumes": [
            { "name": "map", "configMap": { "name": "settings" } },
            { "name": "scratch", "emptyDir": {} },
        ],
        "container": {
            "volumeMounts": [
                { "name": "map", "mountPath": "/map" },
                { "name": "scratch", "mountPath": "/scratch" },
            ],
            "startupProbe": check, "livenessProbe": check, "readinessProbe": check,
        },
    });
    bound(&name(number), &script, &more)
}

/// A pod of the node.
pub(crate) fn bound(name: &str, script: &str, more: &Value) -> Value {
    let mut pod: Value = ok(serde_json::from_str(&pod(name, script, more)));
    pod["spec"]["nodeName"] = "node".into();
    pod
}

/// Sandboxes and containers of standing pods.
async fn runtime(node: &Node) -> BTreeSet<(String, i32, i64)> {
    let cri = node.containerd.cri();
    let is_ours = |labels: &std::collections::HashMap<String, String>| {
        labels
            .get("io.kubernetes.pod.name")
            .is_some_and(|name| is_standing(name))
    };
    let sandboxes = ok(cri.sandboxes().await).into_iter();
    let sandboxes = sandboxes.filter(|one| is_ours(&one.labels));
    let containers = ok(cri.containers().await).into_iter();
    // A dead container may be removed at any time.
    let containers = containers.filter(|one| is_ours(&one.labels) && one.state == 1);
    sandboxes
        .map(|one| (one.id, one.state, one.created_at))
        .chain(containers.map(|one| (one.id, one.state, one.created_at)))
        .collect()
}

/// The node's mounts. Those of the churn come and go.
fn mounts(node: &Node) -> BTreeSet<PathBuf> {
    node.mounts().into_iter().collect()
}
