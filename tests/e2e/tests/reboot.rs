//! Power loss: state in memory is lost, state on disk is kept, and static pods run again.

use std::fs;

use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::PodView;
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn static_pods_restart_after_power_loss() {
    let mut node = node().await;
    let counts = "echo begun >> /kept/begun;";
    let volumes = json!({
        "volumes": [{ "name": "kept", "emptyDir": {} }],
        "container": { "volumeMounts": [{ "name": "kept", "mountPath": "/kept" }] },
    });
    ok(node.put(
        "runs.json",
        &pod("runs", &format!("{counts}{RUNS}"), &volumes),
    ));
    let once = json!({ "restartPolicy": "Never" });
    ok(node.put("done.json", &pod("done", "exit 0", &once)));
    let before = ok(node.wait_ready("runs").await);
    let succeeded = |pod: &PodView| pod.phase() == "Succeeded";
    let done = ok(node.wait_pod("done", "to end", succeeded).await);

    ok(node.lose_power().await);
    ok(node.up().await);
    let restarted = |pod: &PodView| pod.is_ready() && pod.identity() != before.identity();
    let after = ok(node.wait_pod("runs", "to run again", restarted).await);
    assert_eq!(after.uid, before.uid);
    // The pod and its volume are the same.
    let volume = node.dirs().root.join("pods").join(&after.uid);
    let started = volume.join("volumes/kubernetes.io~empty-dir/kept/begun");
    assert_eq!(ok(fs::read_to_string(started)), "begun\nbegun\n");
    let unchanged = ok(node.wait_pod("done", "to have ended", succeeded).await);
    assert_eq!(
        unchanged.identity(),
        done.identity(),
        "a completed pod is not run again"
    );

    for name in ["runs", "done"] {
        ok(node.take(&format!("{name}.json")));
    }
    for name in ["runs", "done"] {
        ok(node.wait_gone(name).await);
    }
    ok(node.remove());
}
