//! Certificate failures during registration: a rejected token, a pending or denied request, a
//! certificate for another node, and a kubeconfig with an embedded certificate.

use std::fs;
use std::path::Path;
use std::time::Duration;

use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster, node_with, ok, wait_for_log, wait_for_log_count};
use polylet_harness::cluster::Patch;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, NodeOptions};
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn pending_csr_is_not_repeated() {
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
    let mut node = node_with(bootstrap_options(&cluster, &bootstrap)).await;
    let mut steps = Steps::new();
    steps
        .run("an unknown token is rejected", async {
            wait_for_log(
                &node,
                "requesting a certificate: creating the signing request",
            )
            .await;
            assert_eq!(requests(&cluster).await, Vec::<String>::new());
        })
        .await;
    let first = steps
        .require("pending and denied requests are not repeated", async {
            // A new token is tried at once, without waiting for the back-off.
            put(&ok(cluster.unapproved_kubeconfig().await));
            let first = wait_for_request(&cluster, &[]).await;
            // Pending approval, across restarts.
            ok(node.kill("status-reporter").await);
            wait_for_log(&node, "certificate signing request found; waiting for it").await;
            ok(cluster.kubectl(&["certificate", "deny", &first]).await);
            let denied = format!("signing request {first} was denied");
            wait_for_log(&node, &denied).await;
            ok(node.kill("status-reporter").await);
            wait_for_log_count(&node, &denied, 2).await;
            assert_eq!(
                requests(&cluster).await,
                std::slice::from_ref(&first),
                "no new request after a denial"
            );
            first
        })
        .await;
    let next = steps
        .require("a certificate for another node is rejected", async {
            // Deleting the denied request permits a new one. The issued certificate names another node.
            let path = format!("{REQUESTS}/{first}");
            ok(cluster.client().delete(&path, &Value::Null).await);
            let same = wait_for_request(&cluster, &[]).await;
            let (other, _) = ok(cluster.identity("other", "system:node:other", &["system:nodes"]));
            let pem = fs::read(other).unwrap();
            let status = json!({"status": {"certificate": encoded(&pem)}});
            let path = format!("{REQUESTS}/{same}/status");
            ok(cluster.client().patch(&path, Patch::Merge, &status).await);
            wait_for_log(&node, "was answered with a certificate for").await;
            wait_for_request(&cluster, &[&same]).await
        })
        .await;
    steps
        .run("a late approval is accepted", async {
            ok(cluster.kubectl(&["certificate", "approve", &next]).await);
            ok(cluster.wait_node_ready("node").await);
        })
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn embedded_client_certificate_is_rotated() {
    let cluster = cluster().await;
    let pki = cluster.scratch().join("pki-of-node");
    let kubeconfig = ok(cluster.embedded_kubeconfig("node"));
    let before = fs::read(&kubeconfig).unwrap();
    let mut options = ok(cluster.node_options("node"));
    // As on a control plane of kubeadm, which has no such file.
    let bootstrap = pki.join("bootstrap.conf");
    options.polylet = json!({ "kubeconfig": kubeconfig, "certDirectory": pki,
        "bootstrapKubeconfig": bootstrap });
    options.kubelet["rotateCertificates"] = json!(true);
    options.kubelet["nodeLeaseDurationSeconds"] = json!(4);
    let node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    let mut steps = Steps::new();
    steps
        .run("the certificate is stored and rotated", async {
            // It is stored as the node's own, and a new one is requested.
            let request = wait_for_request(&cluster, &[]).await;
            let current = pki.join("kubelet-client-current.pem");
            let embedded = fs::read(&current).unwrap();
            ok(cluster.approve_renewals().await);
            ok(cluster.kubectl(&["certificate", "approve", &request]).await);
            ok(until("the next certificate to be stored", || async {
                match fs::read(&current) {
                    Ok(pem) if pem != embedded => Poll::Ready(()),
                    found => Poll::Pending(format!("{:?}", found.map(|pem| pem.len()))),
                }
            })
            .await);
            assert_eq!(
                fs::read(&kubeconfig).unwrap(),
                before,
                "the kubeconfig is not rewritten"
            );
        })
        .await;
    steps
        .run("the expired certificate is not used", async {
            // The old one expires without effect.
            let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";
            let lease_before = ok(cluster.wait(lease, "to exist", |_| true).await);
            let newer =
                |lease: &Value| lease["spec"]["renewTime"] != lease_before["spec"]["renewTime"];
            ok(cluster.wait(lease, "to be renewed", newer).await);
            for service in ok(node.services().await) {
                assert_eq!(service.restarts, 0, "{} was restarted", service.name);
            }
            let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
            let list = ok(cluster.client().get(requests).await).unwrap();
            let signers = list["items"].as_array().unwrap().iter();
            let signers = signers.map(|request| request["spec"]["signerName"].as_str());
            let client = Some("kubernetes.io/kube-apiserver-client-kubelet");
            let of_client = signers.filter(|signer| *signer == client).count();
            assert_eq!(of_client, 1, "one request for the next certificate");
        })
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// Approval after minutes, and a signer that takes minutes more.
#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn late_certificate_is_accepted() {
    if !polylet_e2e::long() {
        return;
    }
    let mut cluster = cluster().await;
    let bootstrap = ok(cluster.unapproved_kubeconfig().await);
    // After its controllers have created what pods need.
    cluster.controller_manager.stop(false);
    let node = node_with(bootstrap_options(&cluster, &bootstrap)).await;
    let csr = wait_for_request(&cluster, &[]).await;
    tokio::time::sleep(Duration::from_secs(150)).await;
    ok(cluster.kubectl(&["certificate", "approve", &csr]).await);
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(requests(&cluster).await, std::slice::from_ref(&csr));
    ok(cluster.controller_manager.start());
    ok(cluster.wait_node_ready("node").await);
    assert_eq!(requests(&cluster).await, [csr], "one request only");
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

/// Waits for one request besides the known ones.
async fn wait_for_request(cluster: &Cluster, known: &[&str]) -> String {
    ok(until("a signing request", || async {
        let mut names = requests(cluster).await;
        names.retain(|name| !known.contains(&name.as_str()));
        match (names.pop(), names.is_empty()) {
            (Some(name), true) => Poll::Ready(name),
            (first, _) => Poll::Pending(format!("{first:?} {names:?}")),
        }
    })
    .await)
}

fn encoded(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Options of a node with a bootstrap kubeconfig.
fn bootstrap_options(cluster: &Cluster, bootstrap: &Path) -> NodeOptions {
    let mut options = ok(cluster.node_options("node"));
    options.polylet = json!({
        "kubeconfig": cluster.scratch().join("kubelet.conf"),
        "bootstrapKubeconfig": bootstrap,
        "certDirectory": cluster.scratch().join("pki-of-node"),
    });
    options.kubelet["rotateCertificates"] = json!(true);
    options
}
