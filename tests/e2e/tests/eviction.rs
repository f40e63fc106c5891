//! A node under memory pressure: a pod is evicted, and its status says why.

use std::io::Write;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::{HungFuse, Node, NodeOptions};
use polylet_wire::lifecycle::v1::GetInfoRequest;
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::notice::v1::notice_service_client::NoticeServiceClient;
use polylet_wire::notice::v1::watch_notices_response::Change;
use polylet_wire::notice::v1::{Notice, Severity, WatchNoticesRequest};
use polylet_wire::stats::v1::GetSummaryRequest;
use polylet_wire::stats::v1::stats_service_client::StatsServiceClient;
use serde_json::{Value, json};
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
    first_notice(node, |notice| notice.message.contains(process)).await
}

/// The first notice of eviction that matches, recent ones included.
async fn first_notice(node: &Node, matches: impl Fn(&Notice) -> bool) -> Notice {
    let mut client = NoticeServiceClient::new(ok(node.channel("eviction")));
    let notices = ok(client.watch_notices(WatchNoticesRequest::default()).await);
    let mut notices = notices.into_inner();
    let matching = async {
        loop {
            let change = ok(notices.next().await.expect("an open stream of notices"));
            let Some(Change::Upsert(notice)) = change.change else {
                continue;
            };
            if matches(&notice) {
                return notice;
            }
        }
    };
    ok(tokio::time::timeout(polylet_harness::wait::timeout(), matching).await)
}

/// File systems that never answer, in a volume of a pod and as a volume of it, hide nothing: the
/// summary is served, the volume is named, and the pod that fills the disk is evicted first.
#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn dead_mounts_do_not_stop_eviction() {
    if !HungFuse::is_available() {
        println!("skipped: this machine has no FUSE");
        return;
    }
    let node = node_with(NodeOptions {
        // Met from the first sample on, and acted upon when the pods run.
        kubelet: json!({
            "evictionHard": { "memory.available": "1Mi" },
            "evictionSoft": { "nodefs.available": "1000Ti" },
            "evictionSoftGracePeriod": { "nodefs.available": "30s" },
            "evictionMaxPodGracePeriod": 5,
        }),
        polylet: json!({ "evictStaticPods": true }),
        ..NodeOptions::default()
    })
    .await;
    let volume = |name: &str| {
        json!({
            "volumes": [{ "name": name, "emptyDir": {} }, { "name": "data", "emptyDir": {} }],
            "container": { "volumeMounts": [
                { "name": name, "mountPath": "/v" },
                { "name": "data", "mountPath": "/data" },
            ] },
        })
    };
    ok(node.put("hung.json", &pod("hung", RUNS, &volume("scratch"))));
    let fills = format!("dd if=/dev/zero of=/v/big bs=1M count=30; {RUNS}");
    ok(node.put("hog.json", &pod("hog", &fills, &volume("scratch"))));
    let hung = ok(node.wait_ready("hung").await);
    ok(node.wait_ready("hog").await);
    let volumes = node.dirs().root.join("pods").join(&hung.uid);
    let volumes = volumes.join("volumes/kubernetes.io~empty-dir");
    let inside = volumes.join("scratch/mnt");
    ok(std::fs::create_dir(&inside));
    let mounts = (
        ok(HungFuse::mount_unkillable(&inside)),
        ok(HungFuse::mount(&volumes.join("data"))),
    );

    let mut steps = Steps::new();
    steps
        .run("the summary is served, without the dead volume", async {
            let mut client = StatsServiceClient::new(ok(node.channel("eviction")));
            let response = ok(client.get_summary(GetSummaryRequest::default()).await);
            let summary: Value = ok(serde_json::from_slice(&response.into_inner().summary));
            assert_eq!(volume_names(&summary, &hung.uid), ["scratch"], "{summary}");
        })
        .await;
    steps
        .run("the dead volume is named", async {
            let mut client = LifecycleServiceClient::new(ok(node.channel("eviction")));
            let info = ok(client.get_info(GetInfoRequest {}).await).into_inner();
            let conditions = info.conditions;
            let expected = format!("default/{}/data", hung.name);
            let named = |reason: &str, object: &str| {
                let mut all = conditions.iter();
                all.any(|one| one.reason == reason && one.object == object)
            };
            assert!(named("VolumeNotResponding", &expected), "{conditions:?}");
            let notice = first_notice(&node, |one| one.reason == "VolumeNotResponding").await;
            assert_eq!(notice.pod.map(|pod| pod.uid), Some(hung.uid.clone()));
        })
        .await;
    steps
        .run("the pod that fills the disk is evicted first", async {
            let notice = first_notice(&node, |one| one.reason == "Evicted").await;
            let name = notice.pod.unwrap_or_default().name;
            assert!(name.starts_with("hog"), "{name}: {}", notice.message);
            let low = "The node was low on resource: ephemeral-storage. Threshold quantity: 1000Ti";
            assert!(notice.message.starts_with(low), "{}", notice.message);
            let starved = notice.annotations.get("starved_resource");
            assert_eq!(starved.map(String::as_str), Some("ephemeral-storage"));
        })
        .await;
    drop(mounts);
    steps.finish();
    ok(node.take("hung.json"));
    ok(node.take("hog.json"));
    ok(node.wait_gone("hung").await);
    ok(node.remove());
}

/// The names of a pod's volumes in a summary.
fn volume_names(summary: &Value, uid: &str) -> Vec<String> {
    let pods = summary["pods"].as_array().cloned().unwrap_or_default();
    let pod = pods.into_iter().find(|pod| pod["podRef"]["uid"] == uid);
    let pod = pod.expect("the pod in the summary");
    let volumes = pod["volume"].as_array().cloned().unwrap_or_default();
    let name = |volume: &Value| volume["name"].as_str().map(str::to_owned);
    volumes.iter().filter_map(name).collect()
}
