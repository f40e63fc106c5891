//! The network between a node and its API servers: connections that die silently, proxies, two
//! servers behind one address.

use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, node_with, ok, pod};
use polylet_harness::cluster::{Proxy, TcpProxy, set_in_kubeconfig};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node, NodeOptions};
use serde_json::{Value, json};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn dead_connections_are_detected() {
    let cluster = cluster().await;
    let line = ok(cluster.line().await);
    let options = ok(cluster.node_options_by("node", &line.server()));
    detects_dead_connections(cluster, line, options).await;
}

/// The proxy responds; the dead part of the connection is behind it.
#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn dead_connections_behind_a_proxy_are_detected() {
    if !polylet_e2e::long() {
        return;
    }
    let cluster = cluster().await;
    let line = ok(cluster.line().await);
    let proxy = ok(line.proxy().await);
    let options = ok(cluster.node_options_by("node", &cluster.inner_server()));
    let kubeconfig = options.polylet["kubeconfig"].as_str().unwrap().to_owned();
    let url = json!(proxy.url());
    ok(set_in_kubeconfig(kubeconfig.as_ref(), "proxy-url", url));
    detects_dead_connections(cluster, line, options).await;
    assert!(proxy.tunnels() > 3);
}

async fn detects_dead_connections(cluster: Cluster, line: TcpProxy, options: NodeOptions) {
    let node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    let before = ok(cluster.wait(LEASE, "to exist", |_| true).await);

    line.blackhole_connections();
    let dead_since = Instant::now();
    ok(cluster.client().create(PODS, &object("later")).await);
    ok(cluster.wait_pod_ready("later").await);
    wait_lease_renewed(&cluster, &before).await;
    let latency = dead_since.elapsed();
    println!("noticed within {} ms", latency.as_millis());
    assert!(latency < Duration::from_secs(25), "{latency:?}");
    ok(node.remove());
    ok(cluster.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn node_registers_and_runs_behind_proxies() {
    let mut steps = Steps::new();
    let cluster = cluster().await;
    let mut by_environment = ok(cluster.proxy().await);
    let mut by_kubeconfig = ok(cluster.proxy().await);
    // This address is unreachable directly: requests that arrive came through a proxy.
    let bootstrap = ok(cluster.bootstrap_kubeconfig().await);
    ok(set_in_kubeconfig(
        &bootstrap,
        "server",
        json!(cluster.inner_server()),
    ));
    let dir = cluster.scratch().join("joining");
    let kubeconfig = dir.join("kubelet.conf");
    let mut options = ok(cluster.node_options("node"));
    options.env = vec![
        ("HTTPS_PROXY".to_owned(), by_environment.url()),
        ("NO_PROXY".to_owned(), "10.96.0.1:6443,.svc".to_owned()),
    ];
    options.polylet = json!({
        "kubeconfig": kubeconfig,
        "bootstrapKubeconfig": bootstrap,
        "certDirectory": dir.join("pki"),
    });
    options.kubelet["rotateCertificates"] = json!(true);
    options.kubelet["nodeLeaseDurationSeconds"] = json!(4);
    let node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    assert!(by_environment.tunnels() >= 3 && by_kubeconfig.tunnels() == 0);

    // The kubeconfig's proxy takes precedence, without a restart.
    let url = json!(by_kubeconfig.url());
    ok(set_in_kubeconfig(&kubeconfig, "proxy-url", url));
    steps.run("tunnels", tunnels(&by_kubeconfig, 2)).await;
    by_environment.down();
    ok(cluster.client().create(PODS, &object("early")).await);
    ok(cluster.wait_pod_ready("early").await);

    // The proxy is killed with its tunnels and restarted.
    by_kubeconfig.down();
    ok(cluster.client().create(PODS, &object("later")).await);
    steps
        .run("reports outage", reports_outage(&node, true))
        .await;
    let before = ok(cluster.wait(LEASE, "to exist", |_| true).await);
    ok(by_kubeconfig.up().await);
    let back = Instant::now();
    ok(cluster.wait_pod_ready("later").await);
    steps
        .run("wait lease renewed", wait_lease_renewed(&cluster, &before))
        .await;
    println!(
        "caught up {} ms after the proxy",
        back.elapsed().as_millis()
    );
    steps
        .run("reports outage", reports_outage(&node, false))
        .await;
    steps
        .run(
            "nothing was restarted",
            nothing_was_restarted(&node, &by_kubeconfig),
        )
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn failover_between_two_api_servers() {
    if !polylet_e2e::long() {
        return;
    }
    let mut cluster = cluster().await;
    let (mut second, line) = ok(cluster.second_api().await);
    let mut options = ok(cluster.node_options_by("node", &line.server()));
    options.kubelet["nodeLeaseDurationSeconds"] = json!(4);
    let node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    for (number, at_once) in [(1, true), (2, false)] {
        // One after the other; its connections move to the remaining server.
        for (which, own) in [("second", false), ("first", true)] {
            let before = ok(cluster.wait(LEASE, "to exist", |_| true).await);
            let since = Instant::now();
            match own {
                true => cluster.stop_api(),
                false => second.stop(at_once),
            }
            println!("{which}: reported unavailable after {:?}", since.elapsed());
            if own {
                // The outage lasts longer than one health check.
                tokio::time::sleep(Duration::from_secs(3)).await;
                ok(cluster.start_api().await);
            }
            let name = format!("{which}-{number}");
            ok(cluster.client().create(PODS, &object(&name)).await);
            ok(cluster.wait_pod_ready(&name).await);
            wait_lease_renewed(&cluster, &before).await;
            println!(
                "{which}: a pod ran {:?} after the connection was lost",
                since.elapsed()
            );
            if !own {
                ok(second.start());
            }
            reports_outage(&node, false).await;
        }
    }
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{} was restarted", service.name);
    }
    ok(node.remove());
    drop(second);
    ok(cluster.remove());
}

fn object(name: &str) -> Value {
    serde_json::from_str(&pod(name, RUNS, &json!({}))).unwrap()
}

async fn wait_lease_renewed(cluster: &Cluster, before: &Value) {
    let time = |lease: &Value| lease["spec"]["renewTime"].clone();
    let newer = |lease: &Value| time(lease) != time(before);
    ok(cluster.wait(LEASE, "to be renewed", newer).await);
}

async fn tunnels(proxy: &Proxy, least: usize) {
    let poll = || async {
        match proxy.tunnels() {
            made if made >= least => Poll::Ready(()),
            made => Poll::Pending(format!("{made}")),
        }
    };
    ok(until(format!("{least} connections by the proxy"), poll).await);
}

async fn reports_outage(node: &Node, unavailable: bool) {
    let what = format!("API server reported unavailable: {unavailable}");
    let poll = || async {
        let status = ok(node.cli(&["status"]).await);
        let output = String::from_utf8_lossy(&status.stdout).into_owned();
        match output.contains("API server unavailable since") == unavailable {
            true => Poll::Ready(()),
            false => Poll::Pending(output),
        }
    };
    ok(until(what, poll).await);
}

/// Nothing was restarted, and no log contains the proxy's password.
async fn nothing_was_restarted(node: &Node, proxy: &Proxy) {
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{} was restarted", service.name);
    }
    let log = std::fs::read_to_string(node.log()).unwrap();
    assert!(log.contains("connecting to the API server through a proxy"));
    for secret in proxy.secrets() {
        assert!(!log.contains(&secret), "a log holds a password");
    }
}
