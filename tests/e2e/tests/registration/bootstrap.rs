//! Certificates requested with a bootstrap token.

use super::*;

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
