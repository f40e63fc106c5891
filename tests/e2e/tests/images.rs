//! Images from a real registry.

use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::Registry;
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn smoke() {
    let node = node().await;
    let open = ok(Registry::start(&node.containerd, "open.test", false).await);
    let locked = ok(Registry::start(&node.containerd, "locked.test", true).await);
    let config = json!({ "Env": ["PATH=/bin"] });
    let digest = ok(open.push(&node.containerd, "team/app:1", &config));
    eprintln!("{digest}");
    ok(locked.push(&node.containerd, "team/app:1", &config));
    ok(node.put(
        "a.json",
        &pod(
            "a",
            RUNS,
            &json!({"container": {"image": open.image("team/app:1")}}),
        ),
    ));
    ok(node.put(
        "b.json",
        &pod(
            "b",
            RUNS,
            &json!({"container": {"image": locked.image("team/app:1")}}),
        ),
    ));
    let a = ok(node.wait_ready("a").await);
    eprintln!("{}", a.line());
    let b = ok(node
        .wait_pod("b", "to fail", |p| p.line().contains("Pull"))
        .await);
    eprintln!("{}", b.line());
    eprintln!("{}", open.pulls("team/app"));
    eprintln!("{}", std::fs::read_to_string(open.log()).unwrap());
    eprintln!("{}", std::fs::read_to_string(locked.log()).unwrap());
    drop((open, locked));
    ok(node.remove());
}
