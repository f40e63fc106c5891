//! Static pods keep their resources.

use super::*;

/// As upstream, static pods are not resized: with a changed manifest of the same uid the pod keeps its
/// resources, also after a container restart, and its status says why.
#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn static_pods_are_not_resized() {
    let mut node = node_with(NodeOptions::default()).await;
    let manifest = |cpu: &str| {
        let limits = json!({ "cpu": cpu, "memory": "32Mi" });
        let fields = json!({ "container": { "resources": { "limits": limits } } });
        let mut pod: Value = serde_json::from_str(&pod("fixed", RUNS, &fields)).unwrap();
        pod["metadata"]["uid"] = json!("0f1e2d3c-0000-4000-8000-00000000000a");
        pod.to_string()
    };
    ok(node.put("fixed.json", &manifest("100m")));
    let before = ok(node.wait_ready("fixed").await);
    let container_path = |pod: &PodView| {
        let id = pod.container("main").unwrap().id;
        let id = id.trim_start_matches("containerd://");
        format!("pod{}/{id}", pod.uid)
    };
    assert_eq!(quota(&node, &container_path(&before)), Some(10_000));
    assert_eq!(before.condition("PodResizePending"), None);

    let pending = |pod: &PodView| pod.condition("PodResizePending").is_some();
    let assert_allocated = |pod: &PodView| {
        let container = &pod.status["containerStatuses"][0];
        assert_eq!(container["resources"]["limits"]["cpu"], "100m");
        assert_eq!(container["allocatedResources"]["cpu"], "100m");
    };
    let mut steps = Steps::new();
    let condition = steps
        .require("the resize is reported as infeasible", async {
            ok(node.put("fixed.json", &manifest("200m")));
            // Manifest and condition come from two services.
            let requested = |pod: &PodView| {
                pod.manifest["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "200m"
            };
            let infeasible = ok(node
                .wait_pod("fixed", "to report the pending resize", |pod| {
                    pending(pod) && requested(pod)
                })
                .await);
            let condition = infeasible.condition("PodResizePending").unwrap().clone();
            assert_eq!(condition["status"], "True");
            assert_eq!(condition["reason"], "Infeasible");
            assert_eq!(
                condition["message"],
                "In-place resize of static-pods is not supported"
            );
            assert_allocated(&infeasible);
            condition
        })
        .await;
    steps
        .run("a service restart changes nothing", async {
            ok(node.kill("sync-coordinator").await);
            ok(node.wait_in_step().await);
            let unchanged = ok(node
                .wait_pod("fixed", "to still report the pending resize", pending)
                .await);
            assert_eq!(unchanged.identity(), before.identity());
            assert_eq!(unchanged.condition("PodResizePending"), Some(&condition));
            assert_eq!(quota(&node, &container_path(&unchanged)), Some(10_000));
        })
        .await;
    let restarted = steps
        .require("a container restart changes nothing", async {
            end_first_process(&node, &container_path(&before));
            let restarted =
                |pod: &PodView| pod.is_ready() && pod.container("main").unwrap().restarts == 1;
            let restarted = ok(node.wait_pod("fixed", "to be restarted", restarted).await);
            assert_eq!(quota(&node, &container_path(&restarted)), Some(10_000));
            assert_eq!(
                quota(&node, &format!("pod{}", restarted.uid)),
                Some(10_000),
                "the pod's own limit"
            );
            assert_allocated(&restarted);
            restarted
        })
        .await;
    steps
        .run("the original manifest clears the condition", async {
            ok(node.put("fixed.json", &manifest("100m")));
            let reverted = |pod: &PodView| !pending(pod);
            let reverted = ok(node
                .wait_pod("fixed", "to have no pending resize", reverted)
                .await);
            assert_eq!(reverted.identity(), restarted.identity());
        })
        .await;
    steps
        .run("the pod is removed", async {
            ok(node.take("fixed.json"));
            ok(node.wait_gone("fixed").await);
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// Kills the container's first process.
fn end_first_process(node: &Node, path: &str) {
    let procs = file(node, path, ("pids", "cgroup.procs", "cgroup.procs"));
    let procs = fs::read_to_string(procs).unwrap();
    let first = procs.lines().next().unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-9", first])
        .status();
    assert!(killed.is_ok_and(|status| status.success()));
}
