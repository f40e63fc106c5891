//! The stack of `compose/` on a real Docker engine: it runs a pod, whose trace arrives in the trace viewer;
//! restarts, kills and an upgrade of its containers do not disturb the pod, nor does its end.

use std::collections::BTreeSet;
use std::fs;

use polylet_e2e::steps::Steps;
use polylet_e2e::{EXAMPLE, long, ok};
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, ObservabilityPrograms, guard, http, machine, procs};
use rustix::process::Signal;
use serde_json::Value;

use stack::Stack;

/// The stack and its environment.
#[path = "compose/stack.rs"]
mod stack;

/// `CONTAINER_RUNNING` of the CRI.
const RUNNING: i32 = 1;

/// Containers, their ids and restarts: what must not change.
type Identity = Vec<(String, String, u64)>;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn the_stack_runs_pods_from_containers() {
    if !long() {
        return;
    }
    guard::on_signals();
    let say = |line: &str| eprintln!("{line}");
    let mut steps = Steps::new();
    let programs = async { ok(ObservabilityPrograms::ready(&say).await) };
    let programs = steps
        .require("collector and trace viewer are built", programs)
        .await;
    let mut node = ok(Node::prepare(NodeOptions::default(), &say).await);
    let stack = steps
        .require("images are built", Stack::build(&node, &programs))
        .await;
    steps
        .require("missing runtime is named", missing_runtime(&stack, &node))
        .await;
    stack.show_runtime();
    let started = start_pod(&stack, &mut node);
    let before = steps.require("pod becomes ready", started).await;
    steps
        .run("containers are healthy", containers_are_healthy(&stack))
        .await;
    steps
        .run("trace is in the viewer", trace_is_shown(&stack, &node))
        .await;
    steps
        .run("services have few rights", services_have_few_rights(&node))
        .await;
    for service in SERVICES.into_iter().chain(["supervisor"]) {
        let replaced = replace_process(&stack, &mut node, service, &before);
        steps
            .run(&format!("{service} is restarted and killed"), replaced)
            .await;
    }
    steps
        .run(
            "one service is upgraded",
            upgrade(&stack, &mut node, &before),
        )
        .await;
    steps.require("stack ends", stack_ends(&stack, &node)).await;
    steps
        .require(
            "stack continues",
            stack_continues(&stack, &mut node, &before),
        )
        .await;
    steps
        .run("pod is removed", pod_is_removed(&stack, &node))
        .await;
    ok(stack.compose(&["down"]));
    stack.finish();
    steps.finish();
    ok(node.remove());
}

/// The stack starts without a runtime, and says what it lacks.
async fn missing_runtime(stack: &Stack, node: &Node) {
    ok(stack.compose(&["up", "--detach", "--no-build"]));
    let socket = stack.runtime_socket().display().to_string();
    let expected = format!("no connection to the runtime: {socket}");
    ok(until("the runtime's socket in `polylet status`", || async {
        let status = ok(node.cli(&["status"]).await);
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        match text.contains(&expected) {
            true => Poll::Ready(()),
            false => Poll::Pending(text),
        }
    })
    .await);
}

async fn start_pod(stack: &Stack, node: &mut Node) -> Identity {
    for (name, text) in EXAMPLE {
        stack.put(name, text);
    }
    let pod = ok(node.wait_ready("web").await);
    ok(node.wait_in_step().await);
    pod.identity()
}

/// Docker's health checks succeed, which call `polylet health`.
async fn containers_are_healthy(stack: &Stack) {
    ok(until("every container to be healthy", || async {
        let lines = ok(stack.compose(&["ps", "--format", "json"]));
        let parsed = lines.lines().map(serde_json::from_str::<Value>);
        let containers: Vec<Value> = parsed.map(|line| line.unwrap()).collect();
        let word = |container: &Value, key: &str| container[key].as_str().unwrap_or("").to_owned();
        let bad: Vec<_> = containers
            .iter()
            .map(|one| {
                (
                    word(one, "Service"),
                    word(one, "State"),
                    word(one, "Health"),
                )
            })
            .filter(|(service, state, health)| {
                let is_service = !["collector", "trace-viewer"].contains(&service.as_str());
                state != "running" || is_service && health != "healthy"
            })
            .collect();
        match (containers.len(), bad.is_empty()) {
            (13, true) => Poll::Ready(()),
            (count, _) => Poll::Pending(format!("{count} containers, of which {bad:?}")),
        }
    })
    .await);
}

/// The viewer has the pod's trace with the spans of all services that took part.
async fn trace_is_shown(stack: &Stack, node: &Node) {
    let pod = ok(node.wait_ready("web").await);
    let trace = ok(node.trace(&pod.uid).await).trace_id;
    let path = format!("/api/traces/{trace}");
    ok(until("the trace with spans of eight services", || async {
        let response = match http::get("127.0.0.1", stack.viewer_port(), &path).await {
            Ok(response) => response,
            Err(error) => return Poll::Pending(polylet_harness::error::report(&error)),
        };
        let found: Value = serde_json::from_str(&response.body).unwrap_or_default();
        let traces = found["data"].as_array().map_or(0, Vec::len);
        let processes = found["data"][0]["processes"].as_object();
        let services: BTreeSet<&str> = processes
            .into_iter()
            .flat_map(|processes| processes.values())
            .filter_map(|process| process["serviceName"].as_str())
            .collect();
        let expected = [
            "polylet-pleg",
            "polylet-pod-config",
            "polylet-prober",
            "polylet-status-reporter",
            "polylet-sync-coordinator",
            "polylet-volume-manager",
        ];
        let missing = expected.iter().any(|service| !services.contains(service));
        match traces == 1 && !missing {
            true => Poll::Ready(()),
            false => Poll::Pending(format!("{} {services:?}", response.status)),
        }
    })
    .await);
}

/// Each process has its user, and no capabilities but those of its service.
async fn services_have_few_rights(node: &Node) {
    const SYS_ADMIN: u64 = 1 << 21;
    const READ: u64 = 1 << 2;
    for service in ok(node.services().await) {
        let status = fs::read_to_string(format!("/proc/{}/status", service.pid)).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().split_whitespace().next().unwrap().to_owned()
        };
        let user: u32 = field("Uid:").parse().unwrap();
        let bounds = u64::from_str_radix(&field("CapBnd:"), 16).unwrap();
        let effective = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
        let name = service.name.as_str();
        assert_eq!(effective, bounds, "{name}");
        assert_eq!(field("NoNewPrivs:"), "1", "{name}");
        assert_eq!(bounds & SYS_ADMIN != 0, name == "volume-manager");
        match name {
            "device-manager" | "volume-manager" | "sync-coordinator" | "eviction"
            | "supervisor" => {
                assert_eq!(user, 0, "{name}");
            }
            "prober" => assert!(user != 0 && bounds == 0, "{name} {user} {bounds:x}"),
            _ => assert!(user != 0 && bounds == READ, "{name} {user} {bounds:x}"),
        }
    }
}

/// A container is restarted, and its process killed: another one continues, and the pod is the same.
async fn replace_process(stack: &Stack, node: &mut Node, service: &str, before: &Identity) {
    let first = pid(node, service).await;
    ok(stack.compose(&["restart", service]));
    let second = wait_for_process(node, service, first).await;
    machine::signal(second, Signal::KILL);
    wait_for_process(node, service, second).await;
    ok(node.wait_in_step().await);
    assert_eq!(&ok(node.wait_ready("web").await).identity(), before);
}

async fn pid(node: &Node, service: &str) -> u32 {
    let services = node.services().await.unwrap_or_default();
    let found = services.into_iter().find(|one| one.name == service);
    found.map_or(0, |found| found.pid)
}

async fn wait_for_process(node: &Node, service: &str, before: u32) -> u32 {
    ok(until(format!("another process of {service}"), || async {
        match pid(node, service).await {
            0 => Poll::Pending("none".to_owned()),
            pid if pid == before => Poll::Pending("the same".to_owned()),
            pid => Poll::Ready(pid),
        }
    })
    .await)
}

/// Another image for one service replaces its container alone; `polylet upgrade` names that way.
async fn upgrade(stack: &Stack, node: &mut Node, before: &Identity) {
    let program = node.program("polylet-pleg").display().to_string();
    let refused = ok(node.cli(&["upgrade", "pleg", "--to", &program]).await);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(error.contains("docker compose up -d --no-deps"), "{error}");
    let containers = stack.container_ids();
    let process = pid(node, "pleg").await;
    stack.upgrade("pleg", "POLYLET_PLEG_IMAGE");
    wait_for_process(node, "pleg", process).await;
    ok(node.wait_in_step().await);
    for (service, id) in stack.container_ids() {
        let is_same = containers.get(&service) == Some(&id);
        assert_eq!(is_same, service != "pleg", "{service}");
    }
    assert_eq!(&ok(node.wait_ready("web").await).identity(), before);
}

/// Nothing but the pod remains of a stack that has ended.
async fn stack_ends(stack: &Stack, node: &Node) {
    let before = running_containers(node).await;
    assert!(!before.is_empty());
    ok(stack.compose(&["down"]));
    assert!(stack.container_ids().is_empty());
    let left: Vec<_> = procs::list(node.scratch())
        .into_iter()
        .filter(|process| process.name().starts_with("polylet"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(running_containers(node).await, before);
}

/// The running containers in the runtime.
async fn running_containers(node: &Node) -> BTreeSet<String> {
    let all = ok(node.containerd.cri().containers().await).into_iter();
    all.filter(|container| container.state == RUNNING)
        .map(|container| container.id)
        .collect()
}

async fn stack_continues(stack: &Stack, node: &mut Node, before: &Identity) {
    ok(stack.compose(&["up", "--detach", "--no-build"]));
    ok(node.wait_in_step().await);
    assert_eq!(&ok(node.wait_ready("web").await).identity(), before);
}

async fn pod_is_removed(stack: &Stack, node: &Node) {
    for (name, _) in EXAMPLE {
        stack.take(name);
    }
    ok(node.wait_gone("web").await);
    let mounted = || async {
        match node.mounts() {
            mounts if mounts.is_empty() => Poll::Ready(()),
            mounts => Poll::Pending(format!("{mounts:?}")),
        }
    };
    ok(until("volumes to be unmounted on the host", mounted).await);
}
