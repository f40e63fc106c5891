//! Upgrades of the supervisor itself: its services, which are its children, keep running.

mod fixture;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use fixture::upgrade::{build_supervisor, history, pids, script, supervisor_script, text, upgrade};
use fixture::{Node, POLYLET, SERVICES, alive, kill};

fn link(node: &Node) -> PathBuf {
    fs::read_link(node.path("bin/polylet")).unwrap()
}

fn version(name: &str) -> PathBuf {
    PathBuf::from(format!("supervisor/{name}/polylet"))
}

/// The program that the supervisor's process runs.
fn running(node: &Node) -> PathBuf {
    let pid = node.supervisor.as_ref().unwrap().id();
    fs::canonicalize(format!("/proc/{pid}/exe")).unwrap()
}

fn assert_runs(node: &Node, name: &str) {
    assert_eq!(link(node), version(name));
    let file = fs::canonicalize(node.path("bin").join(version(name))).unwrap();
    assert_eq!(running(node), file);
}

/// Starts an upgrade of the supervisor, and returns when its program is about to be replaced.
fn begin(node: &Node, to: &Path, timeout: &str) -> Child {
    let to = to.to_str().unwrap();
    let args = ["upgrade", "supervisor", "--timeout", timeout, "--to", to];
    let mut command = node.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(command.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let is_reached = lines.any(|line| line.starts_with("supervisor: restarted: "));
    assert!(is_reached, "{}", node.log());
    command
}

/// Ends a thread, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn last(node: &Node) -> Value {
    history(node).pop().unwrap_or_default()
}

#[test]
fn the_supervisor_is_upgraded_and_rolled_back_under_its_services() {
    let mut node = Node::started();
    node.until("the trace", || {
        node.run(&["trace", "demo"]).status.success()
    });
    let second = build_supervisor(&node, "second");
    let before = node.status();
    let (stop, calls) = (AtomicBool::new(false), AtomicU32::new(0));
    let (node_ref, second) = (&node, &second);
    std::thread::scope(|scope| {
        // Nothing is refused meanwhile, neither by the supervisor nor by a service.
        let client = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for service in SERVICES {
                    UnixStream::connect(node_ref.path(&format!("run/{service}.sock"))).unwrap();
                }
                let status = node_ref.run(&["status"]);
                assert!(status.status.success(), "{}", text(&status));
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
        let stopping = Stop(&stop);
        let upgraded = upgrade(node_ref, "supervisor", second, &[]);
        assert!(
            upgraded.status.success(),
            "{}\n{}",
            text(&upgraded),
            node_ref.log()
        );
        for step in ["checked", "installed", "restarted", "done"] {
            let line = format!("supervisor: {step}: ");
            assert!(
                text(&upgraded).contains(&line),
                "{step}: {}",
                text(&upgraded)
            );
        }
        assert_runs(node_ref, "0.1.0-2");
        let back = node_ref.run(&["rollback", "supervisor"]);
        assert!(back.status.success(), "{}\n{}", text(&back), node_ref.log());
        assert_runs(node_ref, "0.1.0");
        drop(stopping);
        client.join().unwrap();
    });
    println!(
        "{} calls of polylet status, none refused",
        calls.into_inner()
    );
    for (before, now) in before.iter().zip(node.status()) {
        for field in ["service", "pid", "restarts", "startedAt", "health"] {
            assert_eq!(now[field], before[field], "{now}");
        }
    }
    assert!(
        node.run(&["trace", "demo"]).status.success(),
        "traces are kept"
    );
    let records = history(&node);
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(
            (&record["step"], &record["resumed"]),
            (&"done".into(), &false.into())
        );
    }
    // The services are supervised as before.
    let pleg = node.service("pleg")["pid"].as_u64().unwrap();
    kill(pleg, Signal::KILL);
    node.until("the restart of a service", || {
        let now = node.service("pleg");
        now["health"] == "SERVING" && now["pid"] != pleg && now["restarts"] == 1
    });
    let children = pids(&node);
    assert_eq!(node.signal(Signal::TERM).code(), Some(0), "{}", node.log());
    assert!(children.iter().all(|(_, pid)| !alive(*pid)));
}

#[test]
fn programs_that_cannot_take_over_the_services_are_refused() {
    let node = Node::started();
    let before = pids(&node);
    let described = std::process::Command::new(POLYLET)
        .arg("--descriptor")
        .output()
        .unwrap();
    let described: Value = serde_json::from_slice(&described.stdout).unwrap();
    let exits = script(&node, "exits", &described, "exit 0");
    let fails = script(&node, "fails", &described, "echo too old >&2; exit 64");
    for (program, expected) in [
        (&exits, "did not confirm that it can take over the services"),
        (
            &fails,
            "could not take over the services (exit status: 64): too old",
        ),
    ] {
        for more in [&["--dry-run"][..], &[]] {
            let refused = upgrade(&node, "supervisor", program, more);
            assert_eq!(refused.status.code(), Some(70), "{}", text(&refused));
            assert!(text(&refused).contains(expected), "{}", text(&refused));
        }
    }
    assert_eq!(pids(&node), before);
    assert_eq!(history(&node), Vec::<Value>::new());
}

#[test]
fn a_program_that_ends_at_once_is_not_started_again() {
    let mut node = Node::started();
    let ends = supervisor_script(&node, "ends", "exit 3");
    let before = fs::canonicalize(node.path("bin/polylet")).unwrap();
    let mut command = begin(&node, &ends, "20s");
    let status = node.supervisor.take().unwrap().wait().unwrap();
    assert_eq!(status.code(), Some(3));
    // As a service manager does.
    node.start();
    assert!(!command.wait().unwrap().success());
    let last = last(&node);
    assert_eq!(last["step"], "rolled back", "{last}");
    let cause = "the supervisor ended before 0.1.0-2 was in step";
    assert_eq!(last["cause"], cause);
    node.until_serving();
    assert_eq!(fs::canonicalize(node.path("bin/polylet")).unwrap(), before);
    assert_eq!(running(&node), before);
}

#[test]
fn a_program_that_does_not_get_in_step_is_brought_back_under_the_services() {
    let node = Node::started();
    let second = build_supervisor(&node, "second");
    let before = pids(&node);
    let prober = node.service("prober")["pid"].as_u64().unwrap();
    let mut command = begin(&node, &second, "3s");
    kill(prober, Signal::STOP);
    node.until("the way back", || last(&node)["step"] == "rolling back");
    kill(prober, Signal::CONT);
    assert!(!command.wait().unwrap().success());
    let last = last(&node);
    assert_eq!(last["step"], "rolled back", "{last}\n{}", node.log());
    let cause = last["cause"].as_str().unwrap();
    assert!(
        cause.contains("supervisor is not in step with prober"),
        "{cause}"
    );
    assert_runs(&node, "0.1.0");
    assert_eq!(pids(&node), before);
    node.until_serving();
}

#[test]
fn a_killed_supervisor_continues_or_goes_back() {
    let mut node = Node::started();
    for step in ["installed", "restarted", "done"] {
        let program = build_supervisor(&node, &format!("build-{step}"));
        let mut command = begin(&node, &program, "20s");
        node.until(
            step,
            || matches!(&last(&node)["step"], now if now == step || now == "done"),
        );
        let children = pids(&node);
        node.signal(Signal::KILL);
        node.until("the end of the services", || {
            children.iter().all(|(_, pid)| !alive(*pid))
        });
        node.start();
        command.wait().unwrap();
        node.until("the end of the upgrade", || last(&node)["finishedAt"] != "");
        node.until_serving();
        let last = last(&node);
        let ran = match last["step"].as_str() {
            Some("done") => last["toVersion"].as_str().unwrap(),
            Some("rolled back") => last["fromVersion"].as_str().unwrap(),
            other => panic!("{other:?}: {last}"),
        };
        let file = node.path("bin/polylet");
        assert_eq!(
            running(&node),
            fs::canonicalize(file).unwrap(),
            "{step}: {last}"
        );
        let is_version = fs::read_link(node.path("bin/polylet")).unwrap() == version(ran);
        // Before the first upgrade the link names the file from which the version was made.
        assert!(is_version || ran == "0.1.0", "{step}: {last}");
        fs::remove_file(program).unwrap();
    }
}

#[test]
fn services_keep_running_under_a_program_that_cannot_read_their_state() {
    let node = Node::started();
    let before = pids(&node);
    // Without the state, and with the descriptors.
    let without = "POLYLET_HANDOVER=$(echo \"$POLYLET_HANDOVER\" | sed 's/state=[0-9]*/state=2/')";
    let run = format!("{without}\nexport POLYLET_HANDOVER\nexec {POLYLET} \"$@\"");
    let program = supervisor_script(&node, "forgets", &run);
    let mut command = begin(&node, &program, "20s");
    command.wait().unwrap();
    assert!(
        node.log()
            .contains("state of the services is unknown; keeping their processes"),
        "{}",
        node.log()
    );
    node.until_serving();
    assert_eq!(pids(&node), before);
    let pleg = node.service("pleg")["pid"].as_u64().unwrap();
    kill(pleg, Signal::KILL);
    node.until("the restart of a service", || {
        let now = node.service("pleg");
        now["health"] == "SERVING" && now["pid"] != pleg
    });
}
