//! A node under memory pressure: a pod is evicted, and its status says why.

use std::io::Write;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::{Node, NodeOptions};
use polylet_wire::notice::v1::notice_service_client::NoticeServiceClient;
use polylet_wire::notice::v1::watch_notices_response::Change;
use polylet_wire::notice::v1::{Notice, Severity, WatchNoticesRequest};
use serde_json::json;
use tokio_stream::StreamExt;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn evicted_pod_stays_failed() {
    // More than any machine has: the threshold is met from the first sample on.
    let mut node = node_with(NodeOptions {
        kubelet: json!({ "evictionHard": { "memory.available": "1000Ti" } }),
        polylet: json!({ "evictStaticPods": true }),
        ..NodeOptions::default()
    })
    .await;
    ok(node.put("hog.json", &pod("hog", RUNS, &json!({}))));
    let mut steps = Steps::new();
    let evicted = steps
        .require("the pod is evicted", async {
            let evicted = ok(node
                .wait_pod("hog", "to be evicted", |pod| {
                    pod.phase() == "Failed" && pod.reason() == "Evicted"
                })
                .await);
            let message = evicted.message();
            assert!(
                message.starts_with(
                    "The node was low on resource: memory. Threshold quantity: 1000Ti"
                ),
                "{message}"
            );
            let target = evicted.condition("DisruptionTarget");
            let reason = target.and_then(|condition| condition["reason"].as_str());
            assert_eq!(reason, Some("TerminationByKubelet"), "{target:?}");
            ok(node
                .wait_pod("hog", "to have no running container", |pod| {
                    pod.containers().iter().all(|one| one.state != "running")
                })
                .await);
            evicted
        })
        .await;
    steps
        .run("the eviction survives restarts", async {
            for service in ["eviction", "sync-coordinator", "status-reporter"] {
                ok(node.kill(service).await);
            }
            ok(node.wait_in_step().await);
            let after = ok(node
                .wait_pod("hog", "to have a status", |pod| !pod.phase().is_empty())
                .await);
            assert_eq!(after.reason(), "Evicted");
            assert_eq!(after.identity(), evicted.identity());
        })
        .await;
    steps
        .run("OOM kills are reported", out_of_memory(&mut node))
        .await;
    steps
        .run("the pod is removed", async {
            ok(node.take("hog.json"));
            ok(node.wait_gone("hog").await);
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// OOM kills in the kernel log are reported once, also after a restart. The test writes the log
/// records itself.
async fn out_of_memory(node: &mut Node) {
    let Ok(mut log) = std::fs::File::options().write(true).open("/dev/kmsg") else {
        println!("skipped: /dev/kmsg cannot be written to");
        return;
    };
    let mut killed = |process: &str| {
        let lines = [
            format!("{process} invoked oom-killer: gfp_mask=0x0, order=0, a test\n"),
            format!("Out of memory: Killed process 4242 ({process}) total-vm:0kB, a test\n"),
        ];
        // One write is one record and must end with a newline.
        lines
            .iter()
            .for_each(|line| ok(log.write_all(line.as_bytes())));
    };
    // Other tests may write records at the same time.
    let (first, second) = (
        format!("a{}", std::process::id()),
        format!("b{}", std::process::id()),
    );
    ok(node.wait_serving().await);
    killed(&first);
    let notice = wait_for_notice(node, &first).await;
    assert_eq!(
        (notice.reason.as_str(), notice.severity()),
        ("SystemOOM", Severity::Warning)
    );
    let expected = format!("System OOM encountered, victim process: {first}, pid: 4242");
    assert_eq!(
        (notice.message, notice.pod, notice.object),
        (expected, None, None)
    );
    node.down();
    killed(&second);
    ok(node.up().await);
    ok(node.wait_serving().await);
    wait_for_notice(node, &second).await;
}

/// Waits for a notice about a process.
async fn wait_for_notice(node: &Node, process: &str) -> Notice {
    let mut client = NoticeServiceClient::new(ok(node.channel("eviction")));
    let notices = ok(client.watch_notices(WatchNoticesRequest::default()).await);
    let mut notices = notices.into_inner();
    let matching = async {
        loop {
            let change = ok(notices.next().await.expect("an open stream of notices"));
            let Some(Change::Upsert(notice)) = change.change else {
                continue;
            };
            if notice.message.contains(process) {
                return notice;
            }
        }
    };
    ok(tokio::time::timeout(polylet_harness::wait::timeout(), matching).await)
}
