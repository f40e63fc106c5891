//! RuntimeClasses in the manifest directory select the runtime handler; missing ones are waited for.

use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::PodView;
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn runtime_class_selects_the_handler() {
    let node = node().await;
    let class = |handler: &str| {
        json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": { "name": "plain" }, "handler": handler })
    };
    let with_class = json!({ "runtimeClassName": "plain" });
    ok(node.put("early.json", &pod("early", RUNS, &with_class)));
    let reported = |text: &'static str| move |pod: &PodView| pod.line().contains(text);
    let missing = "runtimeclass.node.k8s.io \"plain\" not found";
    ok(node.wait_pod("early", missing, reported(missing)).await);

    ok(node.put("class.json", &class("runc").to_string()));
    ok(node.wait_ready("early").await);

    // The runtime has no such handler; running pods are not affected.
    let before = ok(node.wait_ready("early").await);
    ok(node.put("class.json", &class("no-such-handler").to_string()));
    ok(node.put("late.json", &pod("late", RUNS, &with_class)));
    ok(node
        .wait_pod("late", "to name the handler", reported("no-such-handler"))
        .await);
    let after = ok(node.wait_ready("early").await);
    assert_eq!(after.identity(), before.identity());
    ok(node.remove());
}
