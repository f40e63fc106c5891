//! Upgrades of services: real processes, sockets, signals and files. The services have no function.

mod fixture;

use std::fs;
use std::process::Output;

use serde_json::Value;

use fixture::upgrade::{
    FIRST, SECOND, active, assert_only_restarted, build, build_supervisor, descriptor, history,
    pids, running_file, script, text, upgrade, version_file,
};
use fixture::{Node, SERVICES};

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
    build_supervisor(&node, "new/polylet");
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
    let mut callees_first = SERVICES.to_vec();
    callees_first.push("supervisor");
    assert_eq!(order(&upgraded), callees_first);
    let back = node.run(&["rollback", "--all"]);
    assert!(back.status.success(), "{}", text(&back));
    callees_first.reverse();
    assert_eq!(order(&back), callees_first);
    let records = history(&node);
    assert_eq!(records.len(), 2 * (SERVICES.len() + 1));
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
