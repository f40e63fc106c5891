//! How containers live and end on a real runtime: hooks, graces, and who goes first.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Node, PodView};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn hooks() {
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
    fails_and_is_told(&node).await;

    shortened(&node, &out).await;

    // Nothing of the manifest is left when the node comes back.
    node.down();
    ok(node.take("orphan.json"));
    ok(node.up().await);
    ok(node.wait_gone("orphan").await);
    assert_eq!(out.lines("orphan"), ["hook", "term"]);

    for name in ["order", "asks", "beside", "slow"] {
        ok(node.take(&format!("{name}.json")));
    }
    asked_without_tls(&server).await;
    ok(node.wait_gone("asks").await);
    ok(node.wait_gone("order").await);
    assert_eq!(out.lines("cgi"), ["asked"]);
    goes_on_over_a_restart(&mut node, &out).await;
    ok(node.wait_gone("beside").await);
    let lines = out.lines("beside");
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[..2].iter().all(|line| line.ends_with("hook")));
    assert_eq!(lines[2..], ["main term", "two term", "one term"]);
    ok(node.take("bad.json"));
    ok(node.wait_gone("bad").await);
    ok(node.remove());
}

/// A directory that pods write into.
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
        let look = || async {
            match self.lines(name).len() {
                found if found >= count => Look::Done(()),
                found => Look::NotYet(format!("{found} lines")),
            }
        };
        ok(until(format!("{count} lines in {name}"), look).await);
    }
}

/// The script, told to end, says so first.
fn says_term(file: &str, word: &str) -> String {
    format!(
        "trap 'echo {word} >> /out/{file}; exit 0' TERM; while :; do sleep 3600 & wait $!; done"
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

/// Fields of a spec with these containers, which all see the directory.
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
    // A server of its own, asked at the pod's address by the name of its port.
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
    let asks = json!([server, container("elsewhere", RUNS, &elsewhere)]);
    let waits = "echo began >> /out/slow; while ! test -e /out/go; do sleep 0.1; done; echo over >> /out/slow";
    let slow = json!([container(
        "main",
        &says_term("slow", "term"),
        &json!({ "preStop": exec(waits) })
    )]);
    let beside = |name: &str| {
        let hook = exec(&format!("echo {name} hook >> /out/beside"));
        let mut sidecar = container(
            name,
            &says_term("beside", &format!("{name} term")),
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
        &says_term("orphan", "term"),
        &json!({ "preStop": exec("echo hook >> /out/orphan") }),
    )]);
    vec![
        ("order", pod("order", "", &spec(2, json!([]), order))),
        ("bad", pod("bad", "", &spec(2, json!([]), bad))),
        ("asks", pod("asks", "", &spec(20, json!([]), asks))),
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

/// A pod's own grace is shorter than the one its container was given before: that counts.
async fn shortened(node: &Node, out: &Out) {
    fs::write(out.file("sick"), "").unwrap();
    let stops = |pod: &PodView| {
        pod.waiting_for
            .iter()
            .any(|what| what.contains("(grace 300 s)"))
    };
    ok(node
        .wait_pod("stubborn", "to be stopped by its probe", stops)
        .await);
    let begun = Instant::now();
    ok(node.take("stubborn.json"));
    ok(node.wait_gone("stubborn").await);
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}

/// Reason and message are upstream's, and the container starts again.
async fn fails_and_is_told(node: &Node) {
    let told = |pod: &PodView| {
        pod.container("main").is_some_and(|main| {
            main.reason == "PostStartHookError"
                && main.message.contains("exited with 3")
                && main.message.contains("no such luck")
        })
    };
    ok(node
        .wait_pod("bad", "to be told of its failed hook", told)
        .await);
    let again = |pod: &PodView| pod.container("main").is_some_and(|main| main.restarts > 0);
    ok(node.wait_pod("bad", "to be started again", again).await);
}

/// A server that speaks plain HTTP is asked again, without what is meant for its eyes alone.
async fn asked_without_tls(server: &TcpListener) {
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
    // Whatever the answer says is fine.
    let _ = second
        .write_all(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")
        .await;
}

/// What a hook has left is told, goes on over the coordinator's death, and is not given afresh.
async fn goes_on_over_a_restart(node: &mut Node, out: &Out) {
    out.wait_lines("slow", 1).await;
    let begun = Instant::now();
    assert!(left(node).await.unwrap() <= 60);
    let a_second = || async {
        match begun.elapsed() {
            past if past > Duration::from_millis(1500) => Look::Done(()),
            past => Look::NotYet(format!("{past:?}")),
        }
    };
    ok(until("a second of the grace to pass", a_second).await);
    ok(node.kill("sync-coordinator").await);
    // What was not heard to its end is run again.
    out.wait_lines("slow", 2).await;
    // What was told before the restart may still be there for a moment: the whole grace.
    let look = || async {
        match left(node).await {
            Some(left) if left < 60 => Look::Done(()),
            told => Look::NotYet(format!("at most {told:?} s")),
        }
    };
    ok(until("the hook to be told of again, with less time", look).await);
    fs::write(out.file("go"), "").unwrap();
    ok(node.wait_gone("slow").await);
    let lines = out.lines("slow");
    assert_eq!(lines.last().map(String::as_str), Some("term"), "{lines:?}");
}

/// The seconds that the pod's preStop hook may take, as it is told to people.
async fn left(node: &Node) -> Option<u32> {
    let pods = node.pods().await.ok()?;
    let slow = pods.iter().find(|pod| pod.name.starts_with("slow"))?;
    let mut waits = slow.waiting_for.iter();
    let hook = waits.find(|what| what.contains("preStop hook of container main"))?;
    let (_, rest) = hook.split_once("at most ")?;
    rest.split_once(' ')?.0.parse().ok()
}
