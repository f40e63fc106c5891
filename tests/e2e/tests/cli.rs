//! The command line: what it says for people and for programs, and what it refuses.

use std::fs;
use std::process::Output;

use polylet_e2e::{example, node, ok};
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Look, until};
use polylet_harness::{Node, machine, procs};
use serde_json::Value;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn the_command_line() {
    let mut node = node().await;
    example(&node).await;
    ok(node.wait_in_step().await);
    status(&node).await;
    pods(&node).await;
    logs(&node).await;
    traces(&node).await;
    configurations(&node).await;
    a_second_run_is_refused(&node).await;
    programs_say_what_they_are(&node);
    containers_outlive_the_stack(&mut node).await;
    ok(node.remove());
}

async fn status(node: &Node) {
    let text = good(node, &["status"]).await;
    for service in SERVICES {
        assert!(text.contains(service), "no {service} in:\n{text}");
    }
    let json = good_json(node, &["status", "-o", "json"]).await;
    let rows = list(&json, "services");
    assert!(rows.len() >= SERVICES.len(), "{json}");
}

async fn pods(node: &Node) {
    let text = good(node, &["pods"]).await;
    assert!(
        text.contains("web-node") && text.contains("Running"),
        "{text}"
    );
    let json = good_json(node, &["pods", "-o", "json"]).await;
    let pods = list(&json, "pods");
    let pod = pods.iter().find(|pod| pod["name"] == "web-node").unwrap();
    assert_eq!(pod["pod"]["status"]["phase"], "Running", "{json}");
}

async fn logs(node: &Node) {
    // The readiness probe asks each second, and the server tells each request.
    let look = || async {
        // What the container wrote to its standard error goes to ours.
        let text = both(&ran(node, &["logs", "web-node", "-c", "server"]).await);
        if text.contains("response:200") {
            Look::Done(())
        } else {
            Look::NotYet(text)
        }
    };
    ok(until("a request in the server's log", look).await);
    let bad = ran(node, &["logs", "web-node", "-c", "nobody"]).await;
    assert!(!bad.status.success());
    assert!(both(&bad).contains("nobody"), "{}", both(&bad));
    let bad = ran(node, &["logs", "no-such-pod"]).await;
    assert!(!bad.status.success());
    assert!(both(&bad).contains("no-such-pod"), "{}", both(&bad));
}

async fn traces(node: &Node) {
    let text = good(node, &["trace", "web-node"]).await;
    assert!(text.contains("cri."), "{text}");
    let none = ran(node, &["trace", "no-such-pod"]).await;
    assert!(both(&none).contains("trace not found"), "{}", both(&none));
}

async fn configurations(node: &Node) {
    let config = node.config().display().to_string();
    let program = node.program("polylet");
    ok(machine::run(&program, &["check-config", &config]));
    let bad = node.scratch().join("bad.yaml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &bad,
        text.replace("staticPodPath:", "noSuchField: 1\nstaticPodPath:"),
    )
    .unwrap();
    let refused = machine::run(&program, &["check-config", &bad.display().to_string()]);
    let refused = refused.expect_err("an unknown field passed").to_string();
    for word in ["bad.yaml", "noSuchField"] {
        assert!(refused.contains(word), "no {word} in: {refused}");
    }
}

async fn a_second_run_is_refused(node: &Node) {
    let second = ran(node, &["run"]).await;
    assert!(!second.status.success());
    let text = both(&second);
    assert!(
        text.contains(&node.dirs().run.display().to_string()),
        "{text}"
    );
    ok(node.wait_ready("web").await);
}

fn programs_say_what_they_are(node: &Node) {
    for service in SERVICES {
        let program = node.program(&format!("polylet-{service}"));
        let version = ok(machine::run(&program, &["--version"]));
        assert!(
            version.contains(env!("CARGO_PKG_VERSION")),
            "{service}: {version}"
        );
        let manifest = ok(machine::run(&program, &["--manifest"]));
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        assert_eq!(manifest["service"], service);
        for field in ["serves", "calls", "keeps"] {
            assert!(
                manifest[field].is_array(),
                "{service} has no {field}: {manifest}"
            );
        }
    }
}

async fn containers_outlive_the_stack(node: &mut Node) {
    let before = ok(node.containerd.cri().containers().await);
    let services = ok(node.services().await);
    let status = node.down();
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    for service in services {
        assert!(!procs::alive(service.pid), "{} still runs", service.name);
    }
    let after = ok(node.containerd.cri().containers().await);
    let states = |all: &[polylet_wire::runtime::v1::Container]| {
        let mut states: Vec<_> = all.iter().map(|one| (one.id.clone(), one.state)).collect();
        states.sort();
        states
    };
    assert_eq!(states(&before), states(&after));
    let away = ran(node, &["pods"]).await;
    assert!(!away.status.success());
    ok(node.up().await);
    ok(node.wait_ready("web").await);
}

async fn ran(node: &Node, words: &[&str]) -> Output {
    ok(node.cli(words).await)
}

async fn good(node: &Node, words: &[&str]) -> String {
    let output = ran(node, words).await;
    assert!(
        output.status.success(),
        "polylet {}: {}",
        words.join(" "),
        both(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

async fn good_json(node: &Node, words: &[&str]) -> Value {
    serde_json::from_str(&good(node, words).await).unwrap()
}

fn list(json: &Value, field: &str) -> Vec<Value> {
    json[field].as_array().cloned().unwrap_or_default()
}

fn both(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}
