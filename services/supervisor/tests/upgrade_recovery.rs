//! Upgrades that fail or are interrupted: real processes, sockets, signals and files. The services have no
//! function.

mod fixture;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;

use fixture::upgrade::{
    FIRST, active, build, descriptor, history, pids, script, text, upgrade, version_file,
};
use fixture::{Node, alive, kill};

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

#[test]
fn a_one_way_upgrade_that_cannot_be_activated_leaves_the_service_serving() {
    let node = Node::started();
    let none = serde_json::json!([]);
    let fake = node.path("polylet-pleg");
    std::os::unix::fs::symlink(build(&node, "fake"), &fake).unwrap();
    let run = format!("exec {} \"$@\"", fake.display());
    let program = |name: &str, written: u32| {
        let format = serde_json::json!({"written": written, "oldest_read": 1});
        let files = serde_json::json!([{"path": "run:x.json", "format": format}]);
        script(&node, name, &descriptor("pleg", &none, &files), &run)
    };
    let installed = upgrade(&node, "pleg", &program("first", 1), &[]);
    assert!(installed.status.success(), "{}", text(&installed));
    let before = (active(&node, "pleg"), pids(&node));
    // The link is replaced by a new one of this name.
    std::fs::create_dir_all(node.path("bin/.polylet-pleg.new/obstacle")).unwrap();
    let failed = upgrade(&node, "pleg", &program("newer", 2), &["--one-way"]);
    let steps = text(&failed);
    assert_eq!(failed.status.code(), Some(70), "{steps}");
    for step in ["drained", "rolling back", "restarted", "rolled back"] {
        assert!(
            steps.contains(&format!("pleg: {step}: ")),
            "{step}: {steps}"
        );
    }
    assert_eq!(active(&node, "pleg"), before.0);
    for (name, pid) in pids(&node) {
        let same = before.1.contains(&(name.clone(), pid));
        assert_eq!(same, name != "pleg", "{name}");
    }
    node.until_serving();
}
