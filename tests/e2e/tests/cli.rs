//! The command line: text and JSON output, and errors.

use std::fs;
use std::process::Output;

use polylet_e2e::steps::Steps;
use polylet_e2e::{example, node, ok};
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, machine, procs};
use serde_json::Value;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn command_line() {
    let mut steps = Steps::new();
    let mut node = node().await;
    example(&node).await;
    ok(node.wait_in_step().await);
    steps.run("status", status(&node)).await;
    steps.run("pods", pods(&node)).await;
    steps.run("logs", logs(&node)).await;
    steps.run("traces", traces(&node)).await;
    steps.run("configurations", configurations(&node)).await;
    steps
        .run(
            "second instance is rejected",
            second_instance_is_rejected(&node),
        )
        .await;
    programs_print_their_descriptors(&node);
    steps
        .run(
            "containers outlive the stack",
            containers_outlive_the_stack(&mut node),
        )
        .await;
    steps.finish();
    ok(node.remove());
}

async fn status(node: &Node) {
    let text = expect_success(node, &["status"]).await;
    for service in SERVICES {
        assert!(text.contains(service), "no {service} in:\n{text}");
    }
    let json = expect_json(node, &["status", "-o", "json"]).await;
    let rows = list(&json, "services");
    assert!(rows.len() >= SERVICES.len(), "{json}");
}

async fn pods(node: &Node) {
    let text = expect_success(node, &["pods"]).await;
    assert!(
        text.contains("web-node") && text.contains("Running"),
        "{text}"
    );
    let json = expect_json(node, &["pods", "-o", "json"]).await;
    let pods = list(&json, "pods");
    let pod = pods.iter().find(|pod| pod["name"] == "web-node").unwrap();
    assert_eq!(pod["pod"]["status"]["phase"], "Running", "{json}");
}

async fn logs(node: &Node) {
    // The readiness probe runs every second, and the server logs each request.
    let poll = || async {
        // The container's standard error goes to the command's standard error.
        let text = both(&run_cli(node, &["logs", "web-node", "-c", "server"]).await);
        if text.contains("response:200") {
            Poll::Ready(())
        } else {
            Poll::Pending(text)
        }
    };
    ok(until("a request in the server's log", poll).await);
    let bad = run_cli(node, &["logs", "web-node", "-c", "nobody"]).await;
    assert!(!bad.status.success());
    assert!(both(&bad).contains("nobody"), "{}", both(&bad));
    let bad = run_cli(node, &["logs", "no-such-pod"]).await;
    assert!(!bad.status.success());
    assert!(both(&bad).contains("no-such-pod"), "{}", both(&bad));
}

async fn traces(node: &Node) {
    // The spans of each service come within a second after their ends.
    let poll = || async {
        let text = expect_success(node, &["trace", "web-node"]).await;
        match text.contains("cri.") {
            true => Poll::Ready(()),
            false => Poll::Pending(text),
        }
    };
    ok(until("the runtime's calls in the trace", poll).await);
    let none = run_cli(node, &["trace", "no-such-pod"]).await;
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
    for fragment in ["bad.yaml", "noSuchField"] {
        assert!(refused.contains(fragment), "no {fragment} in: {refused}");
    }
}

async fn second_instance_is_rejected(node: &Node) {
    let second = run_cli(node, &["run"]).await;
    assert!(!second.status.success());
    let text = both(&second);
    assert!(
        text.contains(&node.dirs().run.display().to_string()),
        "{text}"
    );
    ok(node.wait_ready("web").await);
}

fn programs_print_their_descriptors(node: &Node) {
    for service in SERVICES {
        let program = node.program(&format!("polylet-{service}"));
        let version = ok(machine::run(&program, &["--version"]));
        assert!(
            version.contains(env!("CARGO_PKG_VERSION")),
            "{service}: {version}"
        );
        let descriptor = ok(machine::run(&program, &["--descriptor"]));
        let descriptor: Value = serde_json::from_str(&descriptor).unwrap();
        assert_eq!(descriptor["service"], service);
        for field in ["serves", "calls", "state_files"] {
            assert!(
                descriptor[field].is_array(),
                "{service} has no {field}: {descriptor}"
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
    let stopped = run_cli(node, &["pods"]).await;
    assert!(!stopped.status.success());
    ok(node.up().await);
    ok(node.wait_ready("web").await);
}

async fn run_cli(node: &Node, args: &[&str]) -> Output {
    ok(node.cli(args).await)
}

async fn expect_success(node: &Node, args: &[&str]) -> String {
    let output = run_cli(node, args).await;
    assert!(
        output.status.success(),
        "polylet {}: {}",
        args.join(" "),
        both(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

async fn expect_json(node: &Node, args: &[&str]) -> Value {
    serde_json::from_str(&expect_success(node, args).await).unwrap()
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
