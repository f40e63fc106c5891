//! A node that has trouble with its certificate: a token that is refused, a request that waits for
//! people, is denied or answered with somebody else's certificate, and a kubeconfig that holds one.

use std::fs;
use std::path::Path;
use std::time::Duration;

use polylet_e2e::{cluster, node_says, node_says_times, node_with, ok};
use polylet_harness::cluster::Patch;
use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, NodeOptions};
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn a_certificate_is_waited_for_and_not_asked_for_again_and_again() {
    let cluster = cluster().await;
    let bootstrap = cluster.scratch().join("first.kubeconfig");
    let put = |from: &Path| {
        let aside = bootstrap.with_extension("new");
        fs::copy(from, &aside).unwrap();
        fs::rename(&aside, &bootstrap).unwrap();
    };
    put(&ok(
        cluster.token_kubeconfig("unknown", "abcdef.0123456789abcdef")
    ));
    let mut node = node_with(joins_by(&cluster, &bootstrap)).await;
    node_says(&node, "no client certificate: making the signing request").await;
    assert_eq!(requests(&cluster).await, Vec::<String>::new());

    // Another token: tried at once, though the last failure was just now.
    put(&ok(cluster.unapproved_kubeconfig().await));
    let first = one_request(&cluster, &[]).await;
    // It waits for people, over restarts.
    ok(node.kill("status-reporter").await);
    node_says(&node, "a certificate was asked for already").await;
    ok(cluster.kubectl(&["certificate", "deny", &first]).await);
    let denied = format!("the signing request {first} was denied");
    node_says(&node, &denied).await;
    ok(node.kill("status-reporter").await);
    node_says_times(&node, &denied, 2).await;
    assert_eq!(
        requests(&cluster).await,
        std::slice::from_ref(&first),
        "denied is denied"
    );

    // Whoever deletes it lets the node ask again. The answer is somebody else's.
    let path = format!("{REQUESTS}/{first}");
    ok(cluster.client().delete(&path, &Value::Null).await);
    let same = one_request(&cluster, &[]).await;
    let (other, _) = ok(cluster.identity("other", "system:node:other", &["system:nodes"]));
    let pem = fs::read(other).unwrap();
    let status = json!({"status": {"certificate": encoded(&pem)}});
    let path = format!("{REQUESTS}/{same}/status");
    ok(cluster.client().patch(&path, Patch::Merge, &status).await);
    node_says(&node, "got a certificate of \"system:node:other\"").await;
    let next = one_request(&cluster, &[&same]).await;

    // An approval that comes late counts.
    ok(cluster.kubectl(&["certificate", "approve", &next]).await);
    ok(cluster.wait_node_ready("node").await);
    ok(node.remove());
    ok(cluster.remove());
}

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn a_certificate_in_the_kubeconfig_is_kept_and_replaced() {
    let cluster = cluster().await;
    let pki = cluster.scratch().join("pki-of-node");
    let kubeconfig = ok(cluster.embedded_kubeconfig("node"));
    let before = fs::read(&kubeconfig).unwrap();
    let mut options = ok(cluster.node_options("node"));
    options.polylet = json!({ "kubeconfig": kubeconfig, "certDirectory": pki });
    options.kubelet["rotateCertificates"] = json!(true);
    options.kubelet["nodeLeaseDurationSeconds"] = json!(4);
    let node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    // At once kept as the node's own, and another one asked for.
    let request = one_request(&cluster, &[]).await;
    let current = pki.join("kubelet-client-current.pem");
    let embedded = fs::read(&current).unwrap();
    ok(cluster.approve_renewals().await);
    ok(cluster.kubectl(&["certificate", "approve", &request]).await);
    ok(until("the next certificate to count", || async {
        match fs::read(&current) {
            Ok(pem) if pem != embedded => Look::Done(()),
            found => Look::NotYet(format!("{:?}", found.map(|pem| pem.len()))),
        }
    })
    .await);
    assert_eq!(
        fs::read(&kubeconfig).unwrap(),
        before,
        "nobody rewrites the kubeconfig"
    );
    // The old one ends unnoticed, since nobody uses it any more.
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";
    let held = ok(cluster.wait(lease, "to be there", |_| true).await);
    let newer = |lease: &Value| lease["spec"]["renewTime"] != held["spec"]["renewTime"];
    ok(cluster.wait(lease, "to be renewed", newer).await);
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{} was restarted", service.name);
    }
    ok(node.remove());
    ok(cluster.remove());
}

/// People who approve after minutes, and a signer that takes as long again.
#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn a_certificate_that_comes_minutes_late_counts() {
    if !polylet_e2e::long() {
        return;
    }
    let mut cluster = cluster().await;
    let bootstrap = ok(cluster.unapproved_kubeconfig().await);
    // Only after its controllers have done what a pod needs.
    cluster.controller_manager.down(false);
    let node = node_with(joins_by(&cluster, &bootstrap)).await;
    let asked = one_request(&cluster, &[]).await;
    tokio::time::sleep(Duration::from_secs(150)).await;
    ok(cluster.kubectl(&["certificate", "approve", &asked]).await);
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(requests(&cluster).await, std::slice::from_ref(&asked));
    ok(cluster.controller_manager.up());
    ok(cluster.wait_node_ready("node").await);
    assert_eq!(requests(&cluster).await, [asked], "it asked once");
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{} was restarted", service.name);
    }
    ok(node.remove());
    ok(cluster.remove());
}

async fn requests(cluster: &Cluster) -> Vec<String> {
    let list = ok(cluster.client().get(REQUESTS).await).unwrap();
    let items = list["items"].as_array().into_iter().flatten();
    let names = items.filter_map(|item| item["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Waits for one request beside the known ones.
async fn one_request(cluster: &Cluster, known: &[&str]) -> String {
    ok(until("a signing request", || async {
        let mut names = requests(cluster).await;
        names.retain(|name| !known.contains(&name.as_str()));
        match (names.pop(), names.is_empty()) {
            (Some(name), true) => Look::Done(name),
            (first, _) => Look::NotYet(format!("{first:?} {names:?}")),
        }
    })
    .await)
}

fn encoded(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A node that asks for its certificate as a bootstrap kubeconfig allows.
fn joins_by(cluster: &Cluster, bootstrap: &Path) -> NodeOptions {
    let mut options = ok(cluster.node_options("node"));
    options.polylet = json!({
        "kubeconfig": cluster.scratch().join("kubelet.conf"),
        "bootstrapKubeconfig": bootstrap,
        "certDirectory": cluster.scratch().join("pki-of-node"),
    });
    options.kubelet["rotateCertificates"] = json!(true);
    options
}
