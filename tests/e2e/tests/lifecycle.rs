//! Container lifecycle on a real runtime: hooks, grace periods and termination order.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, PodView};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn lifecycle_hooks() {
    let mut steps = Steps::new();
    let mut node = node().await;
    let out = Out::new(&node);
    let server = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = server.local_addr().unwrap().port();
    for (name, text) in hooked(&out, port) {
        ok(node.put(&format!("{name}.json"), &text));
    }
    for name in ["order", "asks", "slow", "beside", "orphan", "stubborn"] {
        ok(node.wait_ready(name).await);
    }
    assert_eq!(out.lines("order"), ["hook of first", "second"]);
    steps
        .run("failed hook is reported", failed_hook_is_reported(&node))
        .await;

    steps
        .run(
            "grace period can be shortened",
            grace_period_can_be_shortened(&node, &out),
        )
        .await;

    // The manifest is gone when the node starts again.
    node.down();
    ok(node.take("orphan.json"));
    ok(node.up().await);
    ok(node.wait_gone("orphan").await);
    assert_eq!(out.lines("orphan"), ["hook", "term"]);

    for name in ["order", "asks", "beside", "slow"] {
        ok(node.take(&format!("{name}.json")));
    }
    steps
        .run(
            "https hook falls back to http",
            https_hook_falls_back_to_http(&server),
        )
        .await;
    ok(node.wait_gone("asks").await);
    ok(node.wait_gone("order").await);
    assert_eq!(out.lines("cgi"), ["asked"]);
    steps
        .run(
            "hook continues after a restart",
            hook_continues_after_a_restart(&mut node, &out),
        )
        .await;
    ok(node.wait_gone("beside").await);
    let lines = out.lines("beside");
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[..2].iter().all(|line| line.ends_with("hook")));
    assert_eq!(lines[2..], ["main term", "two term", "one term"]);
    ok(node.take("bad.json"));
    ok(node.wait_gone("bad").await);
    steps.finish();
    ok(node.remove());
}

/// A directory shared with pods.
struct Out(PathBuf);

impl Out {
    fn new(node: &Node) -> Self {
        let out = Out(node.scratch().join("out"));
        fs::create_dir_all(&out.0).unwrap();
        out
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn wait_lines(&self, name: &str, count: usize) {
        let poll = || async {
            match self.lines(name).len() {
                found if found >= count => Poll::Ready(()),
                found => Poll::Pending(format!("{found} lines")),
            }
        };
        ok(until(format!("{count} lines in {name}"), poll).await);
    }
}

/// A script that logs SIGTERM and exits.
fn logs_sigterm(file: &str, line: &str) -> String {
    format!(
        "trap 'echo {line} >> /out/{file}; exit 0' TERM; while :; do sleep 3600 & wait $!; done"
    )
}

fn exec(script: &str) -> Value {
    json!({ "exec": { "command": ["sh", "-c", script] } })
}

fn container(name: &str, script: &str, lifecycle: &Value) -> Value {
    json!({
        "name": name, "image": "polylet-test:1", "command": ["sh", "-c", script],
        "volumeMounts": [{ "name": "out", "mountPath": "/out" }], "lifecycle": lifecycle,
    })
}

/// Spec fields with these containers, which all mount the directory.
fn spec(out: &Path, grace: u32, inits: Value, containers: Value) -> Value {
    json!({
        "terminationGracePeriodSeconds": grace,
        "volumes": [{ "name": "out", "hostPath": { "path": out } }],
        "initContainers": inits, "containers": containers,
    })
}

fn hooked(out: &Out, port: u16) -> Vec<(&'static str, String)> {
    let spec = |grace, inits, containers| spec(&out.0, grace, inits, containers);
    let order = json!([
        container(
            "first",
            RUNS,
            &json!({ "postStart": exec("sleep 0.5; echo hook of first >> /out/order") })
        ),
        container(
            "second",
            &format!("echo second >> /out/order; {RUNS}"),
            &json!({})
        ),
    ]);
    let bad = json!([container(
        "main",
        RUNS,
        &json!({ "postStart": exec("echo no such luck; exit 3") })
    )]);
    // Its own server, called at the pod's address by port name.
    let cgi = "mkdir -p /www/cgi-bin; printf '#!/bin/sh\\necho asked >> /out/cgi\\necho\\n' > /www/cgi-bin/bye; \
               chmod +x /www/cgi-bin/bye; httpd -p 8080 -h /www; ";
    let mut server = container(
        "server",
        &format!("{cgi}{RUNS}"),
        &json!({ "preStop": { "httpGet": { "port": "web", "path": "/cgi-bin/bye" } } }),
    );
    server["ports"] = json!([{ "name": "web", "containerPort": 8080 }]);
    let elsewhere = json!({ "preStop": { "httpGet": {
        "scheme": "HTTPS", "host": "127.0.0.1", "port": port, "path": "/bye?now",
        "httpHeaders": [{ "name": "X-Why", "value": "stop" }, { "name": "Authorization", "value": "secret" }],
    } } });
    let http_hook = json!([server, container("elsewhere", RUNS, &elsewhere)]);
    let waits = "echo began >> /out/slow; while ! test -e /out/go; do sleep 0.1; done; echo over >> /out/slow";
    let slow = json!([container(
        "main",
        &logs_sigterm("slow", "term"),
        &json!({ "preStop": exec(waits) })
    )]);
    let beside = |name: &str| {
        let hook = exec(&format!("echo {name} hook >> /out/beside"));
        let mut sidecar = container(
            name,
            &logs_sigterm("beside", &format!("{name} term")),
            &json!({ "preStop": hook }),
        );
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    };
    let lasting = "trap 'sleep 1; echo main term >> /out/beside; exit 0' TERM; while :; do sleep 3600 & wait $!; done";
    let mut stubborn = container(
        "main",
        "trap '' TERM; while :; do sleep 0.2; done",
        &json!({}),
    );
    stubborn["livenessProbe"] = json!({
        "exec": { "command": ["test", "!", "-e", "/out/sick"] },
        "periodSeconds": 1, "failureThreshold": 1, "terminationGracePeriodSeconds": 300,
    });
    let orphan = json!([container(
        "main",
        &logs_sigterm("orphan", "term"),
        &json!({ "preStop": exec("echo hook >> /out/orphan") }),
    )]);
    vec![
        ("order", pod("order", "", &spec(2, json!([]), order))),
        ("bad", pod("bad", "", &spec(2, json!([]), bad))),
        ("asks", pod("asks", "", &spec(20, json!([]), http_hook))),
        ("slow", pod("slow", "", &spec(60, json!([]), slow))),
        (
            "beside",
            pod(
                "beside",
                "",
                &spec(
                    20,
                    json!([beside("one"), beside("two")]),
                    json!([container("main", lasting, &json!({}))]),
                ),
            ),
        ),
        (
            "stubborn",
            pod("stubborn", "", &spec(2, json!([]), json!([stubborn]))),
        ),
        ("orphan", pod("orphan", "", &spec(20, json!([]), orphan))),
    ]
}

/// A shortened grace period applies to a termination in progress.
async fn grace_period_can_be_shortened(node: &Node, out: &Out) {
    fs::write(out.file("sick"), "").unwrap();
    let stops = |pod: &PodView| {
        pod.waiting_for
            .iter()
            .any(|what| what.contains("(grace period 300 s)"))
    };
    ok(node
        .wait_pod("stubborn", "to be stopped by its probe", stops)
        .await);
    let started = Instant::now();
    ok(node.take("stubborn.json"));
    ok(node.wait_gone("stubborn").await);
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
}

/// Reason and message are upstream's, and the container starts again.
async fn failed_hook_is_reported(node: &Node) {
    let hook_failed = |pod: &PodView| {
        pod.container("main").is_some_and(|main| {
            main.reason == "PostStartHookError"
                && main.message.contains("exited with 3")
                && main.message.contains("no such luck")
        })
    };
    ok(node
        .wait_pod("bad", "to report its failed hook", hook_failed)
        .await);
    let restarted = |pod: &PodView| pod.container("main").is_some_and(|main| main.restarts > 0);
    ok(node.wait_pod("bad", "to be started again", restarted).await);
}

/// An HTTPS hook falls back to plain HTTP without its sensitive headers.
async fn https_hook_falls_back_to_http(server: &TcpListener) {
    let (mut first, _) = server.accept().await.unwrap();
    let mut hello = [0; 512];
    let _ = first.read(&mut hello).await;
    assert_eq!(hello[0], 22, "a TLS greeting");
    let _ = first.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    drop(first);
    let (mut second, _) = server.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = second.read_u8().await.unwrap();
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("get /bye?now http/1.1"), "{head}");
    assert!(
        head.contains("x-why: stop") && head.contains("user-agent: kube-lifecycle/"),
        "{head}"
    );
    assert!(!head.contains("authorization"), "{head}");
    // Any response counts as success.
    let _ = second
        .write_all(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")
        .await;
}

/// The remaining grace period of a hook is reported, survives a kill of the coordinator, and does not
/// start over.
async fn hook_continues_after_a_restart(node: &mut Node, out: &Out) {
    out.wait_lines("slow", 1).await;
    let started = Instant::now();
    assert!(remaining_seconds(node).await.unwrap() <= 60);
    let a_second = || async {
        match started.elapsed() {
            past if past > Duration::from_millis(1500) => Poll::Ready(()),
            past => Poll::Pending(format!("{past:?}")),
        }
    };
    ok(until("a second of the grace period to pass", a_second).await);
    ok(node.kill("sync-coordinator").await);
    // An unfinished hook runs again.
    out.wait_lines("slow", 2).await;
    // The status from before the restart, with the whole grace period, may be visible for a moment.
    let poll = || async {
        match remaining_seconds(node).await {
            Some(left) if left < 60 => Poll::Ready(()),
            longest => Poll::Pending(format!("at most {longest:?} s")),
        }
    };
    ok(until("the hook to be called again with less time", poll).await);
    fs::write(out.file("go"), "").unwrap();
    ok(node.wait_gone("slow").await);
    let lines = out.lines("slow");
    assert_eq!(lines.last().map(String::as_str), Some("term"), "{lines:?}");
}

/// The remaining seconds of the pod's preStop hook, as reported.
async fn remaining_seconds(node: &Node) -> Option<u32> {
    let pods = node.pods().await.ok()?;
    let slow = pods.iter().find(|pod| pod.name.starts_with("slow"))?;
    let mut waits = slow.waiting_for.iter();
    let hook = waits.find(|what| what.contains("preStop hook of container main"))?;
    let (_, rest) = hook.split_once("at most ")?;
    rest.split_once(' ')?.0.parse().ok()
}
