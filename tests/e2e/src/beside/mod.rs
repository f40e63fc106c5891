//! The same pods under the real kubelet and under Polylet, on one node of one cluster: what clients
//! of the API server see of them, and what their containers see, is written down and compared.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polylet_harness::cluster::{Part, Patch, pod_path};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::ok;

/// The pods.
pub mod cases;
/// Comparing what was written down.
pub mod differ;
/// A pod's status as lines that do not depend on the run.
mod lines;
/// What is said in passing, against what the other says.
mod passing;
/// Differences that are right.
pub mod right;
/// Following pods.
mod seen;
/// What people are told of pods.
mod told;
/// What containers say that they see.
pub mod views;
/// Patterns of lines, and lines without what only one run has.
pub mod words;

use seen::Seen;

/// A pod and what is done to it.
#[derive(Debug, Clone)]
pub struct Case {
    /// The pod's name; those of a job begin with it.
    pub name: String,
    /// What is created, and at which path below the namespace.
    pub object: (&'static str, Value),
    /// This pod runs before.
    pub after: Option<&'static str>,
    /// What is done, one after the other; the pod's deletion comes by itself.
    pub steps: Vec<Step>,
}

/// One step of a pod's life.
#[derive(Debug, Clone)]
pub enum Step {
    /// Waits until its status is so, and then until nothing changes, and writes down what is seen.
    Until(&'static str, fn(&Value) -> bool),
    /// The same without waiting for quiet.
    Once(&'static str, fn(&Value) -> bool),
    /// A patch of the pod or of a part of it.
    Change(&'static str, Value),
    /// Something is created for it: path below the namespace, object.
    Create(&'static str, Value),
    /// Deletes the pod with these options.
    Delete(Value),
    /// Somebody else deletes it.
    Leaves,
    /// Deletes another pod.
    Remove(&'static str),
    /// A patch of the node.
    Node(Value),
}

/// What was seen of each pod, line by line.
pub type Lives = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// Who has the node.
#[derive(Debug)]
pub struct Pair {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The node, down at first.
    pub node: Node,
    kubelet: Part,
    /// Where connections are taken, and ended after a while without an answer: a slow pull.
    silent: AbortHandle,
}

impl Pair {
    /// A cluster, and a node that nobody has yet.
    pub async fn prepare() -> Self {
        let cluster = crate::cluster().await;
        let mut options = ok(cluster.node_options("node"));
        options.kubelet["clusterDNS"] = json!(["10.96.0.10"]);
        options.kubelet["maxPods"] = 250.into();
        options.kubelet["clusterDomain"] = "cluster.local".into();
        let node = ok(Node::prepare(options, &|_| {}).await);
        let kubelet = ok(cluster.kubelet(&node));
        let dir = shared(&node);
        // Pods of any user write there.
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
            silent: ok(silent().await),
        }
    }

    /// The pods' lives under the kubelet.
    pub async fn under_the_kubelet(&mut self, cases: &[Vec<Case>]) -> Lives {
        ok(self.kubelet.up());
        ok(self.cluster.wait_node_ready("node").await);
        let mut lives = Lives::new();
        for at_once in cases {
            lives.extend(self.live(at_once).await);
        }
        self.kubelet.down(false);
        lives
    }

    /// The pods' lives under Polylet.
    pub async fn under_polylet(&mut self, cases: &[Vec<Case>]) -> Lives {
        ok(self.node.up().await);
        ok(self.cluster.wait_node_ready("node").await);
        let mut lives = Lives::new();
        for at_once in cases {
            lives.extend(self.live(at_once).await);
        }
        self.node.down();
        lives
    }

    async fn live(&self, cases: &[Case]) -> Lives {
        told::forget(&self.cluster).await;
        let seen = Arc::new(Seen::follow(&self.cluster).await);
        let mut tasks = JoinSet::new();
        let dirs = Dirs {
            manifests: self.node.dirs().manifests.clone(),
            shared: shared(&self.node),
        };
        for case in cases {
            let life = life(
                self.cluster.clone(),
                seen.clone(),
                case.clone(),
                dirs.clone(),
            );
            tasks.spawn(life);
        }
        let lived = tasks.join_all().await;
        let told = told::all(&self.cluster).await;
        let dir = shared(&self.node);
        let mut lives = Lives::new();
        for (of, pod, mut life) in lived {
            let said = dir.join(&of);
            if let Ok(text) = fs::read_to_string(&said) {
                life.insert("view".to_owned(), seen.said(&pod, &text));
                let _ = fs::remove_file(said);
            }
            life.insert("passing".to_owned(), seen.passing(&pod));
            let events = told::of_pod(&told, &seen.whole(&pod));
            life.insert("events".to_owned(), events);
            lives.insert(of, life);
        }
        lives
    }

    /// Ends and removes everything.
    pub fn remove(mut self) {
        self.silent.abort();
        self.kubelet.down(true);
        ok(self.node.remove());
        match Arc::try_unwrap(self.cluster) {
            Ok(cluster) => ok(cluster.remove()),
            Err(_) => panic!("somebody still asks the cluster"),
        }
    }
}

async fn silent() -> std::io::Result<AbortHandle> {
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

/// Where pods write what they see.
pub fn shared(node: &Node) -> PathBuf {
    node.scratch().join("shared")
}

#[derive(Debug, Clone)]
struct Dirs {
    manifests: PathBuf,
    shared: PathBuf,
}

/// What the pods refer to.
async fn objects(cluster: &Cluster) {
    let of = |kind: &str, name: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } });
    let (mut map, mut secret) = (of("ConfigMap", "settings"), of("Secret", "login"));
    map["data"] = json!({ "key": "value", "other": "two\nlines\n" });
    secret["stringData"] = json!({ "user": "me", "word": "pass" });
    let mut service = of("Service", "front");
    service["spec"] = json!({ "selector": { "a": "b" },
        "ports": [{ "name": "web", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }] });
    let mut class = of("RuntimeClass", "unknown");
    class["apiVersion"] = "node.k8s.io/v1".into();
    class["handler"] = "nowhere".into();
    let mut high = of("PriorityClass", "high");
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

/// The life of a case's pod: the case's name, the pod's, and what was seen.
async fn life(
    cluster: Arc<Cluster>,
    seen: Arc<Seen>,
    case: Case,
    dirs: Dirs,
) -> (String, String, BTreeMap<String, Vec<String>>) {
    let client = cluster.client();
    let path = case.object.0;
    let text = case.object.1.to_string();
    let text = text.replace("SHARED", &dirs.shared.display().to_string());
    let object: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut notes = BTreeMap::new();
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
            name = seen.begins(&name).await;
        }
    }
    let mut deleted = false;
    for (at, step) in case.steps.iter().enumerate() {
        match step {
            Step::Until(what, wanted) | Step::Once(what, wanted) => {
                let quiet = matches!(step, Step::Until(..)).then_some(Duration::from_secs(2));
                let status = seen.wait(&name, wanted, quiet).await;
                let (label, lines) = match status {
                    Ok(pod) => (format!("{at} {what}"), lines::whole(&pod)),
                    Err(last) => (format!("{at} {what}"), {
                        let mut lines = vec!["never".to_owned()];
                        lines.extend(lines::whole(&last));
                        lines
                    }),
                };
                notes.insert(label, lines);
            }
            Step::Change(part, change) => {
                let path = format!("{}{part}", pod_path(&name));
                if let Err(error) = client.patch(&path, Patch::Strategic, change).await {
                    notes.insert(format!("{at} refused"), vec![error.to_string()]);
                }
            }
            Step::Create(path, object) => {
                let path = format!("{}{path}", pod_path(&name));
                ok(client.create(&path, object).await);
            }
            Step::Leaves => deleted = true,
            Step::Remove(other) => {
                ok(client.delete(&pod_path(other), &Value::Null).await);
            }
            Step::Node(change) => {
                let path = "/api/v1/nodes/node";
                ok(client.patch(path, Patch::Strategic, change).await);
            }
            Step::Delete(options) => {
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
    let end = match seen.gone(&name).await {
        Ok(last) => lines::whole(&last),
        Err(last) => {
            let mut lines = vec!["never gone".to_owned()];
            lines.extend(lines::whole(&last));
            let _ = client
                .delete(&pod_path(&name), &json!({ "gracePeriodSeconds": 0 }))
                .await;
            lines
        }
    };
    notes.insert("the end".to_owned(), end);
    (case.name, name, notes)
}
