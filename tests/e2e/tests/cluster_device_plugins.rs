//! Devices of a plugin in a cluster: what the Node object says of them, and a node that changes from
//! the kubelet to Polylet and back while pods have devices.

use std::cell::Cell;
use std::path::Path;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, ok, pod};
use polylet_harness::cluster::{Patch, pod_path};
use polylet_harness::device_plugin::{RunningDevicePlugin, TestDevicePlugin};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

const RESOURCE: &str = "test.example/device";
/// The kubelet's, whatever its root directory is.
const DIRECTORY: &str = "/var/lib/kubelet/device-plugins";
const NODE: &str = "/api/v1/nodes/node";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Waits until the Node object has this capacity and these allocatable devices.
async fn wait_devices(cluster: &Cluster, capacity: u32, allocatable: u32) {
    let (capacity, allocatable) = (capacity.to_string(), allocatable.to_string());
    let has = |node: &Value| {
        let status = &node["status"];
        status["capacity"][RESOURCE] == *capacity && status["allocatable"][RESOURCE] == *allocatable
    };
    let what = format!("has {capacity} devices, of which {allocatable} allocatable");
    ok(cluster.wait(NODE, &what, has).await);
}

/// Starts the plugin, and registers it once the node listens. An agent that starts removes the
/// sockets of plugins, by which they see that they have to start anew.
async fn start(plugin: &TestDevicePlugin) -> RunningDevicePlugin {
    let running = Cell::new(None::<RunningDevicePlugin>);
    ok(until("the plugin to register", || async {
        let former = running.take().filter(RunningDevicePlugin::is_reachable);
        running.set(Some(former.unwrap_or_else(|| ok(plugin.start()))));
        match plugin.register().await {
            Ok(()) => Poll::Ready(()),
            Err(error) => Poll::Pending(polylet_harness::error::report(&error)),
        }
    })
    .await);
    running.into_inner().unwrap()
}

/// Creates a pod on the node, whatever its devices: the scheduler would wait for them.
async fn create(cluster: &Cluster, name: &str, devices: u32) {
    let fields = json!({
        "nodeName": "node",
        "container": { "resources": { "limits": { RESOURCE: devices.to_string() } } },
    });
    let object: Value = serde_json::from_str(&pod(name, RUNS, &fields)).unwrap();
    ok(cluster.client().create(PODS, &object).await);
}

/// The id of a pod's container, and its number of restarts.
fn identity(pod: &Value) -> (Value, Value) {
    let container = &pod["status"]["containerStatuses"][0];
    let (id, restarts) = (&container["containerID"], &container["restartCount"]);
    (id.clone(), restarts.clone())
}

/// A pod that asks for one device more is rejected.
async fn none_is_left(cluster: &Cluster, name: &str) {
    create(cluster, name, 1).await;
    let rejected = |pod: &Value| {
        let message = pod["status"]["message"].as_str().unwrap_or_default();
        pod["status"]["reason"] == "UnexpectedAdmissionError"
            && message.contains("Requested: 1, Available: 0")
    };
    let path = pod_path(name);
    ok(cluster.wait(&path, "is rejected", rejected).await);
    let now = json!({ "gracePeriodSeconds": 0 });
    ok(cluster.client().delete(&path, &now).await);
}

async fn prepare(cluster: &Cluster) -> Node {
    let mut options = ok(cluster.node_options("node"));
    options.polylet["devicePluginDirectory"] = json!(DIRECTORY);
    ok(Node::prepare(options, &|_| {}).await)
}

#[tokio::test]
#[ignore = "needs root, a container runtime, the programs of a cluster: cargo verify"]
async fn devices_stay_with_their_pods_over_a_takeover() {
    let mut steps = Steps::new();
    let cluster = cluster().await;
    let mut node = prepare(&cluster).await;
    let mut kubelet = ok(cluster.kubelet(&node));
    ok(kubelet.start());
    ok(cluster.wait_node_ready("node").await);
    let plugin = TestDevicePlugin::new(Path::new(DIRECTORY), RESOURCE, &["a", "b", "c"]);
    let running = start(&plugin).await;
    wait_devices(&cluster, 3, 3).await;
    create(&cluster, "first", 1).await;
    let first = identity(&ok(cluster.wait_pod_ready("first").await));

    kubelet.stop(false);
    drop(running);
    ok(node.up().await);
    let running = start(&plugin).await;
    steps
        .run("Polylet knows what the kubelet has allocated", async {
            wait_devices(&cluster, 3, 3).await;
            create(&cluster, "second", 2).await;
            ok(cluster.wait_pod_ready("second").await);
            none_is_left(&cluster, "third").await;
            let pod = ok(cluster.wait_pod_ready("first").await);
            assert_eq!(identity(&pod), first, "it runs on");
            let status = &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"];
            assert_eq!(status[0]["name"], RESOURCE);
        })
        .await;
    steps
        .run("the Node object follows the health of devices", async {
            plugin.set_health("a", false);
            wait_devices(&cluster, 3, 2).await;
            plugin.set_health("a", true);
            wait_devices(&cluster, 3, 3).await;
        })
        .await;
    steps
        .run("resources of administrators stay", async {
            let patch = json!({ "status": { "capacity": { "other.example/thing": "7" } } });
            let path = format!("{NODE}/status");
            ok(cluster.client().patch(&path, Patch::Merge, &patch).await);
            let has = |node: &Value| node["status"]["allocatable"]["other.example/thing"] == "7";
            ok(cluster.wait(NODE, "has the other resource", has).await);
            wait_devices(&cluster, 3, 3).await;
        })
        .await;
    steps
        .run("a restart of the services changes nothing", async {
            let path = format!("{NODE}?watch=0");
            let before = ok(cluster.client().get(&path).await).unwrap();
            for service in ["device-manager", "status-reporter", "sync-coordinator"] {
                ok(node.kill(service).await);
            }
            ok(node.wait_in_step().await);
            wait_devices(&cluster, 3, 3).await;
            let after = ok(cluster.client().get(&path).await).unwrap();
            assert_eq!(after["status"]["capacity"], before["status"]["capacity"]);
            none_is_left(&cluster, "fourth").await;
        })
        .await;
    let second = identity(&ok(cluster.wait_pod_ready("second").await));

    node.down();
    drop(running);
    ok(kubelet.start());
    let running = start(&plugin).await;
    steps
        .run("the kubelet knows what Polylet has allocated", async {
            wait_devices(&cluster, 3, 3).await;
            none_is_left(&cluster, "fifth").await;
            for (name, before) in [("first", first), ("second", second)] {
                let pod = ok(cluster.wait_pod_ready(name).await);
                assert_eq!(identity(&pod), before, "{name} runs on");
            }
        })
        .await;
    for name in ["first", "second"] {
        ok(cluster.client().delete(&pod_path(name), &Value::Null).await);
        ok(cluster.wait_absent(&pod_path(name)).await);
    }
    kubelet.stop(false);
    drop(running);
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}
