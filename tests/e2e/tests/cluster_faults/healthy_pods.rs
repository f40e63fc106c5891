//! The pods that must not notice anything.

use std::collections::BTreeMap;

use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, ok};
use polylet_harness::{Cluster, PodView};
use serde_json::{Value, json};

use crate::faulty_node::PODS;

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
            let pod = ok(cluster.wait_pod_ready(&name).await);
            restarts.insert(name, counts(&pod["status"]));
        }
        let this = Self { watch, restarts };
        for name in this.restarts.keys() {
            this.watch.take(name);
        }
        this
    }

    /// Fails if a pod was not Ready for a moment, or a container was restarted.
    pub(crate) fn verify(&self) {
        for (name, restarts) in &self.restarts {
            for pod in self.watch.take(name) {
                assert!(pod.is_ready(), "{}", pod.line());
                assert_eq!(&counts(&pod.status), restarts, "{}", PodView::line(&pod));
            }
        }
    }
}

fn name(number: usize) -> String {
    format!("healthy-{number:02}")
}

fn counts(status: &Value) -> Vec<u64> {
    let all = status["containerStatuses"].as_array().into_iter().flatten();
    all.filter_map(|one| one["restartCount"].as_u64()).collect()
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
        "periodSeconds": 2, "timeoutSeconds": 5 });
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
