//! Bad manifests and a bad runtime: each gets a message that says what and where, and nothing else
//! suffers.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use polylet_e2e::{RUNS, example, node, node_with, ok, pod};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Node, NodeOptions, PodView};
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn bad_manifests_hurt_nobody_else() {
    let mut node = node().await;
    let good = example(&node).await;
    let pids = pids(&node).await;

    let files = bad_manifests();
    for (name, text, _) in &files {
        ok(node.put(name, text));
    }
    special_files(&node);
    for (name, _, words) in &files {
        told(&node, name, words).await;
    }
    for name in ["fifo.yaml", "loop.yaml"] {
        told(&node, name, &[]).await;
    }

    // What was not read at all cannot have held up what came after it.
    ok(node.put("late.json", &pod("late", RUNS, &json!({}))));
    ok(node.wait_ready("late").await);
    unchanged(&node, &good, &pids).await;

    // A file that breaks does not take its pod away: a half-written file looks the same.
    let kept = ok(node.wait_ready("late").await);
    fs::write(
        node.dirs().manifests.join("late.json"),
        "{\"apiVersion\": \"v1\", \"kind\":",
    )
    .unwrap();
    told(&node, "late.json", &[]).await;
    let still = ok(node.wait_ready("late").await);
    assert_eq!(still.identity(), kept.identity());
    unchanged(&node, &good, &pids).await;
    ok(node.wait_in_step().await);
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn pods_that_cannot_run_say_why() {
    let node = node().await;
    let good = example(&node).await;
    let pids = pids(&node).await;
    for (name, text, _, _) in impossible_pods() {
        ok(node.put(&format!("{name}.json"), &text));
    }
    for (name, _, reasons, words) in impossible_pods() {
        let says = |pod: &PodView| {
            let line = pod.line();
            let all = words.iter().all(|word| line.contains(word));
            all && reasons.iter().any(|reason| line.contains(reason))
        };
        let what = format!("to say one of {reasons:?} and {words:?}");
        ok(node.wait_pod(name, &what, says).await);
    }
    unchanged(&node, &good, &pids).await;
    for (name, ..) in impossible_pods() {
        ok(node.take(&format!("{name}.json")));
    }
    for (name, ..) in impossible_pods() {
        ok(node.wait_gone(name).await);
    }
    unchanged(&node, &good, &pids).await;
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn a_runtime_that_is_away_is_waited_for() {
    let mut node = ok(Node::prepare(NodeOptions::default(), &|_| {}).await);
    node.containerd.down(false);
    ok(node.spawn());
    for (name, text) in polylet_e2e::EXAMPLE {
        ok(node.put(name, text));
    }
    let look = || async {
        let log = fs::read_to_string(node.log()).unwrap_or_default();
        if log.contains("containerd.sock") {
            return Look::Done(());
        }
        Look::NotYet("the log does not name the runtime's socket".to_owned())
    };
    ok(until("a word about the absent runtime", look).await);
    ok(node.containerd.up().await);
    let before = ok(node.wait_ready("web").await);

    node.containerd.down(false);
    // The time is the point: half a minute is longer than every call's deadline.
    tokio::time::sleep(Duration::from_secs(30)).await;
    ok(node.containerd.up().await);
    let fresh = |pod: &PodView| pod.is_ready() && pod.stale.is_empty();
    let after = ok(node
        .wait_pod("web", "to be Ready with nothing stale", fresh)
        .await);
    assert_eq!(after.identity(), before.identity());
    ok(node.put("late.json", &pod("late", RUNS, &json!({}))));
    ok(node.wait_ready("late").await);
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn a_wrong_configuration_is_refused() {
    let mut wrong = vec![
        (json!({ "maxPods": "many" }), ["config.yaml", "maxPods"]),
        (
            json!({ "featureGates": { "ImageVolume": false, "CSIMigration": true } }),
            [
                "unrecognized feature gate: CSIMigration",
                "cannot set feature gate ImageVolume to false, feature is locked to true",
            ],
        ),
    ];
    if !Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        let words = ["kubelet is configured to not run on a host", "cgroup v1"];
        wrong.push((json!({ "failCgroupV1": true }), words));
    }
    for (kubelet, words) in wrong {
        let options = NodeOptions {
            kubelet: kubelet.clone(),
            ..NodeOptions::default()
        };
        let mut node = ok(Node::prepare(options, &|_| {}).await);
        let refused = node.up().await;
        let refused = refused.expect_err(&kubelet.to_string()).to_string();
        for word in words {
            assert!(refused.contains(word), "no {word} in: {refused}");
        }
    }
    let options = NodeOptions {
        kubelet: json!({ "maxPosd": 10 }),
        ..NodeOptions::default()
    };
    let node = node_with(options).await;
    let log = fs::read_to_string(node.log()).unwrap();
    assert!(
        log.contains("maxPosd"),
        "no warning of the unknown field in:\n{log}"
    );
    ok(node.remove());
}

/// File, content, and words that the message about it has to have.
fn bad_manifests() -> Vec<(&'static str, String, &'static [&'static str])> {
    let spec = |spec: serde_json::Value| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "bad" }, "spec": spec })
            .to_string()
    };
    let container = json!({ "name": "main", "image": "polylet-test:1" });
    let mount = json!([{ "name": "nowhere", "mountPath": "/x" }]);
    let mounted = json!({ "name": "main", "image": "polylet-test:1", "volumeMounts": mount });
    let unnamed = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": { "containers": [container] } });
    let slashed = unnamed
        .to_string()
        .replace("\"metadata\":{}", "\"metadata\":{\"name\":\"a/b\"}");
    vec![
        ("notyaml.yaml", "{ [ : not yaml".to_owned(), &[]),
        (
            "kind.yaml",
            "apiVersion: v1\nkind: Service\nmetadata: { name: x }\n".to_owned(),
            &["Service"],
        ),
        (
            "nospec.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: { name: x }\n".to_owned(),
            &["containers"],
        ),
        ("unnamed.json", unnamed.to_string(), &["name"]),
        ("slash.json", slashed, &["a/b"]),
        (
            "twice.json",
            spec(json!({ "containers": [container, container] })),
            &["main"],
        ),
        (
            "volume.json",
            spec(json!({ "containers": [mounted] })),
            &["nowhere"],
        ),
        (
            "grace.json",
            spec(json!({ "containers": [container], "terminationGracePeriodSeconds": -5 })),
            &["terminationGracePeriodSeconds"],
        ),
        ("junk.yaml", "junk ".repeat(2 << 20), &[]),
        ("deep.json", "[".repeat(100_000), &[]),
    ]
}

/// Name, manifest, possible reasons, and words of the message.
fn impossible_pods() -> Vec<(
    &'static str,
    String,
    &'static [&'static str],
    &'static [&'static str],
)> {
    let image = |image: &str| json!({ "container": { "image": image } });
    let missing = json!([{ "name": "v", "configMap": { "name": "no-such-map" } }]);
    let mount = json!([{ "name": "v", "mountPath": "/v" }]);
    let command = json!({ "container": { "command": ["/no/such/program"] } });
    vec![
        (
            "noimage",
            pod("noimage", RUNS, &image("localhost:1/no/such:1")),
            &["ErrImagePull", "ImagePullBackOff"],
            &["localhost:1/no/such:1"],
        ),
        (
            "badimage",
            pod("badimage", RUNS, &image("Not An Image")),
            &["InvalidImageName"],
            &["Not An Image"],
        ),
        (
            "nocommand",
            pod("nocommand", RUNS, &command),
            &["RunContainerError", "StartError", "CrashLoopBackOff"],
            &[],
        ),
        (
            "exits",
            pod("exits", "exit 3", &json!({})),
            &["CrashLoopBackOff"],
            &[],
        ),
        (
            "nomap",
            pod(
                "nomap",
                RUNS,
                &json!({ "volumes": missing, "container": { "volumeMounts": mount } }),
            ),
            &["ContainerCreating"],
            &["no-such-map"],
        ),
    ]
}

/// A FIFO that would hang a reader, a loop of links, and a file nobody may read.
fn special_files(node: &Node) {
    let dir = &node.dirs().manifests;
    let made = Command::new("mkfifo")
        .arg(dir.join("fifo.yaml"))
        .status()
        .unwrap();
    assert!(made.success());
    symlink("loop.yaml", dir.join("loop.yaml")).unwrap();
    let closed = dir.join("closed.yaml");
    fs::write(&closed, "").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
}

/// Waits until a refusal names the file and has the words.
async fn told(node: &Node, name: &str, words: &[&str]) {
    let look = || async {
        let problems = match node.problems().await {
            Ok(problems) => problems,
            Err(error) => return Look::NotYet(polylet_harness::error::report(&error)),
        };
        let lines: Vec<String> = problems
            .iter()
            .filter(|problem| problem.origin.contains(name))
            .map(|problem| format!("{} {}: {}", problem.origin, problem.field, problem.message))
            .collect();
        if lines
            .iter()
            .any(|line| words.iter().all(|word| line.contains(word)))
        {
            return Look::Done(());
        }
        Look::NotYet(format!("{lines:?} of {} refusals", problems.len()))
    };
    ok(until(format!("a refusal of {name} with {words:?}"), look).await);
}

async fn pids(node: &Node) -> Vec<(String, u32)> {
    let services = ok(node.services().await);
    services
        .into_iter()
        .map(|service| (service.name, service.pid))
        .collect()
}

/// The good pod is as it was, and no process died of it.
async fn unchanged(node: &Node, good: &PodView, before: &[(String, u32)]) {
    let now = ok(node.wait_ready("web").await);
    assert_eq!(now.identity(), good.identity());
    assert_eq!(pids(node).await, before);
}
