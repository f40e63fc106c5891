//! A node whose clock is wrong and is corrected while it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, node_with, ok, pod, wait_for_log};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::{Node, PodView};
use serde_json::{Value, json};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";

/// Debian's libfaketime, if installed.
fn faketime() -> Option<PathBuf> {
    let named = std::env::var_os("POLYLET_TEST_FAKETIME").map(PathBuf::from);
    let installed = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    let found = named.or_else(|| Some(PathBuf::from(installed)));
    let found = found.filter(|path| path.is_file());
    if found.is_none() {
        println!("skipped: libfaketime is not installed");
    }
    found
}

fn set_offset(clock: &Path, offset: &str) {
    let aside = clock.with_extension("new");
    fs::write(&aside, format!("{offset}\n")).unwrap();
    fs::rename(&aside, clock).unwrap();
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster, libfaketime: cargo verify"]
async fn clock_jumps_do_not_disturb_pods() {
    let Some(library) = faketime().filter(|_| polylet_e2e::long()) else {
        return;
    };
    let cluster = cluster().await;
    let clock = cluster.scratch().join("clock");
    // Long before the cluster's certificates become valid.
    set_offset(&clock, "-20000d");
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
    let mut steps = Steps::new();
    steps
        .run(
            "a wrong clock is reported and its correction noticed",
            async {
                wait_for_log(&node, "check the clock").await;
                println!("clock error reported; setting the clock one hour ahead");
                let started = Instant::now();
                set_offset(&clock, "+1h");
                ok(cluster.wait_node_ready("node").await);
                println!(
                    "Ready {:?} after the clock was corrected",
                    started.elapsed()
                );
                let lease = ok(cluster.wait(LEASE, "to exist", |_| true).await);
                println!(
                    "one hour ahead, the lease has renewTime {}",
                    lease["spec"]["renewTime"]
                );
            },
        )
        .await;
    let before = steps
        .require("a pod starts", async {
            let object: Value = serde_json::from_str(&pod("lives", RUNS, &json!({}))).unwrap();
            ok(cluster
                .client()
                .create("/api/v1/namespaces/default/pods", &object)
                .await);
            ok(cluster.wait_pod_ready("lives").await);
            ok(view(&node).await.ok_or(std::io::Error::other("no pod")))
        })
        .await;
    for offset in ["-1h", "+0", "+26h", "+0"] {
        steps
            .run(&format!("clock {offset}"), async {
                let lease_before = ok(cluster.wait(LEASE, "to exist", |_| true).await);
                let started = Instant::now();
                set_offset(&clock, offset);
                tokio::time::sleep(Duration::from_secs(2)).await;
                let renewed =
                    |lease: &Value| lease["spec"]["renewTime"] != lease_before["spec"]["renewTime"];
                ok(cluster.wait(LEASE, "to be renewed", renewed).await);
                println!(
                    "clock {offset}: lease renewed after {:?}",
                    started.elapsed()
                );
                ok(node.kill("sync-coordinator").await);
                ok(node.kill("status-reporter").await);
                ok(node.kill("volume-manager").await);
                ok(node.wait_in_step().await);
                // A pod starts and is deleted as usual.
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
                    "clock {offset}: a pod was started and deleted within {:?}",
                    started.elapsed()
                );
                let now = view(&node).await.unwrap();
                assert_eq!(now.identity(), before.identity(), "clock {offset}");
                let reported = ok(cluster.client().get(&pod_path("lives")).await).unwrap();
                assert!(
                    is_ready(&reported),
                    "clock {offset}: {}",
                    reported["status"]
                );
            })
            .await;
    }
    steps.finish();
    ok(cluster.wait_node_ready("node").await);
    ok(node.remove());
    ok(cluster.remove());
}

async fn view(node: &Node) -> Option<PodView> {
    ok(node.pods().await)
        .into_iter()
        .find(|pod| pod.name == "lives")
}
