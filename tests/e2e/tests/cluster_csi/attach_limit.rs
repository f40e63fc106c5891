//! Pods beyond the driver's limit of volumes.

use super::*;

#[tokio::test]
#[ignore = "takes minutes, with POLYLET_TEST_LONG: needs root, containerd and the programs of a cluster"]
async fn pod_beyond_the_attach_limit_is_rejected() {
    let mut steps = Steps::new();
    if !long() {
        return;
    }
    let cluster = cluster().await;
    let node = node_with(ok(cluster.node_options("node"))).await;
    ok(cluster.wait_node_ready("node").await);
    let disks = cluster.scratch().join("disks");
    let driver = ok(TestCsiDriver::new(&node.dirs().root, &disks));
    let runs = ok(driver.start());
    steps.run("objects", objects(&cluster)).await;
    steps
        .run(
            "wait driver registered",
            wait_driver_registered(&cluster, 5),
        )
        .await;
    ok(cluster.client().create(PODS, &first_pod()).await);
    for claim in ["files", "first-own"] {
        provision(&cluster, claim, "Filesystem").await;
    }
    provision(&cluster, "raw", "Block").await;
    let error = json!({ "status": { "attachError": { "message": "no more", "errorCode": 8,
        "time": "2026-01-01T00:00:00Z" } } });
    let path = format!("{}/status", attachment(&cluster, "files").await);
    ok(cluster.client().patch(&path, Patch::Merge, &error).await);
    for claim in ["raw", "first-own"] {
        let attachment = attachment(&cluster, claim).await;
        attach(&cluster, &attachment).await;
    }
    // The limit is refreshed when a pod is rejected, not only periodically.
    let period = json!({ "spec": { "nodeAllocatableUpdatePeriodSeconds": 3600 } });
    let object = format!("/apis/storage.k8s.io/v1/csidrivers/{NAME}");
    ok(cluster.client().patch(&object, Patch::Merge, &period).await);
    driver.can_have(3);
    let message = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[files], \
               unattached volumes=[files], failed to process volumes=[]: context deadline exceeded";
    let mut left = 4;
    let refused = loop {
        let refused = |object: &Value| object["status"]["phase"] == "Failed";
        match cluster
            .wait(&pod_path("first"), "is refused", refused)
            .await
        {
            Ok(object) => break object,
            Err(error) => {
                left -= 1;
                assert!(left > 0, "{error}");
            }
        }
    };
    let status = &refused["status"];
    assert_eq!(status["reason"], "VolumeAttachmentLimitExceeded");
    assert_eq!(status["message"], format!("Pod was rejected: {message}"));
    let reason = "VolumeAttachmentLimitExceeded";
    wait_for_event(&cluster, ("Pod", "first"), reason, message).await;
    steps
        .run(
            "wait driver registered",
            wait_driver_registered(&cluster, 3),
        )
        .await;
    let now = json!({ "gracePeriodSeconds": 0 });
    ok(cluster.client().delete(&pod_path("first"), &now).await);
    ok(cluster.wait_absent(&pod_path("first")).await);
    wait_for_calls(&driver, &["unstage raw", "unstage first-own"]).await;
    drop(runs);
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}
