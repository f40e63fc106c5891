//! Rotation of growing logs while they are written and read, with the rotating service killed
//! meanwhile. No line is lost or duplicated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Instant;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, exec, node_with, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, PodView, http, machine, wait};
use rustix::process::Signal;
use serde_json::json;

/// A script that writes numbered lines to stdout and "batch" to stderr until a file exists.
const WRITES: &str = "i=0; b=0; while ! test -e /tmp/stop; do b=$((b+1)); n=0; \
    while test $n -lt 200; do n=$((n+1)); i=$((i+1)); echo \"line $i of a long story\"; done; \
    echo \"batch $b\" >&2; sleep 0.05; done; echo end; sleep 1";

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn log_rotation_loses_no_line() {
    let mut steps = Steps::new();
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

    // Killed during a rotation, between any two of its steps.
    for _ in 0..3 {
        let pid = pid_of(&node, "sync-coordinator").await;
        killed_at_a_rotation(log_directory(&node, &writer), pid).await;
        ok(node.wait_in_step().await);
    }
    // Once more without a kill.
    let folder = log_directory(&node, &writer);
    let rotations = newest_rotation(&folder);
    let poll = || async {
        let now = files(&folder);
        let newer = newest_rotation(&folder) > rotations;
        let packed = now.iter().filter(|name| name.ends_with(".gz")).count();
        if newer && now.len() == 3 && packed == 1 && now[0] == "0.log" {
            Poll::Ready(())
        } else {
            Poll::Pending(format!("{now:?}"))
        }
    };
    ok(until("a log, a rotated one and a packed one", poll).await);

    steps
        .run(
            "removed log is recreated",
            removed_log_is_recreated(&node, &still),
        )
        .await;
    exec(&node, &writer, "main", "touch /tmp/stop").await;
    let read = ok(tokio::time::timeout(wait::timeout(), follower).await).unwrap();
    let lines = numbers_of(&read);
    assert!(lines > 5_000, "{lines} lines");
    let after = ok(node
        .wait_pod("writer", "to have ended", |pod| pod.phase() == "Succeeded")
        .await);
    assert_eq!(after.identity()[0].1, before[0].1);
    steps
        .run(
            "tail reads rotated files",
            tail_reads_rotated_files(&node, lines),
        )
        .await;
    for name in ["still", "writer"] {
        ok(node.take(&format!("{name}.json")));
    }
    for name in ["still", "writer"] {
        ok(node.wait_gone(name).await);
    }
    assert!(!folder.exists(), "{}", folder.display());
    steps.finish();
    ok(node.remove());
}

/// `polylet logs -f` until it exits.
fn follow(node: &Node, pod: &str) -> tokio::task::JoinHandle<Output> {
    let follower = tokio::process::Command::new(node.program("polylet"))
        .args(["logs", "-f", pod, "--config"])
        .arg(node.config())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::spawn(async move { ok(follower.await) })
}

/// Checks that every number occurs once and in order, and returns the last one.
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
    let expected: Vec<String> = (1..=count / 200).map(|n| format!("batch {n}")).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    count
}

/// Kills a process as soon as another file was rotated.
async fn killed_at_a_rotation(folder: PathBuf, pid: u32) {
    let watch = move || {
        let (before, started) = (newest_rotation(&folder), Instant::now());
        while newest_rotation(&folder) <= before {
            assert!(started.elapsed() < wait::timeout(), "no log is rotated");
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

/// A log file that was removed is recreated by the runtime with the next line.
async fn removed_log_is_recreated(node: &Node, still: &PodView) {
    let log = log_directory(node, still).join("0.log");
    ok(fs::remove_file(&log));
    exec(node, still, "main", "echo away > /proc/1/fd/1").await;
    let poll = || async {
        if log.exists() {
            Poll::Ready(())
        } else {
            Poll::Pending("no log".to_owned())
        }
    };
    ok(until("the runtime to open a new log", poll).await);
    exec(node, still, "main", "echo back > /proc/1/fd/1").await;
    let poll = || async {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.ends_with(" stdout F back\n") {
            Poll::Ready(())
        } else {
            Poll::Pending(text)
        }
    };
    ok(until("the next line in the new log", poll).await);
}

/// Reads more lines than the current file holds.
async fn tail_reads_rotated_files(node: &Node, lines: usize) {
    let shown = ok(node.cli(&["logs", "writer-node"]).await);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let retained: Vec<&str> = text.lines().collect();
    let first = lines + 2 - retained.len();
    for (at, line) in retained.iter().take(retained.len() - 1).enumerate() {
        assert_eq!(*line, format!("line {} of a long story", first + at));
    }
    assert!(
        retained.len() > 1_000,
        "{} lines are retained",
        retained.len()
    );

    let tail = ok(node.cli(&["logs", "writer-node", "--tail", "2"]).await);
    let all = [tail.stdout, tail.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&all).lines().count(), 2);
    // The node API interleaves both streams.
    let path = "/containerLogs/default/writer-node/main?tailLines=1000";
    let answer = ok(http::get_tls(ok(node.pki().tls(false)), node.ports().0, path).await);
    assert_eq!((answer.code(), answer.body.lines().count()), (200, 1000));
    let batches = answer.body.lines().filter(|line| line.starts_with("batch"));
    assert!(batches.count() >= 4, "{}", answer.body);
}

/// The directory of the container's logs.
fn log_directory(node: &Node, pod: &PodView) -> PathBuf {
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

/// The time stamp of the newest rotated file.
fn newest_rotation(folder: &Path) -> Option<String> {
    let names = files(folder).into_iter();
    names
        .filter(|name| name != "0.log")
        .map(|name| name[..21].to_owned())
        .max()
}
