//! Logs that grow: rotated while they are written and read, and by somebody who is killed meanwhile.
//! No line is lost and none comes twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Instant;

use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Node, NodeOptions, PodView, http, machine, wait};
use rustix::process::Signal;
use serde_json::json;

/// Numbers its lines, says "batch" beside them, and ends when it is told to.
const WRITES: &str = "i=0; b=0; while ! test -e /tmp/stop; do b=$((b+1)); n=0; \
    while test $n -lt 200; do n=$((n+1)); i=$((i+1)); echo \"line $i of a long story\"; done; \
    echo \"batch $b\" >&2; sleep 0.05; done; echo end; sleep 1";

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn no_line_is_lost() {
    let mut node = node_with(NodeOptions {
        kubelet: json!({
            "containerLogMaxSize": "64Ki", "containerLogMaxFiles": 3,
            "containerLogMonitorInterval": "3s",
        }),
        ..NodeOptions::default()
    })
    .await;
    ok(node.put("still.json", &pod("still", RUNS, &json!({}))));
    let never = json!({ "restartPolicy": "Never" });
    ok(node.put("writer.json", &pod("writer", WRITES, &never)));
    let still = ok(node.wait_ready("still").await);
    let writer = ok(node.wait_ready("writer").await);
    let before = writer.identity();
    let follower = follow(&node, "writer-node");

    // Killed in the moment of a rotation, between any two steps of it.
    for _ in 0..3 {
        let pid = pid_of(&node, "sync-coordinator").await;
        killed_at_a_rotation(folder(&node, &writer), pid).await;
        ok(node.wait_in_step().await);
    }
    // And once more in peace.
    let folder = folder(&node, &writer);
    let rotations = stamps(&folder);
    let look = || async {
        let now = files(&folder);
        let newer = stamps(&folder) > rotations;
        let packed = now.iter().filter(|name| name.ends_with(".gz")).count();
        if newer && now.len() == 3 && packed == 1 && now[0] == "0.log" {
            Look::Done(())
        } else {
            Look::NotYet(format!("{now:?}"))
        }
    };
    ok(until("a log, a rotated one and a packed one", look).await);

    a_log_that_was_taken_away_comes_back(&node, &still).await;
    in_pod(&node, &writer, "touch /tmp/stop");
    let read = ok(tokio::time::timeout(wait::patience(), follower).await).unwrap();
    let lines = numbers_of(&read);
    assert!(lines > 5_000, "{lines} lines");
    let after = ok(node
        .wait_pod("writer", "to have ended", |pod| pod.phase() == "Succeeded")
        .await);
    assert_eq!(after.identity()[0].1, before[0].1);
    the_rest_is_read_across_files(&node, lines).await;
    for name in ["still", "writer"] {
        ok(node.take(&format!("{name}.json")));
    }
    for name in ["still", "writer"] {
        ok(node.wait_gone(name).await);
    }
    assert!(!folder.exists(), "{}", folder.display());
    ok(node.remove());
}

/// `polylet logs -f`, to its end.
fn follow(node: &Node, pod: &str) -> tokio::task::JoinHandle<Output> {
    let follower = tokio::process::Command::new(node.program("polylet"))
        .args(["logs", "-f", pod, "--config"])
        .arg(node.config())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::spawn(async move { ok(follower.await) })
}

/// Every number once and in order, and the other stream apart. Gives the last number.
fn numbers_of(read: &Output) -> usize {
    let text = String::from_utf8_lossy(&read.stdout);
    let mut count = 0;
    let mut lines = text.lines();
    for line in lines.by_ref().take_while(|line| *line != "end") {
        count += 1;
        assert_eq!(line, format!("line {count} of a long story"));
    }
    assert_eq!(lines.next(), None);
    assert!(text.ends_with("end\n"), "cut short after line {count}");
    let text = String::from_utf8_lossy(&read.stderr);
    let wanted: Vec<String> = (1..=count / 200).map(|n| format!("batch {n}")).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
    count
}

/// Kills a process as soon as one more file has been moved away.
async fn killed_at_a_rotation(folder: PathBuf, pid: u32) {
    let watch = move || {
        let (before, begun) = (stamps(&folder), Instant::now());
        while stamps(&folder) <= before {
            assert!(begun.elapsed() < wait::patience(), "no log is rotated");
            std::hint::spin_loop();
        }
        machine::signal(pid, Signal::KILL);
    };
    ok(tokio::task::spawn_blocking(watch).await);
}

async fn pid_of(node: &Node, service: &str) -> u32 {
    let services = ok(node.services().await);
    let found = services.iter().find(|found| found.name == service);
    found.map(|found| found.pid).unwrap()
}

/// Removed by hand; the next line has the runtime make a new one.
async fn a_log_that_was_taken_away_comes_back(node: &Node, still: &PodView) {
    let log = folder(node, still).join("0.log");
    ok(fs::remove_file(&log));
    in_pod(node, still, "echo away > /proc/1/fd/1");
    let look = || async {
        if log.exists() {
            Look::Done(())
        } else {
            Look::NotYet("no log".to_owned())
        }
    };
    ok(until("the runtime to open a new log", look).await);
    in_pod(node, still, "echo back > /proc/1/fd/1");
    let look = || async {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.ends_with(" stdout F back\n") {
            Look::Done(())
        } else {
            Look::NotYet(text)
        }
    };
    ok(until("the next line in the new log", look).await);
}

/// The end of the log, as far as files are kept: more than the current one holds.
async fn the_rest_is_read_across_files(node: &Node, lines: usize) {
    let told = ok(node.cli(&["logs", "writer-node"]).await);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let kept: Vec<&str> = text.lines().collect();
    let first = lines + 2 - kept.len();
    for (at, line) in kept.iter().take(kept.len() - 1).enumerate() {
        assert_eq!(*line, format!("line {} of a long story", first + at));
    }
    assert!(kept.len() > 1_000, "{} lines are kept", kept.len());

    let tail = ok(node.cli(&["logs", "writer-node", "--tail", "2"]).await);
    let all = [tail.stdout, tail.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&all).lines().count(), 2);
    // Over HTTPS both streams are one text.
    let path = "/containerLogs/default/writer-node/main?tailLines=1000";
    let answer = ok(http::get_tls(ok(node.pki().tls(false)), node.ports().0, path).await);
    assert_eq!((answer.code(), answer.body.lines().count()), (200, 1000));
    let batches = answer.body.lines().filter(|line| line.starts_with("batch"));
    assert!(batches.count() >= 4, "{}", answer.body);
}

/// The folder of the one container's logs.
fn folder(node: &Node, pod: &PodView) -> PathBuf {
    let name = format!("default_{}_{}", pod.name, pod.uid);
    node.dirs().logs.join(name).join("main")
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The newest rotation.
fn stamps(folder: &Path) -> Option<String> {
    let names = files(folder).into_iter();
    names
        .filter(|name| name != "0.log")
        .map(|name| name[..21].to_owned())
        .max()
}

/// Runs a shell line in the pod's container.
fn in_pod(node: &Node, pod: &PodView, line: &str) {
    let id = pod.container("main").unwrap().id;
    let id = id.trim_start_matches("containerd://");
    ok(node.containerd.exec(id, &["sh", "-c", line]));
}
