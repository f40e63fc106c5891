//! The pods that must not notice anything.

use std::collections::BTreeMap;

use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, ok};
use polylet_harness::Cluster;
use polylet_harness::cluster::pod_path;
use serde_json::{Value, json};

use crate::faulty_node::{PODS, is_well, restart_counts};

/// Number of healthy pods.
const COUNT: usize = 30;

/// Restart counts by pod, once all were Ready.
pub(crate) struct HealthyPods {
    watch: Watch,
    restarts: BTreeMap<String, Vec<u64>>,
}

impl HealthyPods {
    /// Starts the pods and waits until all are Ready.
    pub(crate) async fn start(cluster: &Cluster, watch: Watch) -> Self {
        let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "settings" }, "data": { "key": "value" } });
        let maps = "/api/v1/namespaces/default/configmaps";
        ok(cluster.client().create(maps, &settings).await);
        for number in 0..COUNT {
            ok(cluster.client().create(PODS, &healthy(number)).await);
        }
        let mut restarts = BTreeMap::new();
        for number in 0..COUNT {
            let name = name(number);
            let expected = vec![restarts_of(number)];
            let is_done = |pod: &Value| is_well(pod, &expected);
            ok(cluster.wait(&pod_path(&name), "is well", is_done).await);
            restarts.insert(name, expected);
        }
        let this = Self { watch, restarts };
        for name in this.restarts.keys() {
            this.watch.take(name);
        }
        this
    }

    /// Pods that were not Ready for a moment since the last call, or whose containers were restarted;
    /// and those that the API server shows so.
    pub(crate) async fn problems(&self, cluster: &Cluster) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, restarts) in &self.restarts {
            let seen = self.watch.take(name).into_iter();
            let unwell =
                seen.filter(|pod| !pod.is_ready() || restart_counts(&pod.status) != *restarts);
            problems.extend(unwell.map(|pod| pod.line()));
            let pod = ok(cluster.client().get(&pod_path(name)).await).unwrap_or_default();
            if !is_well(&pod, restarts) {
                problems.push(format!("{name} at the API server: {}", pod["status"]));
            }
        }
        problems
    }
}

/// Whether a pod of this name is one of them.
pub(crate) fn is_healthy_pod(name: &str) -> bool {
    name.starts_with("healthy-")
}

fn name(number: usize) -> String {
    format!("healthy-{number:02}")
}

/// How often the container of a pod exits at first.
fn restarts_of(number: usize) -> u64 {
    u64::from(number % 3 == 2)
}

/// Pods of three kinds: an exec probe on a ConfigMap, an HTTP server, and one that has restarted once.
fn healthy(number: usize) -> Value {
    let volumes = json!([
        { "name": "map", "configMap": { "name": "settings" } },
        { "name": "scratch", "emptyDir": {} },
    ]);
    let mounts = json!([
        { "name": "map", "mountPath": "/map" },
        { "name": "scratch", "mountPath": "/scratch" },
    ]);
    let exec = json!({ "exec": { "command": ["test", "-s", "/map/key"] },
        "periodSeconds": 5, "timeoutSeconds": 5 });
    let (script, probe) = match number % 3 {
        0 => (RUNS.to_owned(), exec),
        1 => (
            "echo here > /scratch/index.html; exec httpd -f -p 8080 -h /scratch".to_owned(),
            json!({ "httpGet": { "path": "/index.html", "port": 8080 },
                "periodSeconds": 1, "timeoutSeconds": 5 }),
        ),
        _ => (
            format!("test -e /scratch/again || {{ touch /scratch/again; exit 1; }}; {RUNS}"),
            exec,
        ),
    };
    let more = json!({
        "volumes": volumes,
        "container": { "volumeMounts": mounts, "readinessProbe": probe },
    });
    crate::faulty_node::bound(&name(number), &script, &more)
}
