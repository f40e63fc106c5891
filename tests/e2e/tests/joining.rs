//! A node joins a cluster: its Node object, its lease, its certificates, and who may ask it what.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use polylet_e2e::{cluster, node_says, node_with, ok, pod};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::http;
use polylet_harness::network::ExtraAddress;
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/node";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn a_node_registers_and_is_kept_up_to_date() {
    let mut cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    options.kubelet["registerWithTaints"] = json!([{ "key": "kept", "effect": "NoSchedule" }]);
    options.kubelet["systemReserved"] = json!({ "cpu": "200m", "memory": "128Mi" });
    options.kubelet["nodeLeaseDurationSeconds"] = json!(4);
    options.polylet["nodeLabels"] = json!({ "shelf": "3" });
    let mut watch = ok(cluster.client().watch("/api/v1/nodes").await);
    let begun = Instant::now();
    let mut node = node_with(options).await;

    // The very first word of it says all but that it is Ready: its CSINode comes right after it.
    let (_, made) = ok(watch.next().await).unwrap();
    let why = condition(&made, "Ready")["message"].as_str();
    assert_eq!(why, Some("CSINode is not yet initialized"));
    let first = ok(cluster.wait_node_ready("node").await);
    println!(
        "in the cluster {} ms after the start began",
        begun.elapsed().as_millis()
    );
    assert_eq!(made["status"]["images"], first["status"]["images"]);
    let uid = first["metadata"]["uid"].as_str().unwrap().to_owned();
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

    // The lease belongs to it and is renewed at a quarter of its duration.
    let lease = ok(cluster.wait(LEASE, "to be there", |_| true).await);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], uid.as_str());
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 4);
    let renewed = |before: Value| {
        let before = before["spec"]["renewTime"].clone();
        move |lease: &Value| lease["spec"]["renewTime"] != before
    };
    let since = Instant::now();
    let second = ok(cluster.wait(LEASE, "to be renewed", renewed(lease)).await);
    ok(cluster
        .wait(LEASE, "to be renewed again", renewed(second))
        .await);
    assert!(since.elapsed() < Duration::from_secs(4));

    // Restarts of the service that keeps it say nothing new.
    let (_, mark) = ok(cluster.requests(0));
    ok(node.kill("status-reporter").await);
    let patched = |since| {
        let (requests, _) = ok(cluster.requests(since));
        requests
            .into_iter()
            .filter(|r| r.resource == "nodes/status")
            .collect::<Vec<_>>()
    };
    let second = ok(cluster.wait(LEASE, "to be there", |_| true).await);
    ok(cluster
        .wait(LEASE, "to be renewed by the next life", renewed(second))
        .await);
    node_says(&node, "registered").await;
    assert!(patched(mark).len() <= 1, "{:?}", patched(mark));

    // What the runtime says is told at once.
    let begun = Instant::now();
    node.containerd.down(true);
    let down = ok(cluster
        .wait(NODE, "to be NotReady", |node| !is_ready(node))
        .await);
    println!(
        "NotReady {} ms after the runtime went",
        begun.elapsed().as_millis()
    );
    assert_eq!(condition(&down, "Ready")["reason"], "KubeletNotReady");
    ok(node.containerd.up().await);
    ok(cluster.wait_node_ready("node").await);

    // The server goes away and comes back: the lease goes on.
    cluster.stop_api();
    ok(cluster.start_api().await);
    let held = ok(cluster.wait(LEASE, "to be there", |_| true).await);
    ok(cluster
        .wait(
            LEASE,
            "to be renewed after the server's restart",
            renewed(held),
        )
        .await);

    // Deleted by hand, it comes back with the next start, as the kubelet's does.
    ok(cluster.client().delete(NODE, &Value::Null).await);
    ok(cluster.wait_absent(NODE).await);
    node.down();
    ok(node.up().await);
    let again = ok(cluster.wait_node_ready("node").await);
    assert_ne!(again["metadata"]["uid"], uid.as_str());
    ok(node.remove());
    ok(cluster.remove());
}

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn a_token_is_enough_to_join() {
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
    let begun = Instant::now();
    let mut node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    println!(
        "Ready {} ms after the start began, with a token",
        begun.elapsed().as_millis()
    );
    for path in [&kubeconfig, &pki.join("kubelet-client-current.pem")] {
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    assert!(!pki.join("kubelet-client.key.tmp").exists());
    let current = std::fs::read_link(pki.join("kubelet-client-current.pem")).unwrap();

    // The node API serves nobody before its certificate is approved, and then without a restart.
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let asked = ok(cluster
        .wait(requests, "to hold a request for serving", |list| {
            serving(list).is_some()
        })
        .await);
    let name = serving(&asked).unwrap();
    let (port, tls) = (node.ports().0, ok(node.pki().tls(true)));
    assert!(http::get_tls(tls.clone(), port, "/pods").await.is_err());
    ok(cluster.kubectl(&["certificate", "approve", &name]).await);
    let until = Instant::now() + Duration::from_secs(30);
    while http::get_tls(tls.clone(), port, "/pods").await.is_err() {
        assert!(Instant::now() < until, "no serving certificate");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // Who asks: nobody, a nonsense token, one who may not, and one who may.
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
        assert!(Instant::now() < until, "the right never counts");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(code("/pods", token).await, 200);
    assert_eq!(code("/containerLogs/default/x/y", token).await, 403);

    // What one sees who uses the cluster.
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
    let said = ok(cluster
        .kubectl(&["logs", "talks", "--insecure-skip-tls-verify-backend"])
        .await);
    assert_eq!(said, "said\n");
    ok(cluster
        .kubectl(&["delete", "pod", "talks", "--wait=false"])
        .await);

    // The next start uses what is there.
    node.down();
    ok(node.up().await);
    ok(cluster.wait_node_ready("node").await);
    assert_eq!(
        std::fs::read_link(pki.join("kubelet-client-current.pem")).unwrap(),
        current
    );
    ok(node.remove());
    ok(cluster.remove());
}

/// The first request for a serving certificate.
fn serving(list: &Value) -> Option<String> {
    let items = list["items"].as_array()?;
    let wanted = |item: &&Value| item["spec"]["signerName"] == "kubernetes.io/kubelet-serving";
    let name = items.iter().find(wanted)?["metadata"]["name"].as_str()?;
    Some(name.to_owned())
}

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn what_keeps_a_node_out_is_said_and_can_be_put_right() {
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
    node_says(&node, "the kubeconfig").await;

    let authority = cluster.authority();
    let other = node.pki().authority();
    put(good.replace(&*authority.to_string_lossy(), &other.to_string_lossy()));
    node_says(&node, "UnknownIssuer").await;
    put(std::fs::read_to_string(ok(cluster.ended_kubeconfig("node"))).unwrap());
    node_says(&node, "the node's certificate ended at 2002").await;
    node_says(&node, "Unauthorized").await;
    let begun = Instant::now();
    put(good);
    ok(cluster.wait_node_ready("node").await);
    println!(
        "Ready {} ms after it was put right",
        begun.elapsed().as_millis()
    );
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{} was restarted", service.name);
    }
    ok(node.remove());
    ok(cluster.remove());
}

/// The node's name is a number to the resolver, which takes it for an address: nobody's, until an
/// interface has it.
#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn the_nodes_address_follows_its_interfaces() {
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

    let begun = Instant::now();
    let extra = ok(ExtraAddress::add(&address));
    let now = |address: &str| {
        let address = address.to_owned();
        move |node: &Value| internal(node) == address
    };
    ok(cluster
        .wait(&path, "to tell its address", now(&address))
        .await);
    println!("told after {} ms", begun.elapsed().as_millis());
    assert!(begun.elapsed() < Duration::from_secs(5));
    let host = |address: String| move |pod: &Value| pod["status"]["hostIP"] == address.as_str();
    let of_pod = pod_path("web");
    ok(cluster.wait(&of_pod, "to follow", host(address)).await);

    drop(extra);
    ok(cluster
        .wait(&path, "to tell the former", now(&before))
        .await);
    ok(cluster.wait(&of_pod, "to follow", host(before)).await);
    let at_once = json!({ "gracePeriodSeconds": 0 });
    ok(cluster.client().delete(&of_pod, &at_once).await);
    ok(cluster.wait_absent(&of_pod).await);
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
