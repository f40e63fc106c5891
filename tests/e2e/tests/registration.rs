//! Registration in a cluster: the Node object, its lease, certificates, and access to the node API.

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

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn bootstrap_token_obtains_a_client_certificate() {
    let cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    let dir = cluster.scratch().join("joining");
    let (kubeconfig, pki) = (dir.join("etc/kubelet.conf"), dir.join("pki"));
    options.polylet = json!({
        "kubeconfig": kubeconfig,
        "bootstrapKubeconfig": ok(cluster.bootstrap_kubeconfig().await),
        "certDirectory": pki,
    });
    options.kubelet["rotateCertificates"] = json!(true);
    options.kubelet["serverTLSBootstrap"] = json!(true);
    let started = Instant::now();
    let mut node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    println!(
        "Ready {} ms after the start began, with a token",
        started.elapsed().as_millis()
    );
    let mut steps = Steps::new();
    let current = steps
        .require("credentials are stored", async {
            for path in [&kubeconfig, &pki.join("kubelet-client-current.pem")] {
                let mode = std::fs::metadata(path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{}", path.display());
            }
            assert!(!pki.join("kubelet-client.key.tmp").exists());
            std::fs::read_link(pki.join("kubelet-client-current.pem")).unwrap()
        })
        .await;
    let (port, tls) = steps
        .require("the node API serves after approval", async {
            // The node API serves once its certificate is approved, without a restart.
            let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
            let csr_list = ok(cluster
                .wait(
                    requests,
                    "to contain a request for a serving certificate",
                    |list| serving(list).is_some(),
                )
                .await);
            let name = serving(&csr_list).unwrap();
            let (port, tls) = (node.ports().0, ok(node.pki().tls(true)));
            assert!(http::get_tls(tls.clone(), port, "/pods").await.is_err());
            ok(cluster.kubectl(&["certificate", "approve", &name]).await);
            let until = Instant::now() + Duration::from_secs(30);
            while http::get_tls(tls.clone(), port, "/pods").await.is_err() {
                assert!(Instant::now() < until, "no serving certificate");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }

            (port, tls)
        })
        .await;
    steps
        .run("requests are authenticated and authorized", async {
            // Anonymous, with an invalid token, without permission, and with permission.
            let code = async |path: &str, token: &str| {
                ok(http::get_tls_as(tls.clone(), port, path, token).await).code()
            };
            ok(cluster
                .kubectl(&["create", "serviceaccount", "reader"])
                .await);
            ok(cluster
                .kubectl(&[
                    "create",
                    "clusterrole",
                    "reads-nodes",
                    "--verb=get",
                    "--resource=nodes/metrics,nodes/pods",
                ])
                .await);
            let token = ok(cluster.kubectl(&["create", "token", "reader"]).await);
            let token = token.trim();
            assert_eq!(code("/pods", "").await, 401);
            assert_eq!(code("/pods", "nonsense").await, 401);
            assert_eq!(code("/stats/summary", token).await, 403);
            let bind = [
                "create",
                "clusterrolebinding",
                "reads-nodes",
                "--clusterrole=reads-nodes",
                "--serviceaccount=default:reader",
            ];
            ok(cluster.kubectl(&bind).await);
            let until = Instant::now() + Duration::from_secs(30);
            while code("/metrics", token).await != 200 {
                assert!(Instant::now() < until, "the permission is not effective");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(code("/pods", token).await, 200);
            assert_eq!(code("/containerLogs/default/x/y", token).await, 403);
        })
        .await;
    steps
        .run("kubectl shows logs", async {
            // As shown by kubectl.
            let script = "echo said; trap 'exit 0' TERM; sleep 3600 & wait $!";
            let run = [
                "run",
                "talks",
                "--image=polylet-test:1",
                "--restart=Never",
                "--command",
                "--",
                "sh",
                "-c",
                script,
            ];
            ok(cluster.kubectl(&run).await);
            ok(cluster.wait_pod_ready("talks").await);
            let log = ok(cluster
                .kubectl(&["logs", "talks", "--insecure-skip-tls-verify-backend"])
                .await);
            assert_eq!(log, "said\n");
            ok(cluster
                .kubectl(&["delete", "pod", "talks", "--wait=false"])
                .await);
        })
        .await;
    steps
        .run("a restart reuses the certificate", async {
            // The next start reuses the certificate.
            node.down();
            ok(node.up().await);
            ok(cluster.wait_node_ready("node").await);
            assert_eq!(
                std::fs::read_link(pki.join("kubelet-client-current.pem")).unwrap(),
                current
            );
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
