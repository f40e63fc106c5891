//! Services, the supervisor, containerd and the API server are killed at random, together, while pods are
//! created and deleted, services hang or exceed their memory, and sockets are removed: in the end
//! everything is as it was asked for, nothing is left over, and pods that nobody changed noticed nothing.
//!
//! `POLYLET_TEST_LONG` runs for ten minutes instead of 45 s, `POLYLET_TEST_SEED` repeats the choices of a
//! run.

#[path = "cluster_random_kills/failures.rs"]
mod failures;
#[path = "cluster_random_kills/snapshot.rs"]
mod snapshot;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node, PodView};
use serde_json::{Value, json};

use failures::{pid_of, signal};
use snapshot::{Traces, verify_nothing_runs_twice};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// How many pods are created and deleted, of each source.
const CHURNED: usize = 4;

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn everything_converges_after_random_failures() {
    let seed = std::env::var("POLYLET_TEST_SEED").ok();
    let seed = seed.and_then(|text| text.parse().ok());
    let mut random = fastrand::Rng::with_seed(seed.unwrap_or_else(|| fastrand::u64(..)));
    println!("POLYLET_TEST_SEED={}", random.get_seed());
    let mut cluster = cluster().await;
    let mut node = cluster_node(&cluster).await;
    let bystanders = Bystanders::start(&cluster, &node).await;
    let before = Traces::of(&node).await;
    // Hangs until its watchdog replaces it, after half a minute, or its supervisor is killed.
    let hung = pid_of(&node, "image-gc").await.expect("a process");
    signal(hung, rustix::process::Signal::STOP);
    let seconds = if polylet_e2e::long() { 600 } else { 45 };
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut churn = Churn::default();
    let mut pace = tokio::time::interval(Duration::from_millis(700));
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    while Instant::now() < end {
        pace.tick().await;
        churn.change_one(&cluster, &node, &mut random).await;
        let failure = failures::cause(&mut cluster, &mut node, &mut random).await;
        *counts.entry(failure).or_default() += 1;
    }
    println!("caused: {counts:?}");
    let mut steps = Steps::new();
    steps
        .require("everything runs again", async {
            failures::repair(&mut cluster, &mut node).await;
            ok(node.wait_in_step().await);
        })
        .await;
    steps
        .run("the hung service was replaced", async {
            ok(until("another process of image-gc", || async {
                match pid_of(&node, "image-gc").await {
                    Some(pid) if pid != hung => Poll::Ready(()),
                    pid => Poll::Pending(format!("{pid:?}")),
                }
            })
            .await);
        })
        .await;
    steps
        .run("pods are as they were asked for", async {
            churn.verify(&cluster, &node).await;
            verify_nothing_runs_twice(&node).await;
        })
        .await;
    steps
        .run("nothing is left of deleted pods", async {
            churn.delete_all(&cluster, &node).await;
            before.wait(&node).await;
        })
        .await;
    steps
        .run("other pods were not disturbed", async {
            bystanders.verify(&cluster, &node).await;
        })
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// Pods that nobody changes: a static one and one of the API server, with probes.
struct Bystanders {
    watch: Watch,
    identities: BTreeMap<String, Vec<(String, String, u64)>>,
}

impl Bystanders {
    async fn start(cluster: &Cluster, node: &Node) -> Self {
        let probe = json!({ "exec": { "command": ["true"] }, "periodSeconds": 1,
            "timeoutSeconds": 10, "failureThreshold": 3 });
        let more = json!({
            "container": { "readinessProbe": probe, "livenessProbe": probe,
                "volumeMounts": [{ "name": "e", "mountPath": "/e" }] },
            "volumes": [{ "name": "e", "emptyDir": { "medium": "Memory" } }],
        });
        ok(node.put("static.json", &pod("static", RUNS, &more)));
        let mut object: Value = ok(serde_json::from_str(&pod("bound", RUNS, &more)));
        object["spec"]["nodeName"] = "node".into();
        object["spec"]["automountServiceAccountToken"] = false.into();
        ok(cluster.client().create(PODS, &object).await);
        ok(cluster.wait_pod_ready("bound").await);
        ok(cluster.wait_pod_ready("static-node").await);
        let mut identities = BTreeMap::new();
        for pod in ok(node.pods().await) {
            identities.insert(pod.name.clone(), pod.identity());
        }
        assert_eq!(identities.len(), 2);
        let watch = Watch::start(node);
        Self { watch, identities }
    }

    async fn verify(&self, cluster: &Cluster, node: &Node) {
        for (name, identity) in &self.identities {
            let object = ok(cluster.client().get(&pod_path(name)).await);
            assert!(is_ready(&object.unwrap_or_default()), "{name}");
            let pods = ok(node.pods().await);
            let pod = pods.iter().find(|pod| pod.name == *name).expect("a pod");
            assert_eq!(pod.identity(), *identity);
            let seen = self.watch.take(name);
            let disturbed: Vec<String> = seen
                .iter()
                .filter(|pod| !pod.is_ready() || pod.identity() != *identity)
                .map(PodView::line)
                .collect();
            assert_eq!(disturbed, Vec::<String>::new());
        }
    }
}

/// Pods that are created and deleted, by name: whether they are to exist. Names are used once, as the API
/// server may be unavailable when one is to be deleted.
#[derive(Default)]
struct Churn {
    statics: BTreeMap<String, bool>,
    bound: BTreeMap<String, bool>,
}

impl Churn {
    async fn change_one(&mut self, cluster: &Cluster, node: &Node, random: &mut fastrand::Rng) {
        let is_static = random.bool();
        let pods = if is_static {
            &mut self.statics
        } else {
            &mut self.bound
        };
        let existing: Vec<String> = pods
            .iter()
            .filter(|(_, exists)| **exists)
            .map(|(name, _)| name.clone())
            .collect();
        if existing.len() >= CHURNED || (!existing.is_empty() && random.bool()) {
            let name = existing[random.usize(..existing.len())].clone();
            if is_static {
                ok(node.take(&format!("{name}.json")));
            } else {
                // Repeated at the end where the API server is unavailable.
                let _ = cluster
                    .client()
                    .delete(&pod_path(&name), &Value::Null)
                    .await;
            }
            pods.insert(name, false);
            return;
        }
        let kind = if is_static { "static" } else { "bound" };
        let name = format!("churn-{kind}-{}", pods.len());
        let more = json!({
            "initContainers": [{ "name": "init", "image": "polylet-test:1", "command": ["true"] }],
            "volumes": [{ "name": "e", "emptyDir": { "medium": "Memory" } }],
            "container": { "volumeMounts": [{ "name": "e", "mountPath": "/e" }] },
        });
        let manifest = pod(&name, RUNS, &more);
        let created = if is_static {
            node.put(&format!("{name}.json"), &manifest).is_ok()
        } else {
            let mut object: Value = ok(serde_json::from_str(&manifest));
            object["spec"]["nodeName"] = "node".into();
            object["spec"]["automountServiceAccountToken"] = false.into();
            cluster.client().create(PODS, &object).await.is_ok()
        };
        if created {
            pods.insert(name, true);
        }
    }

    async fn verify(&self, cluster: &Cluster, node: &Node) {
        for (name, exists) in &self.statics {
            if *exists {
                ok(node.wait_ready(name).await);
            } else {
                ok(node.wait_gone(name).await);
            }
        }
        for (name, exists) in &self.bound {
            if *exists {
                ok(cluster.wait_pod_ready(name).await);
            } else {
                // A request that failed may have been carried out.
                let _ = cluster.client().delete(&pod_path(name), &Value::Null).await;
                ok(cluster.wait_absent(&pod_path(name)).await);
            }
        }
    }

    async fn delete_all(&self, cluster: &Cluster, node: &Node) {
        for name in self.statics.keys() {
            // Some are gone.
            let _ = node.take(&format!("{name}.json"));
        }
        for name in self.bound.keys() {
            let _ = cluster.client().delete(&pod_path(name), &Value::Null).await;
        }
        for name in self.statics.keys() {
            ok(node.wait_gone(name).await);
        }
        for name in self.bound.keys() {
            ok(cluster.wait_absent(&pod_path(name)).await);
        }
    }
}
