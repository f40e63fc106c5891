//! Runs the same pods under the real kubelet and under Polylet on one node of one cluster, and
//! compares what API clients observe of them and what their containers see.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polylet_harness::cluster::{Component, Patch, pod_path};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::ok;

/// Test cases.
pub mod cases;
/// Comparison of two timelines.
pub mod diff;
/// Events of pods.
mod events;
/// Expected differences.
pub mod expected_differences;
/// Pod statuses as lines that do not depend on the run.
mod normalize;
/// Observation of pods.
mod observer;
/// Patterns of lines, and normalization of texts.
pub mod patterns;
/// Comparison of transient states.
mod transient;
/// What containers see.
pub mod views;

use observer::PodObserver;

/// A pod and the operations on it.
#[derive(Debug, Clone)]
pub struct Case {
    /// The pod's name, or its prefix for a job.
    pub name: String,
    /// The object to create and its path below the namespace.
    pub object: (&'static str, Value),
    /// A pod that must be running first.
    pub after: Option<&'static str>,
    /// Operations in order; the final deletion is implied.
    pub steps: Vec<ScenarioStep>,
}

/// An operation on a pod, or a checkpoint.
#[derive(Debug, Clone)]
pub enum ScenarioStep {
    /// Waits for a condition and then until the status has settled, and records the pod.
    Until(&'static str, fn(&Value) -> bool),
    /// The same without waiting for the status to settle.
    Once(&'static str, fn(&Value) -> bool),
    /// Patches the pod or a subresource.
    Change(&'static str, Value),
    /// Creates an object: path below the namespace, object.
    Create(&'static str, Value),
    /// Deletes the pod with these options.
    Delete(Value),
    /// Waits until another client has deleted it.
    WaitDeleted,
    /// Deletes another pod.
    DeleteOther(&'static str),
    /// Patches the node.
    Node(Value),
}

/// The recorded lines of each pod by checkpoint.
pub type Timelines = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// A cluster with one node that the kubelet and Polylet run in turn.
#[derive(Debug)]
pub struct ParityRun {
    /// The control plane.
    pub cluster: Arc<Cluster>,
    /// The node, initially stopped.
    pub node: Node,
    kubelet: Component,
    /// A registry that accepts connections and closes them after a while: a slow pull.
    slow_registry: AbortHandle,
}

impl ParityRun {
    /// Starts a cluster without a node agent.
    pub async fn prepare() -> Self {
        let cluster = crate::cluster().await;
        let mut options = ok(cluster.node_options("node"));
        options.kubelet["clusterDNS"] = json!(["10.96.0.10"]);
        options.kubelet["maxPods"] = 250.into();
        options.kubelet["clusterDomain"] = "cluster.local".into();
        let node = ok(Node::prepare(options, &|_| {}).await);
        let kubelet = ok(cluster.kubelet(&node));
        let dir = shared(&node);
        // Writable for pods of any user.
        let open = Permissions::from_mode(0o1777);
        let made = fs::create_dir_all(&dir).and_then(|()| fs::set_permissions(&dir, open));
        if let Err(error) = made {
            panic!("{}: {error}", dir.display());
        }
        objects(&cluster).await;
        Self {
            cluster: Arc::new(cluster),
            node,
            kubelet,
            slow_registry: ok(slow_registry().await),
        }
    }

    /// The pods' timelines under the kubelet.
    pub async fn run_kubelet(&mut self, cases: &[Vec<Case>]) -> Timelines {
        ok(self.kubelet.start());
        ok(self.cluster.wait_node_ready("node").await);
        let mut timelines = Timelines::new();
        for at_once in cases {
            timelines.extend(self.run_cases(at_once).await);
        }
        self.kubelet.stop(false);
        timelines
    }

    /// The pods' timelines under Polylet.
    pub async fn run_polylet(&mut self, cases: &[Vec<Case>]) -> Timelines {
        ok(self.node.up().await);
        ok(self.cluster.wait_node_ready("node").await);
        let mut timelines = Timelines::new();
        for at_once in cases {
            timelines.extend(self.run_cases(at_once).await);
        }
        self.node.down();
        timelines
    }

    async fn run_cases(&self, cases: &[Case]) -> Timelines {
        events::delete_all(&self.cluster).await;
        let observed = Arc::new(PodObserver::spawn(&self.cluster).await);
        let mut tasks = JoinSet::new();
        let dirs = Dirs {
            manifests: self.node.dirs().manifests.clone(),
            shared: shared(&self.node),
        };
        for case in cases {
            let task = run_case(
                self.cluster.clone(),
                observed.clone(),
                case.clone(),
                dirs.clone(),
            );
            tasks.spawn(task);
        }
        let results = tasks.join_all().await;
        let all_events = events::all(&self.cluster).await;
        let dir = shared(&self.node);
        let mut timelines = Timelines::new();
        for (case, pod, mut timeline) in results {
            let output_file = dir.join(&case);
            if let Ok(text) = fs::read_to_string(&output_file) {
                timeline.insert("view".to_owned(), observed.output(&pod, &text));
                let _ = fs::remove_file(output_file);
            }
            timeline.insert("transient".to_owned(), observed.transient_lines(&pod));
            let events = events::pod_events(&all_events, &observed.last_with_address(&pod));
            timeline.insert("events".to_owned(), events);
            timelines.insert(case, timeline);
        }
        timelines
    }

    /// Stops and removes everything.
    pub fn remove(mut self) {
        self.slow_registry.abort();
        self.kubelet.stop(true);
        ok(self.node.remove());
        match Arc::try_unwrap(self.cluster) {
            Ok(cluster) => ok(cluster.remove()),
            Err(_) => panic!("the cluster is still in use"),
        }
    }
}

async fn slow_registry() -> std::io::Result<AbortHandle> {
    let listener = TcpListener::bind("127.0.0.1:18094").await?;
    let serve = async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(8)).await;
                drop(connection);
            });
        }
    };
    Ok(tokio::spawn(serve).abort_handle())
}

/// The directory that pods write their views to.
pub fn shared(node: &Node) -> PathBuf {
    node.scratch().join("shared")
}

#[derive(Debug, Clone)]
struct Dirs {
    manifests: PathBuf,
    shared: PathBuf,
}

/// Objects that the pods refer to.
async fn objects(cluster: &Cluster) {
    let object = |kind: &str, name: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } });
    let (mut map, mut secret) = (object("ConfigMap", "settings"), object("Secret", "login"));
    map["data"] = json!({ "key": "value", "other": "two\nlines\n" });
    secret["stringData"] = json!({ "user": "me", "word": "pass" });
    let mut service = object("Service", "front");
    service["spec"] = json!({ "selector": { "a": "b" },
        "ports": [{ "name": "web", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }] });
    let mut class = object("RuntimeClass", "unknown");
    class["apiVersion"] = "node.k8s.io/v1".into();
    class["handler"] = "nowhere".into();
    let mut high = object("PriorityClass", "high");
    high["apiVersion"] = "scheduling.k8s.io/v1".into();
    high["value"] = 1000.into();
    for (path, object) in [
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(),
            high,
        ),
        (format!("{IN_DEFAULT}/configmaps"), map),
        (format!("{IN_DEFAULT}/secrets"), secret),
        (format!("{IN_DEFAULT}/services"), service),
        ("/apis/node.k8s.io/v1/runtimeclasses".to_owned(), class),
    ] {
        ok(cluster.client().create(&path, &object).await);
    }
}

const IN_DEFAULT: &str = "/api/v1/namespaces/default";

/// The timeline of a case's pod: name of the case, name of the pod, recorded lines.
async fn run_case(
    cluster: Arc<Cluster>,
    observed: Arc<PodObserver>,
    case: Case,
    dirs: Dirs,
) -> (String, String, BTreeMap<String, Vec<String>>) {
    let client = cluster.client();
    let path = case.object.0;
    let text = case.object.1.to_string();
    let text = text.replace("SHARED", &dirs.shared.display().to_string());
    let object: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut checkpoints = BTreeMap::new();
    let mut name = case.name.clone();
    if let Some(first) = case.after {
        ok(cluster.wait_pod_ready(first).await);
    }
    let file = dirs.manifests.join(format!("{name}.json"));
    match path {
        "static" => {
            let _ = fs::write(&file, text);
            name.push_str("-node");
        }
        "pods" => {
            ok(client.create(&format!("{IN_DEFAULT}/pods"), &object).await);
        }
        other => {
            ok(client.create(other, &object).await);
            name = observed.wait_for_name(&name).await;
        }
    }
    let mut deleted = false;
    for (at, step) in case.steps.iter().enumerate() {
        match step {
            ScenarioStep::Until(what, condition) | ScenarioStep::Once(what, condition) => {
                let quiet =
                    matches!(step, ScenarioStep::Until(..)).then_some(Duration::from_secs(2));
                let status = observed.wait(&name, condition, quiet).await;
                let (label, lines) = match status {
                    Ok(pod) => (format!("{at} {what}"), normalize::full(&pod)),
                    Err(last) => (format!("{at} {what}"), {
                        let mut lines = vec!["never".to_owned()];
                        lines.extend(normalize::full(&last));
                        lines
                    }),
                };
                checkpoints.insert(label, lines);
            }
            ScenarioStep::Change(part, change) => {
                let path = format!("{}{part}", pod_path(&name));
                if let Err(error) = client.patch(&path, Patch::Strategic, change).await {
                    checkpoints.insert(format!("{at} refused"), vec![error.to_string()]);
                }
            }
            ScenarioStep::Create(path, object) => {
                let path = format!("{}{path}", pod_path(&name));
                ok(client.create(&path, object).await);
            }
            ScenarioStep::WaitDeleted => deleted = true,
            ScenarioStep::DeleteOther(other) => {
                ok(client.delete(&pod_path(other), &Value::Null).await);
            }
            ScenarioStep::Node(change) => {
                let path = "/api/v1/nodes/node";
                ok(client.patch(path, Patch::Strategic, change).await);
            }
            ScenarioStep::Delete(options) => {
                deleted = true;
                ok(client.delete(&pod_path(&name), options).await);
            }
        }
    }
    match path {
        "static" => {
            let _ = fs::remove_file(&file);
        }
        "pods" if deleted => {}
        "pods" => {
            let _ = ok(client.delete(&pod_path(&name), &Value::Null).await);
        }
        other => {
            let path = format!("{other}/{}", case.name);
            let options = json!({ "propagationPolicy": "Background" });
            let _ = ok(client.delete(&path, &options).await);
        }
    }
    let end = match observed.wait_deleted(&name).await {
        Ok(last) => normalize::full(&last),
        Err(last) => {
            let mut lines = vec!["never gone".to_owned()];
            lines.extend(normalize::full(&last));
            let _ = client
                .delete(&pod_path(&name), &json!({ "gracePeriodSeconds": 0 }))
                .await;
            lines
        }
    };
    checkpoints.insert("the end".to_owned(), end);
    (case.name, name, checkpoints)
}
