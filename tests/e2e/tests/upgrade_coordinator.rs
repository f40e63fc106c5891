//! The coordinator is upgraded while many pods start: their starts are delayed by its restart only.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use polylet_e2e::programs::{build, cli, installed, shown, text};
use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions};
use serde_json::json;

/// The pods of one round.
const PODS: usize = 30;
/// What an upgrade may add to the starts: draining, the restart, and the time until all is in step again.
const LONGEST_DELAY: Duration = Duration::from_secs(30);

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn starts_are_delayed_by_the_restart_of_the_coordinator_only() {
    let bin = installed();
    let new = ok(tempfile::tempdir());
    build("polylet-sync-coordinator", new.path());
    let to = shown(&new.path().join("polylet-sync-coordinator"));
    let options = NodeOptions {
        bin_dir: Some(bin.path().to_owned()),
        ..NodeOptions::default()
    };
    let mut node = node_with(options).await;
    ok(node.wait_in_step().await);
    let mut steps = Steps::new();
    let mut alone = Duration::ZERO;
    steps
        .run("pods start without an upgrade", async {
            let started = Instant::now();
            put_all(&node, "alone");
            ready_all(&node, "alone").await;
            alone = started.elapsed();
            gone_all(&node, "alone").await;
        })
        .await;
    steps
        .run("pods start during an upgrade", async {
            let started = Instant::now();
            put_all(&node, "during");
            // In the midst of it: some have started, others have not.
            ok(until("the first pods", || async {
                match running(&node, "during").await {
                    0..3 => Poll::Pending("none has started".to_owned()),
                    _ => Poll::Ready(()),
                }
            })
            .await);
            let before = running(&node, "during").await;
            let begun = Instant::now();
            let upgraded = cli(&node, &["upgrade", "sync-coordinator", "--to", &to]).await;
            let duration = begun.elapsed();
            assert!(upgraded.status.success(), "{}", text(&upgraded));
            ready_all(&node, "during").await;
            let all = started.elapsed();
            println!(
                "{PODS} pods started in {alone:.1?} without an upgrade, in {all:.1?} with one, which began after \
                 {before} of them and took {duration:.1?}"
            );
            assert!(all < alone * 2 + LONGEST_DELAY, "{all:?}, alone {alone:?}");
            assert_each_once(&node, "during").await;
        })
        .await;
    steps.finish();
    ok(node.remove());
}

fn names(round: &str) -> impl Iterator<Item = String> {
    (0..PODS).map(move |number| format!("{round}-{number}"))
}

fn put_all(node: &Node, round: &str) {
    for name in names(round) {
        ok(node.put(&format!("{name}.json"), &pod(&name, RUNS, &json!({}))));
    }
}

async fn ready_all(node: &Node, round: &str) {
    for name in names(round) {
        ok(node.wait_ready(&name).await);
    }
}

async fn gone_all(node: &Node, round: &str) {
    for name in names(round) {
        ok(node.take(&format!("{name}.json")));
    }
    for name in names(round) {
        ok(node.wait_gone(&name).await);
    }
}

/// How many pods of a round are Ready.
async fn running(node: &Node, round: &str) -> usize {
    let pods = ok(node.pods().await);
    let of_round = pods.iter().filter(|pod| pod.name.starts_with(round));
    of_round.filter(|pod| pod.is_ready()).count()
}

/// No container has been restarted, none was made twice, and no pod has a second sandbox.
async fn assert_each_once(node: &Node, round: &str) {
    for pod in ok(node.pods().await) {
        if pod.name.starts_with(round) {
            let restarts: Vec<u64> = pod.containers().iter().map(|one| one.restarts).collect();
            assert_eq!(restarts, [0], "{}", pod.line());
        }
    }
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for container in ok(node.containerd.cri().containers().await) {
        let pod = container.labels.get("io.kubernetes.pod.name");
        let pod = pod.cloned().unwrap_or_default();
        if pod.starts_with(round) {
            *made.entry(pod).or_default() += 1;
        }
    }
    assert_eq!(made.len(), PODS);
    assert!(made.values().all(|count| *count == 1), "{made:?}");
    let sandboxes = ok(node.containerd.cri().sandboxes().await);
    let mut of_pods: BTreeMap<String, usize> = BTreeMap::new();
    for sandbox in sandboxes {
        let pod = sandbox.labels.get("io.kubernetes.pod.name").cloned();
        let pod = pod.unwrap_or_default();
        if pod.starts_with(round) {
            *of_pods.entry(pod).or_default() += 1;
        }
    }
    assert_eq!(of_pods.len(), PODS);
    assert!(of_pods.values().all(|count| *count == 1), "{of_pods:?}");
}
