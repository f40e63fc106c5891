//! A node whose clock is wrong, and is put right as it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, cluster, node_says, node_with, ok, pod};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::{Node, PodView};
use serde_json::{Value, json};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";

/// What gives programs another time: Debian's libfaketime, where it is installed.
fn faketime() -> Option<PathBuf> {
    let named = std::env::var_os("POLYLET_TEST_FAKETIME").map(PathBuf::from);
    let installed = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    let found = named.or_else(|| Some(PathBuf::from(installed)));
    let found = found.filter(|path| path.is_file());
    if found.is_none() {
        println!("left out: libfaketime is not installed");
    }
    found
}

fn set(clock: &Path, offset: &str) {
    let aside = clock.with_extension("new");
    fs::write(&aside, format!("{offset}\n")).unwrap();
    fs::rename(&aside, clock).unwrap();
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster, libfaketime: cargo verify"]
async fn a_clock_that_is_off_by_hours() {
    let Some(library) = faketime().filter(|_| polylet_e2e::long()) else {
        return;
    };
    let cluster = cluster().await;
    let clock = cluster.scratch().join("clock");
    // Long before the cluster's certificates are good.
    set(&clock, "-20000d");
    let mut options = ok(cluster.node_options("node"));
    options.env = vec![
        ("LD_PRELOAD".to_owned(), library.display().to_string()),
        (
            "FAKETIME_TIMESTAMP_FILE".to_owned(),
            clock.display().to_string(),
        ),
        ("FAKETIME_CACHE_DURATION".to_owned(), "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC".to_owned(), "1".to_owned()),
    ];
    let mut node = node_with(options).await;
    node_says(&node, "is the clock right?").await;
    println!("== said; now an hour ahead");
    let begun = Instant::now();
    set(&clock, "+1h");
    ok(cluster.wait_node_ready("node").await);
    println!("Ready {:?} after the clock came near", begun.elapsed());
    let lease = ok(cluster.wait(LEASE, "to be there", |_| true).await);
    println!(
        "an hour ahead, the lease says {}",
        lease["spec"]["renewTime"]
    );

    let object: Value = serde_json::from_str(&pod("lives", RUNS, &json!({}))).unwrap();
    ok(cluster
        .client()
        .create("/api/v1/namespaces/default/pods", &object)
        .await);
    ok(cluster.wait_pod_ready("lives").await);
    let before = ok(view(&node).await.ok_or(std::io::Error::other("no pod")));
    for offset in ["-1h", "+0", "+26h", "+0"] {
        let held = ok(cluster.wait(LEASE, "to be there", |_| true).await);
        let begun = Instant::now();
        set(&clock, offset);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let renewed = |lease: &Value| lease["spec"]["renewTime"] != held["spec"]["renewTime"];
        ok(cluster.wait(LEASE, "to be renewed", renewed).await);
        println!("clock {offset}: lease renewed after {:?}", begun.elapsed());
        ok(node.kill("sync-coordinator").await);
        ok(node.kill("status-reporter").await);
        ok(node.kill("volume-manager").await);
        ok(node.wait_in_step().await);
        // A pod comes and goes as ever.
        let name = format!("at{}", offset.trim_start_matches(['+', '-']));
        let object: Value = serde_json::from_str(&pod(&name, RUNS, &json!({}))).unwrap();
        ok(cluster
            .client()
            .create("/api/v1/namespaces/default/pods", &object)
            .await);
        ok(cluster.wait_pod_ready(&name).await);
        ok(cluster
            .client()
            .delete(&pod_path(&name), &Value::Null)
            .await);
        ok(cluster.wait_absent(&pod_path(&name)).await);
        println!(
            "clock {offset}: a pod came and went by {:?}",
            begun.elapsed()
        );
        let now = view(&node).await.unwrap();
        assert_eq!(now.identity(), before.identity(), "clock {offset}");
        let told = ok(cluster.client().get(&pod_path("lives")).await).unwrap();
        assert!(is_ready(&told), "clock {offset}: {}", told["status"]);
    }
    ok(cluster.wait_node_ready("node").await);
    ok(node.remove());
    ok(cluster.remove());
}

async fn view(node: &Node) -> Option<PodView> {
    ok(node.pods().await)
        .into_iter()
        .find(|pod| pod.name == "lives")
}
