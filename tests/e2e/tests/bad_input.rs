//! Invalid manifests, configurations and an unavailable runtime: each is reported precisely, and
//! nothing else is affected.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, example, node, node_with, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, PodView};
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn invalid_manifests_do_not_affect_other_pods() {
    let mut steps = Steps::new();
    let mut node = node().await;
    let good = example(&node).await;
    let pids = pids(&node).await;

    let files = bad_manifests();
    for (name, text, _) in &files {
        ok(node.put(name, text));
    }
    special_files(&node);
    for (name, _, fragments) in &files {
        wait_for_manifest_error(&node, name, fragments).await;
    }
    for name in ["fifo.yaml", "loop.yaml"] {
        wait_for_manifest_error(&node, name, &[]).await;
    }

    // All files have been read by now.
    ok(node.put("late.json", &pod("late", RUNS, &json!({}))));
    ok(node.wait_ready("late").await);
    steps.run("unchanged", unchanged(&node, &good, &pids)).await;

    // A file that becomes invalid does not remove its pod: it may be half-written.
    let running = ok(node.wait_ready("late").await);
    fs::write(
        node.dirs().manifests.join("late.json"),
        "{\"apiVersion\": \"v1\", \"kind\":",
    )
    .unwrap();
    steps
        .run(
            "wait for manifest error",
            wait_for_manifest_error(&node, "late.json", &[]),
        )
        .await;
    let still = ok(node.wait_ready("late").await);
    assert_eq!(still.identity(), running.identity());
    steps.run("unchanged", unchanged(&node, &good, &pids)).await;
    ok(node.wait_in_step().await);
    steps.finish();
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn pods_report_why_they_cannot_run() {
    let mut steps = Steps::new();
    let node = node().await;
    let good = example(&node).await;
    let pids = pids(&node).await;
    for (name, text, _, _) in impossible_pods() {
        ok(node.put(&format!("{name}.json"), &text));
    }
    for (name, _, reasons, fragments) in impossible_pods() {
        let reported = |pod: &PodView| {
            let line = pod.line();
            let all = fragments.iter().all(|fragment| line.contains(fragment));
            all && reasons.iter().any(|reason| line.contains(reason))
        };
        let what = format!("to report one of {reasons:?} with {fragments:?}");
        ok(node.wait_pod(name, &what, reported).await);
    }
    steps.run("unchanged", unchanged(&node, &good, &pids)).await;
    for (name, ..) in impossible_pods() {
        ok(node.take(&format!("{name}.json")));
    }
    for (name, ..) in impossible_pods() {
        ok(node.wait_gone(name).await);
    }
    steps.run("unchanged", unchanged(&node, &good, &pids)).await;
    steps.finish();
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn unavailable_runtime_is_waited_for() {
    let mut node = ok(Node::prepare(NodeOptions::default(), &|_| {}).await);
    node.containerd.down(false);
    ok(node.spawn());
    for (name, text) in polylet_e2e::EXAMPLE {
        ok(node.put(name, text));
    }
    let poll = || async {
        let log = fs::read_to_string(node.log()).unwrap_or_default();
        if log.contains("containerd.sock") {
            return Poll::Ready(());
        }
        Poll::Pending("the log does not name the runtime's socket".to_owned())
    };
    ok(until("an error about the absent runtime", poll).await);
    ok(node.containerd.up().await);
    let before = ok(node.wait_ready("web").await);

    node.containerd.down(false);
    // Longer than every call's deadline, which is what this step is about.
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
async fn invalid_configuration_is_rejected() {
    let mut invalid = vec![
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
        let fragments = ["kubelet is configured to not run on a host", "cgroup v1"];
        invalid.push((json!({ "failCgroupV1": true }), fragments));
    }
    for (kubelet, fragments) in invalid {
        let options = NodeOptions {
            kubelet: kubelet.clone(),
            ..NodeOptions::default()
        };
        let mut node = ok(Node::prepare(options, &|_| {}).await);
        let refused = node.up().await;
        let refused = refused.expect_err(&kubelet.to_string()).to_string();
        for fragment in fragments {
            assert!(refused.contains(fragment), "no {fragment} in: {refused}");
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

/// File, content, and parts of the expected message.
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

/// Name, manifest, possible reasons, and parts of the expected message.
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

/// A FIFO that would block a reader, a symlink loop, and an unreadable file.
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

/// Waits for a manifest error that names the file and contains the texts.
async fn wait_for_manifest_error(node: &Node, name: &str, fragments: &[&str]) {
    let poll = || async {
        let problems = match node.problems().await {
            Ok(problems) => problems,
            Err(error) => return Poll::Pending(polylet_harness::error::report(&error)),
        };
        let lines: Vec<String> = problems
            .iter()
            .filter(|problem| problem.origin.contains(name))
            .map(|problem| format!("{} {}: {}", problem.origin, problem.field, problem.message))
            .collect();
        if lines
            .iter()
            .any(|line| fragments.iter().all(|fragment| line.contains(fragment)))
        {
            return Poll::Ready(());
        }
        Poll::Pending(format!("{lines:?} of {} refusals", problems.len()))
    };
    ok(until(format!("a refusal of {name} with {fragments:?}"), poll).await);
}

async fn pids(node: &Node) -> Vec<(String, u32)> {
    let services = ok(node.services().await);
    services
        .into_iter()
        .map(|service| (service.name, service.pid))
        .collect()
}

/// The valid pod is unchanged, and no process has died.
async fn unchanged(node: &Node, good: &PodView, before: &[(String, u32)]) {
    let now = ok(node.wait_ready("web").await);
    assert_eq!(now.identity(), good.identity());
    assert_eq!(pids(node).await, before);
}
