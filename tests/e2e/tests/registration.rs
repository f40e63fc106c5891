//! Registration in a cluster: the Node object, its lease, certificates, and access to the node API.

#[path = "registration/bootstrap.rs"]
mod bootstrap;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster, node_with, ok, pod, wait_for_log};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::http;
use polylet_harness::network::ExtraAddress;
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/node";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn node_object_is_registered_and_updated() {
    let mut cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    options.kubelet["registerWithTaints"] = json!([{ "key": "kept", "effect": "NoSchedule" }]);
    options.kubelet["systemReserved"] = json!({ "cpu": "200m", "memory": "128Mi" });
    options.kubelet["nodeLeaseDurationSeconds"] = json!(4);
    options.polylet["nodeLabels"] = json!({ "shelf": "3" });
    let mut watch = ok(cluster.client().watch("/api/v1/nodes").await);
    let started = Instant::now();
    let mut node = node_with(options).await;

    let mut steps = Steps::new();
    let first = steps
        .require("the Node is created complete", async {
            // The Node is complete when it is created, except for Ready, which waits for the CSINode.
            let (_, created) = ok(watch.next().await).unwrap();
            let message = condition(&created, "Ready")["message"].as_str();
            assert_eq!(message, Some("CSINode is not yet initialized"));
            let first = ok(cluster.wait_node_ready("node").await);
            println!(
                "Ready {} ms after the start began",
                started.elapsed().as_millis()
            );
            assert_eq!(created["status"]["images"], first["status"]["images"]);
            first
        })
        .await;
    let uid = first["metadata"]["uid"].as_str().unwrap().to_owned();
    steps
        .run("the Node has its labels, taints and status", async {
            let labels = &first["metadata"]["labels"];
            assert_eq!(
                (&labels["shelf"], &labels["kubernetes.io/hostname"]),
                (&json!("3"), &json!("node"))
            );
            let taints = first["spec"]["taints"].as_array().unwrap();
            assert!(
                taints.iter().any(|taint| taint["key"] == "kept"),
                "{taints:?}"
            );
            let status = &first["status"];
            let version = status["nodeInfo"]["kubeletVersion"].as_str().unwrap();
            assert!(version.starts_with("v1.36.3+polylet"), "{version}");
            let runtime = status["nodeInfo"]["containerRuntimeVersion"]
                .as_str()
                .unwrap();
            assert!(runtime.starts_with("containerd://"), "{runtime}");
            assert_eq!(
                status["daemonEndpoints"]["kubeletEndpoint"]["Port"],
                node.ports().0
            );
            for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
                assert_eq!(condition(&first, kind)["status"], "False", "{kind}");
            }
            assert_ne!(
                status["allocatable"]["memory"],
                status["capacity"]["memory"]
            );
            assert!(!status["images"].as_array().unwrap().is_empty());
        })
        .await;
    let renewed = |before: Value| {
        let before = before["spec"]["renewTime"].clone();
        move |lease: &Value| lease["spec"]["renewTime"] != before
    };
    steps
        .run("the lease is renewed", async {
            // The lease is owned by the Node and renewed at a quarter of its duration.
            let lease = ok(cluster.wait(LEASE, "to exist", |_| true).await);
            assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], uid.as_str());
            assert_eq!(lease["spec"]["leaseDurationSeconds"], 4);
            let since = Instant::now();
            let second = ok(cluster.wait(LEASE, "to be renewed", renewed(lease)).await);
            ok(cluster
                .wait(LEASE, "to be renewed again", renewed(second))
                .await);
            assert!(since.elapsed() < Duration::from_secs(4));
        })
        .await;
    steps
        .run("a restart of status-reporter writes nothing", async {
            // A restart of status-reporter writes nothing.
            let (_, mark) = ok(cluster.requests(0));
            ok(node.kill("status-reporter").await);
            let patched = |since| {
                let (requests, _) = ok(cluster.requests(since));
                requests
                    .into_iter()
                    .filter(|r| r.resource == "nodes/status")
                    .collect::<Vec<_>>()
            };
            let second = ok(cluster.wait(LEASE, "to exist", |_| true).await);
            ok(cluster
                .wait(
                    LEASE,
                    "to be renewed by the restarted service",
                    renewed(second),
                )
                .await);
            wait_for_log(&node, "registered").await;
            assert!(patched(mark).len() <= 1, "{:?}", patched(mark));
        })
        .await;
    steps
        .run("runtime state is reported", async {
            // Changes of the runtime's state are reported at once.
            let started = Instant::now();
            node.containerd.down(true);
            let down = ok(cluster
                .wait(NODE, "to be NotReady", |node| !is_ready(node))
                .await);
            println!(
                "NotReady {} ms after the runtime was stopped",
                started.elapsed().as_millis()
            );
            assert_eq!(condition(&down, "Ready")["reason"], "KubeletNotReady");
            ok(node.containerd.up().await);
            ok(cluster.wait_node_ready("node").await);
        })
        .await;
    steps
        .run("the lease is renewed after an API server outage", async {
            // After an API server outage the lease is renewed again.
            cluster.stop_api();
            ok(cluster.start_api().await);
            let lease_before = ok(cluster.wait(LEASE, "to exist", |_| true).await);
            ok(cluster
                .wait(
                    LEASE,
                    "to be renewed after the server's restart",
                    renewed(lease_before),
                )
                .await);
        })
        .await;
    steps
        .run("a deleted Node is registered again", async {
            // Deleted manually, it is registered again by the next start, as with the kubelet.
            ok(cluster.client().delete(NODE, &Value::Null).await);
            ok(cluster.wait_absent(NODE).await);
            node.down();
            ok(node.up().await);
            let recreated = ok(cluster.wait_node_ready("node").await);
            assert_ne!(recreated["metadata"]["uid"], uid.as_str());
        })
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// The first request for a serving certificate.
fn serving(list: &Value) -> Option<String> {
    let items = list["items"].as_array()?;
    let is_serving = |item: &&Value| item["spec"]["signerName"] == "kubernetes.io/kubelet-serving";
    let name = items.iter().find(is_serving)?["metadata"]["name"].as_str()?;
    Some(name.to_owned())
}

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn registration_errors_are_reported_and_recoverable() {
    let cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    let path = cluster.scratch().join("node.kubeconfig");
    let put = |text: String| {
        let aside = path.with_extension("new");
        std::fs::write(&aside, text).unwrap();
        std::fs::rename(&aside, &path).unwrap();
    };
    let good = std::fs::read_to_string(ok(cluster.node_kubeconfig("node"))).unwrap();
    options.polylet["kubeconfig"] = json!(path);
    put("nonsense: [".to_owned());
    let node = node_with(options).await;
    let mut steps = Steps::new();
    steps
        .run("invalid kubeconfig", async {
            wait_for_log(&node, "reading kubeconfig").await;
        })
        .await;
    steps
        .run("unknown certificate authority", async {
            let authority = cluster.authority();
            let other = node.pki().authority();
            put(good.replace(&*authority.to_string_lossy(), &other.to_string_lossy()));
            wait_for_log(&node, "UnknownIssuer").await;
        })
        .await;
    steps
        .run("expired client certificate", async {
            put(std::fs::read_to_string(ok(cluster.ended_kubeconfig("node"))).unwrap());
            wait_for_log(&node, "client certificate has expired").await;
            wait_for_log(&node, "Unauthorized").await;
        })
        .await;
    steps
        .run("corrected kubeconfig", async {
            let started = Instant::now();
            put(good);
            ok(cluster.wait_node_ready("node").await);
            println!(
                "Ready {} ms after the kubeconfig was corrected",
                started.elapsed().as_millis()
            );
            for service in ok(node.services().await) {
                assert_eq!(service.restarts, 0, "{} was restarted", service.name);
            }
        })
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// The resolver parses the node's name as an address, which belongs to no interface at first.
#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn node_address_follows_network_interfaces() {
    let cluster = cluster().await;
    let last = 1 + std::process::id() % 250;
    let (name, address) = (
        format!("198.51.{}", 100 * 256 + last),
        format!("198.51.100.{last}"),
    );
    let path = format!("/api/v1/nodes/{name}");
    let node = node_with(ok(cluster.node_options(&name))).await;
    let first = ok(cluster.wait_node_ready(&name).await);
    let before = internal(&first);
    assert_ne!(before, address);
    let mut pod: Value = serde_json::from_str(&pod("web", "sleep 1000000", &json!({}))).unwrap();
    pod["spec"]["nodeName"] = name.as_str().into();
    let pods = "/api/v1/namespaces/default/pods";
    ok(cluster.client().create(pods, &pod).await);
    let ready = ok(cluster.wait_pod_ready("web").await);
    assert_eq!(ready["status"]["hostIP"], before.as_str());

    let now = |address: &str| {
        let address = address.to_owned();
        move |node: &Value| internal(node) == address
    };
    let host = |address: String| move |pod: &Value| pod["status"]["hostIP"] == address.as_str();
    let web = pod_path("web");
    let mut steps = Steps::new();
    let extra = steps
        .require("a new address is reported", async {
            let started = Instant::now();
            let extra = ok(ExtraAddress::add(&address));
            ok(cluster
                .wait(&path, "to report the new address", now(&address))
                .await);
            println!("reported after {} ms", started.elapsed().as_millis());
            assert!(started.elapsed() < Duration::from_secs(5));
            ok(cluster
                .wait(&web, "to have the new host IP", host(address))
                .await);
            extra
        })
        .await;
    steps
        .run("the former address is reported again", async {
            drop(extra);
            ok(cluster
                .wait(&path, "to report the former address", now(&before))
                .await);
            ok(cluster
                .wait(&web, "to have the former host IP", host(before))
                .await);
        })
        .await;
    steps
        .run("the pod is removed", async {
            let at_once = json!({ "gracePeriodSeconds": 0 });
            ok(cluster.client().delete(&web, &at_once).await);
            ok(cluster.wait_absent(&web).await);
        })
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

fn internal(node: &Value) -> String {
    let all = node["status"]["addresses"].as_array();
    let mut all = all.into_iter().flatten();
    let internal = all.find(|address| address["type"] == "InternalIP");
    internal
        .and_then(|address| address["address"].as_str())
        .unwrap_or_default()
        .to_owned()
}

fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let all = node["status"]["conditions"].as_array().unwrap();
    let found = all.iter().find(|condition| condition["type"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {all:?}"))
}
