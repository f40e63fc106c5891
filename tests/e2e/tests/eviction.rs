//! A node that is short of memory: the pod goes by order, and its status says why.

use std::io::Write;

use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::{Node, NodeOptions};
use polylet_wire::notice::v1::notice_service_client::NoticeServiceClient;
use polylet_wire::notice::v1::watch_notices_response::Change;
use polylet_wire::notice::v1::{Notice, Severity, WatchNoticesRequest};
use serde_json::json;
use tokio_stream::StreamExt;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn a_pod_is_evicted_and_stays_so() {
    // No machine has so much: the threshold is met from the first sample on.
    let mut node = node_with(NodeOptions {
        kubelet: json!({ "evictionHard": { "memory.available": "1000Ti" } }),
        polylet: json!({ "evictStaticPods": true }),
        ..NodeOptions::default()
    })
    .await;
    ok(node.put("hog.json", &pod("hog", RUNS, &json!({}))));
    let evicted = ok(node
        .wait_pod("hog", "to be evicted", |pod| {
            pod.phase() == "Failed" && pod.reason() == "Evicted"
        })
        .await);
    let message = evicted.message();
    assert!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: 1000Ti"),
        "{message}"
    );
    let target = evicted.condition("DisruptionTarget");
    let reason = target.and_then(|condition| condition["reason"].as_str());
    assert_eq!(reason, Some("TerminationByKubelet"), "{target:?}");
    ok(node
        .wait_pod("hog", "to have nothing that runs", |pod| {
            pod.containers().iter().all(|one| one.state != "running")
        })
        .await);

    // The decision outlives everybody who took part in it.
    for service in ["eviction", "sync-coordinator", "status-reporter"] {
        ok(node.kill(service).await);
    }
    ok(node.wait_in_step().await);
    let after = ok(node
        .wait_pod("hog", "to be told of", |pod| !pod.phase().is_empty())
        .await);
    assert_eq!(after.reason(), "Evicted");
    assert_eq!(after.identity(), evicted.identity());
    out_of_memory(&mut node).await;
    ok(node.take("hog.json"));
    ok(node.wait_gone("hog").await);
    ok(node.remove());
}

/// What the kernel says of it is told, once, also by a service that was away meanwhile. The test
/// writes it in the kernel's place: a machine that is really out of memory tests nothing more.
async fn out_of_memory(node: &mut Node) {
    let Ok(mut log) = std::fs::File::options().write(true).open("/dev/kmsg") else {
        println!("not tested: /dev/kmsg cannot be written to");
        return;
    };
    let mut killed = |process: &str| {
        let lines = [
            format!("{process} invoked oom-killer: gfp_mask=0x0, order=0, a test\n"),
            format!("Out of memory: Killed process 4242 ({process}) total-vm:0kB, a test\n"),
        ];
        // One write is one record, which is whole with its end of line.
        lines
            .iter()
            .for_each(|line| ok(log.write_all(line.as_bytes())));
    };
    // Whose words these are: other tests may write such at the same time.
    let (first, second) = (
        format!("a{}", std::process::id()),
        format!("b{}", std::process::id()),
    );
    ok(node.wait_serving().await);
    killed(&first);
    let notice = told_of(node, &first).await;
    assert_eq!(
        (notice.reason.as_str(), notice.severity()),
        ("SystemOOM", Severity::Warning)
    );
    let words = format!("System OOM encountered, victim process: {first}, pid: 4242");
    assert_eq!(
        (notice.message, notice.pod, notice.object),
        (words, None, None)
    );
    node.down();
    killed(&second);
    ok(node.up().await);
    ok(node.wait_serving().await);
    told_of(node, &second).await;
}

/// Waits for a notice about a process.
async fn told_of(node: &Node, process: &str) -> Notice {
    let mut client = NoticeServiceClient::new(ok(node.channel("eviction")));
    let told = ok(client.watch_notices(WatchNoticesRequest::default()).await);
    let mut told = told.into_inner();
    let look = async {
        loop {
            let change = ok(told.next().await.expect("notices are told"));
            let Some(Change::Upsert(notice)) = change.change else {
                continue;
            };
            if notice.message.contains(process) {
                return notice;
            }
        }
    };
    ok(tokio::time::timeout(polylet_harness::wait::patience(), look).await)
}
