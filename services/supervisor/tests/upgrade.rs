//! Upgrades of services: real processes, sockets, signals and files. The services have no function.

mod fixture;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use fixture::{Node, POLYLET, SERVICES, alive, kill};

/// Versions of the fake service and of its descriptor.
const FIRST: &str = "0.0.1";
const SECOND: &str = "0.0.1-2";

/// Another build of the same version: bytes after the end of a program do not matter to the kernel.
fn build(node: &Node, name: &str) -> PathBuf {
    let fake_service = Path::new(POLYLET)
        .with_file_name("examples")
        .join("fake_service");
    let path = node.path(name);
    fs::copy(fake_service, &path).unwrap();
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(name.as_bytes()).unwrap();
    path
}

/// A program with this descriptor that otherwise runs a script.
fn script(node: &Node, name: &str, descriptor: &Value, script: &str) -> PathBuf {
    let path = node.path(name);
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = --descriptor ]; then echo '{descriptor}'; exit; fi\n{script}\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn descriptor(service: &str, calls: &Value, state_files: &Value) -> Value {
    serde_json::json!({
        "service": service,
        "version": "0.0.2",
        "serves": [],
        "calls": calls,
        "state_files": state_files,
    })
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

fn upgrade(node: &Node, service: &str, to: &Path, more: &[&str]) -> Output {
    let to = to.to_str().unwrap();
    let args = ["upgrade", service, "--to", to, "--timeout", "20s"];
    node.run(&[&args, more].concat())
}

fn history(node: &Node) -> Vec<Value> {
    let output = node.run(&["history", "-o", "json"]);
    let parsed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    parsed["upgrades"].as_array().cloned().unwrap_or_default()
}

/// The link of a service.
fn active(node: &Node, service: &str) -> PathBuf {
    fs::read_link(node.path(&format!("bin/polylet-{service}"))).unwrap()
}

fn version_file(service: &str, version: &str) -> PathBuf {
    PathBuf::from(format!("{service}/{version}/polylet-{service}"))
}

/// The file that the process of a service runs.
fn running_file(node: &Node, service: &str) -> PathBuf {
    let pid = node.service(service)["pid"].as_u64().unwrap();
    fs::canonicalize(format!("/proc/{pid}/exe")).unwrap()
}

fn pids(node: &Node) -> Vec<(String, u64)> {
    let status = node.status();
    let pid = |service: &Value| {
        (
            service["service"].as_str().unwrap().to_owned(),
            service["pid"].as_u64().unwrap(),
        )
    };
    status.iter().map(pid).collect()
}

/// Only this service has another process, and nothing counts as a failure.
fn assert_only_restarted(node: &Node, before: &[(String, u64)], service: &str) {
    for (name, pid) in pids(node) {
        let same = before.contains(&(name.clone(), pid));
        assert_eq!(same, name != service, "{name}");
    }
    for status in node.status() {
        assert_eq!(status["restarts"], 0, "{status}");
        assert_eq!(status["health"], "SERVING", "{status}");
    }
}

#[test]
fn a_service_is_upgraded_and_rolled_back_alone() {
    let node = Node::started();
    let second = build(&node, "second");
    let before = pids(&node);
    let dry = upgrade(&node, "pleg", &second, &["--dry-run"]);
    assert!(dry.status.success(), "{}", text(&dry));
    assert_eq!(text(&dry).lines().count(), 1, "{}", text(&dry));
    assert!(!node.path("bin/pleg").exists(), "nothing is changed");
    assert_eq!(pids(&node), before);

    let upgraded = upgrade(&node, "pleg", &second, &[]);
    let steps = text(&upgraded);
    assert!(upgraded.status.success(), "{steps}\n{}", node.log());
    for step in [
        "checked",
        "installed",
        "drained",
        "activated",
        "restarted",
        "done",
    ] {
        assert!(
            steps.contains(&format!("pleg: {step}: ")),
            "{step}: {steps}"
        );
    }
    assert_only_restarted(&node, &before, "pleg");
    assert_eq!(active(&node, "pleg"), version_file("pleg", SECOND));
    let file = node.path("bin").join(version_file("pleg", SECOND));
    assert_eq!(running_file(&node, "pleg"), fs::canonicalize(file).unwrap());
    assert!(node.path("run/pleg/drained").exists());

    let again = upgrade(&node, "pleg", &second, &[]);
    assert!(again.status.success(), "{}", text(&again));
    assert!(
        text(&again).contains("pleg: unchanged: "),
        "{}",
        text(&again)
    );

    let before = pids(&node);
    let back = node.run(&["rollback", "pleg"]);
    assert!(back.status.success(), "{}", text(&back));
    assert_only_restarted(&node, &before, "pleg");
    assert_eq!(active(&node, "pleg"), version_file("pleg", FIRST));
    let none = node.run(&["rollback", "pleg"]);
    assert!(!none.status.success());
    let expected = "pleg has not been upgraded from another version";
    assert!(text(&none).contains(expected), "{}", text(&none));

    let records = history(&node);
    assert_eq!(records.len(), 2, "{records:?}");
    for (record, (kind, from, to)) in records
        .iter()
        .zip([("upgrade", FIRST, SECOND), ("rollback", SECOND, FIRST)])
    {
        assert_eq!(record["kind"], kind, "{record}");
        assert_eq!(record["service"], "pleg");
        assert_eq!(record["fromVersion"], from);
        assert_eq!(record["toVersion"], to);
        assert_eq!(record["step"], "done");
        assert_eq!(record["resumed"], false);
        assert_ne!(record["finishedAt"], "");
    }
    let table = text(&node.run(&["history"]));
    assert_eq!(table.lines().count(), 3, "{table}");
}

#[test]
fn all_services_are_upgraded_callees_first_and_rolled_back_callers_first() {
    let node = Node::started();
    let directory = node.path("new");
    fs::create_dir(&directory).unwrap();
    for service in SERVICES {
        build(&node, &format!("new/polylet-{service}"));
    }
    let to = directory.to_str().unwrap();
    let upgraded = node.run(&["upgrade", "--all", "--to", to]);
    assert!(
        upgraded.status.success(),
        "{}\n{}",
        text(&upgraded),
        node.log()
    );
    let order = |output: &Output| -> Vec<String> {
        let done = text(output);
        let done = done.lines().filter_map(|line| line.split_once(": done: "));
        done.map(|(service, _)| service.to_owned()).collect()
    };
    assert_eq!(order(&upgraded), SERVICES);
    let back = node.run(&["rollback", "--all"]);
    assert!(back.status.success(), "{}", text(&back));
    let mut callers_first = SERVICES;
    callers_first.reverse();
    assert_eq!(order(&back), callers_first);
    let records = history(&node);
    assert_eq!(records.len(), 2 * SERVICES.len());
    assert!(records.iter().all(|record| record["step"] == "done"));

    fs::remove_file(node.path("new/polylet-prober")).unwrap();
    let incomplete = node.run(&["upgrade", "--all", "--to", to]);
    assert!(!incomplete.status.success());
    assert!(
        text(&incomplete).contains("new/polylet-prober"),
        "{}",
        text(&incomplete)
    );
}

#[test]
fn programs_that_do_not_fit_are_refused() {
    let node = Node::started();
    let before = pids(&node);
    let none = serde_json::json!([]);
    let calls = serde_json::json!([
        {"service": "pleg", "package": "polylet.pleg.v1", "level": 9},
    ]);
    let too_new = script(
        &node,
        "too-new",
        &descriptor("prober", &calls, &none),
        "exit 1",
    );
    let other = script(
        &node,
        "other",
        &descriptor("eviction", &none, &none),
        "exit 1",
    );
    let broken = script(&node, "broken", &Value::from("x"), "exit 1");
    for (program, expected) in [
        (
            &too_new,
            "prober needs polylet.pleg.v1 of pleg at level 9, but pleg would serve level 0",
        ),
        (&other, "the program is that of eviction, not of prober"),
        (&broken, "did not print a descriptor"),
        (&node.path("missing"), "No such file or directory"),
    ] {
        let refused = upgrade(&node, "prober", program, &[]);
        assert_eq!(refused.status.code(), Some(70), "{}", text(&refused));
        assert!(text(&refused).contains(expected), "{}", text(&refused));
    }
    let unknown = upgrade(&node, "unknown", &too_new, &[]);
    assert!(text(&unknown).contains("unknown is not a service that can be upgraded"));
    assert_eq!(pids(&node), before);
    assert_eq!(history(&node), Vec::<Value>::new());
}

#[test]
fn a_program_that_does_not_work_is_rolled_back_by_itself() {
    let node = Node::started();
    let before = pids(&node);
    let none = serde_json::json!([]);
    let described = descriptor("prober", &none, &none);
    let hangs = script(&node, "hangs", &described, "exec sleep 600");
    let exits = script(&node, "exits", &described, "exit 3");
    let args = ["upgrade", "prober", "--timeout", "2s", "--to"];
    for (program, cause) in [
        (&hangs, "prober is not serving: it is not ready"),
        (&exits, "times: it is not ready; before: exit code 3"),
    ] {
        let failed = node.run(&[&args[..], &[program.to_str().unwrap()]].concat());
        let steps = text(&failed);
        assert_eq!(failed.status.code(), Some(70), "{steps}");
        for step in ["restarted", "rolling back", "rolled back"] {
            assert!(
                steps.contains(&format!("prober: {step}: ")),
                "{step}: {steps}"
            );
        }
        assert!(steps.contains("prober was rolled back: "), "{steps}");
        assert!(steps.contains(cause), "{steps}");
        assert_eq!(active(&node, "prober"), version_file("prober", FIRST));
        let record = history(&node).pop().unwrap();
        assert_eq!(record["step"], "rolled back", "{record}");
        assert!(
            record["cause"].as_str().unwrap().contains(cause),
            "{record}"
        );
    }
    for (name, pid) in pids(&node) {
        assert_eq!(before.contains(&(name.clone(), pid)), name != "prober");
    }
}

#[test]
fn a_program_without_a_way_back_has_to_be_accepted() {
    let node = Node::started();
    let file = |oldest: u32, written: u32| {
        serde_json::json!([{
            "path": "run:x.json",
            "format": {"written": written, "oldest_read": oldest},
        }])
    };
    let none = serde_json::json!([]);
    // What runs comes from a script, too, as the fake service has no state.
    let fake = node.path("polylet-pleg");
    std::os::unix::fs::symlink(build(&node, "fake"), &fake).unwrap();
    let run = format!("exec {} \"$@\"", fake.display());
    let first = script(
        &node,
        "first",
        &descriptor("pleg", &none, &file(1, 1)),
        &run,
    );
    let second = script(
        &node,
        "newer",
        &descriptor("pleg", &none, &file(1, 2)),
        &run,
    );
    let installed = upgrade(&node, "pleg", &first, &[]);
    assert!(
        installed.status.success(),
        "{}\n{}",
        text(&installed),
        node.log()
    );
    let refused = upgrade(&node, "pleg", &second, &[]);
    assert!(!refused.status.success());
    let expected = "there would be no way back: pleg would not read run:x.json, which is written at \
                    version 2: it reads 1 to 1";
    assert!(text(&refused).contains(expected), "{}", text(&refused));
    let accepted = upgrade(&node, "pleg", &second, &["--one-way"]);
    assert!(accepted.status.success(), "{}", text(&accepted));
    let back = node.run(&["rollback", "pleg"]);
    assert!(
        text(&back).contains("pleg would not read run:x.json"),
        "{}",
        text(&back)
    );
}

#[test]
fn an_upgrade_continues_after_the_supervisor_was_killed() {
    let mut node = Node::started();
    // Until its first step is recorded, which follows the installation, an upgrade has not begun.
    for (version, step) in (2..).zip(["drained", "activated", "restarted"]) {
        let program = build(&node, &format!("build-{version}"));
        let to = program.to_str().unwrap();
        let mut command = node.command(&["upgrade", "eviction", "--to", to]);
        let mut command = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(command.stdout.take().unwrap()).lines();
        let reached = format!("eviction: {step}: ");
        assert!(
            lines
                .map_while(Result::ok)
                .any(|line| line.starts_with(&reached)),
            "{step}\n{}",
            node.log()
        );
        let children = pids(&node);
        node.signal(Signal::KILL);
        assert!(!command.wait().unwrap().success());
        node.until("the end of the services", || {
            children.iter().all(|(_, pid)| !alive(*pid))
        });
        node.start();
        let name = format!("0.0.1-{version}");
        node.until("the end of the upgrade", || {
            let last = history(&node).pop().unwrap_or_default();
            last["toVersion"] == name.as_str() && last["finishedAt"] != ""
        });
        let last = history(&node).pop().unwrap();
        assert_eq!(last["step"], "done", "{step}: {last}");
        assert_eq!(last["resumed"], true, "{step}: {last}");
        assert_eq!(active(&node, "eviction"), version_file("eviction", &name));
        node.until_serving();
    }
}

#[test]
fn a_rollback_continues_after_the_supervisor_was_killed() {
    let mut node = Node::started();
    let none = serde_json::json!([]);
    let described = descriptor("prober", &none, &none);
    let hangs = script(&node, "hangs", &described, "exec sleep 600");
    let to = hangs.to_str().unwrap();
    let mut command = node.command(&["upgrade", "prober", "--timeout", "1s", "--to", to]);
    let mut command = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(command.stdout.take().unwrap()).lines();
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.starts_with("prober: rolling back: "))
    );
    let supervisor = node.supervisor.as_ref().unwrap().id();
    kill(u64::from(supervisor), Signal::KILL);
    node.supervisor.take().unwrap().wait().unwrap();
    command.wait().unwrap();
    node.start();
    node.until("the end of the rollback", || {
        let last = history(&node).pop().unwrap_or_default();
        last["step"] == "rolled back"
    });
    assert_eq!(active(&node, "prober"), version_file("prober", FIRST));
    node.until_serving();
}
