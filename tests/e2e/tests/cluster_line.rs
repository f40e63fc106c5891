//! What is between a node and its API servers: a line that goes dead while nobody closes it, proxies,
//! a balancer before two servers.

use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, cluster, node_with, ok, pod};
use polylet_harness::cluster::{Line, Proxy, set_in_kubeconfig};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, Node, NodeOptions};
use serde_json::{Value, json};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn dead_connections_are_noticed() {
    let cluster = cluster().await;
    let line = ok(cluster.line().await);
    let options = ok(cluster.node_options_by("node", &line.server()));
    notices_dead_connections(cluster, line, options).await;
}

/// The proxy is well and says so; the dead part of the way is behind it.
#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn dead_connections_behind_a_proxy_are_noticed() {
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
    notices_dead_connections(cluster, line, options).await;
    assert!(proxy.tunnels() > 3);
}

async fn notices_dead_connections(cluster: Cluster, line: Line, options: NodeOptions) {
    let node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    let before = ok(cluster.wait(LEASE, "to be there", |_| true).await);

    line.go_dead();
    let dead_since = Instant::now();
    ok(cluster.client().create(PODS, &object("later")).await);
    ok(cluster.wait_pod_ready("later").await);
    renewed(&cluster, &before).await;
    let took = dead_since.elapsed();
    println!("noticed within {} ms", took.as_millis());
    assert!(took < Duration::from_secs(25), "{took:?}");
    ok(node.remove());
    ok(cluster.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn a_node_joins_and_lives_behind_proxies() {
    let cluster = cluster().await;
    let mut by_environment = ok(cluster.proxy().await);
    let mut by_kubeconfig = ok(cluster.proxy().await);
    // Nobody reaches this address from here: what arrives came by a proxy.
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

    // The kubeconfig's own counts before that, and at once.
    let url = json!(by_kubeconfig.url());
    ok(set_in_kubeconfig(&kubeconfig, "proxy-url", url));
    tunnels(&by_kubeconfig, 2).await;
    by_environment.down();
    ok(cluster.client().create(PODS, &object("early")).await);
    ok(cluster.wait_pod_ready("early").await);

    // It is killed with all that goes through it, and comes back.
    by_kubeconfig.down();
    ok(cluster.client().create(PODS, &object("later")).await);
    says_away(&node, true).await;
    let before = ok(cluster.wait(LEASE, "to be there", |_| true).await);
    ok(by_kubeconfig.up().await);
    let back = Instant::now();
    ok(cluster.wait_pod_ready("later").await);
    renewed(&cluster, &before).await;
    println!(
        "caught up {} ms after the proxy",
        back.elapsed().as_millis()
    );
    says_away(&node, false).await;
    undisturbed(&node, &by_kubeconfig).await;
    ok(node.remove());
    ok(cluster.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn two_servers_behind_one_address() {
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
        // The one and then the other; what was on it goes to the one that is left.
        for (which, own) in [("second", false), ("first", true)] {
            let before = ok(cluster.wait(LEASE, "to be there", |_| true).await);
            let since = Instant::now();
            match own {
                true => cluster.stop_api(),
                false => second.down(at_once),
            }
            println!("{which} away after {:?}", since.elapsed());
            if own {
                // Whoever looks for it looks there, too.
                tokio::time::sleep(Duration::from_secs(3)).await;
                ok(cluster.start_api().await);
            }
            let name = format!("{which}-{number}");
            ok(cluster.client().create(PODS, &object(&name)).await);
            ok(cluster.wait_pod_ready(&name).await);
            renewed(&cluster, &before).await;
            println!("{which}: a pod ran {:?} after it went", since.elapsed());
            if !own {
                ok(second.up());
            }
            says_away(&node, false).await;
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

async fn renewed(cluster: &Cluster, before: &Value) {
    let time = |lease: &Value| lease["spec"]["renewTime"].clone();
    let newer = |lease: &Value| time(lease) != time(before);
    ok(cluster.wait(LEASE, "to be renewed", newer).await);
}

async fn tunnels(proxy: &Proxy, least: usize) {
    let look = || async {
        match proxy.tunnels() {
            made if made >= least => Look::Done(()),
            made => Look::NotYet(format!("{made}")),
        }
    };
    ok(until(format!("{least} connections by the proxy"), look).await);
}

async fn says_away(node: &Node, away: bool) {
    let what = format!("the node to say {away} of being away from the API server");
    let look = || async {
        let status = ok(node.cli(&["status"]).await);
        let told = String::from_utf8_lossy(&status.stdout).into_owned();
        match told.contains("API server is away") == away {
            true => Look::Done(()),
            false => Look::NotYet(told),
        }
    };
    ok(until(what, look).await);
}

/// Nothing was restarted, and nobody was told the proxy's password.
async fn undisturbed(node: &Node, proxy: &Proxy) {
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{} was restarted", service.name);
    }
    let log = std::fs::read_to_string(node.log()).unwrap();
    assert!(log.contains("the API server is reached by the proxy"));
    for secret in proxy.secrets() {
        assert!(!log.contains(&secret), "a log holds a password");
    }
}
