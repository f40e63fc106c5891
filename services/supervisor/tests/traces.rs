//! `polylet trace` over many traces, with fake services that each record the start of a pod.

mod fixture;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use serde_json::Value;

use fixture::output::{error, text};
use fixture::upgrade::{build_supervisor, upgrade};
use fixture::{Node, POLYLET, SERVICES, TIMEOUT, kill};

fn json(output: &Output) -> Value {
    serde_json::from_str(&text(output)).unwrap()
}

fn traces(node: &Node, args: &[&str]) -> Vec<Value> {
    let list = node.run(&[&["trace", "list", "-o", "json"], args].concat());
    json(&list)["traces"].as_array().unwrap().clone()
}

/// A node whose services have all recorded a start.
fn node() -> Node {
    let node = Node::started();
    node.until("the ends of all starts", || {
        traces(&node, &[]).len() == SERVICES.len()
    });
    node
}

/// Has a service restarted, which records another start.
fn restart(node: &Node, service: &str) {
    let pid = node.service(service)["pid"].as_u64().unwrap();
    kill(pid, rustix::process::Signal::KILL);
}

#[test]
fn starts_are_listed_summed_up_and_explained() {
    let node = node();
    let all = traces(&node, &[]);
    for trace in &all {
        assert_eq!(
            (&trace["root"], &trace["outcome"]),
            (&"pod.start".into(), &"ready".into())
        );
        assert_eq!(trace["versions"].as_object().unwrap().len(), 1, "{trace}");
    }
    let ends: Vec<_> = all.iter().map(|trace| trace["end"].to_string()).collect();
    assert!(ends.iter().any(|end| *end != ends[0]), "{ends:?}");
    let list = text(&node.run(&["trace", "list"]));
    assert!(list.starts_with("AGE "), "{list}");
    assert_eq!(list.lines().count(), 1 + SERVICES.len(), "{list}");
    assert!(
        list.contains("  default/demo  ") && list.contains("fake_service.start"),
        "{list}"
    );

    // Filters apply on the node.
    for (args, count) in [
        (&["--outcome", "failed"][..], 0),
        (&["--namespace", "other"], 0),
        (&["--namespace", "default", "--since", "1h"], SERVICES.len()),
        (&["--until", "1h"], 0),
        (&["--root", "container.exit"], 0),
        (&["--slower-than", "1h"], 0),
        (&["--version", "pleg=0.0.1"], 1),
    ] {
        assert_eq!(traces(&node, args).len(), count, "{args:?}");
    }
    let none = node.run(&["trace", "list", "--outcome", "failed"]);
    assert_eq!(
        error(&none, 1),
        "polylet: no trace that has ended matches the filters"
    );
    let unknown = node.run(&["trace", "top", "--version", "pleg=9"]);
    let seen = error(&unknown, 1);
    let expected = "polylet: no trace with pleg 9; seen are 0.0.1";
    // With the ID of the build, which all fake services share.
    assert!(seen.starts_with(expected), "{seen}");

    let top = text(&node.run(&["trace", "top"]));
    let count = SERVICES.len();
    let expected = format!("{count} traces; total p50 ");
    assert!(top.starts_with(&expected), "{top}");
    assert!(top.contains("pleg/fake_service.start"), "{top}");
    let by_owner = node.run(&["trace", "top", "--by", "owner", "-o", "json"]);
    let groups = json(&by_owner)["groups"].clone();
    assert_eq!(
        (&groups[0]["name"], &groups[0]["traces"]),
        (&"polylet".into(), &count.into())
    );
    let args = [
        "trace",
        "top",
        "--what-if",
        "fake_service.start=-1h",
        "-o",
        "json",
    ];
    let effect = json(&node.run(&args))["whatIf"][0].clone();
    assert_eq!(
        (&effect["traces"], &effect["totalUsThen"]["max"]),
        (&count.into(), &0.into())
    );
    let unknown = node.run(&["trace", "top", "--what-if", "nothing=-1s"]);
    assert!(error(&unknown, 1).contains("no trace waited for nothing; steps are "));

    let id = all[0]["traceId"].as_str().unwrap();
    let why = json(&node.run(&["trace", "why", id, "-o", "json"]));
    assert_eq!(
        (&why["trace"]["traceId"], &why["others"]),
        (&all[0]["traceId"], &(count - 1).into())
    );
    let why = text(&node.run(&["trace", "why", "default/demo"]));
    assert!(why.starts_with("pod.start of default/demo: "), "{why}");
    // Pods with the names of commands are reachable.
    let missing = node.run(&["trace", "default/list"]);
    assert_eq!(error(&missing, 1), "polylet: trace not found: default/list");
}

#[test]
fn recorded_traces_are_read_without_a_node() {
    let mut node = node();
    let file = node.path("traces.jsonl");
    let path = file.to_str().unwrap().to_owned();
    // All that have ended, and the next one.
    let count = SERVICES.len() + 1;
    let starts = count.to_string();
    let args = [
        "trace", "record", &path, "--since", "1h", "--starts", &starts, "-o", "json",
    ];
    let recording = node.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    restart(&node, "pleg");
    let recorded = recording.wait_with_output().unwrap();
    assert_eq!(json(&recorded)["traces"], count);
    let on_node = traces(&node, &[]);
    node.signal(rustix::process::Signal::TERM);

    let from = |args: &[&str]| {
        let mut command = Command::new(POLYLET);
        command
            .args(args)
            .args(["--config"])
            .arg(node.path("config.yaml"));
        command.stdin(Stdio::null()).output().unwrap()
    };
    let list = json(&from(&["trace", "list", "-o", "json", "--from", &path]));
    // A summary tells nothing else than the spans do.
    assert_eq!(list["traces"].as_array().unwrap(), &on_node);
    let top = text(&from(&["trace", "top", "--from", &path]));
    assert!(top.starts_with(&format!("{count} traces; ")), "{top}");
    let one = text(&from(&["trace", "demo", "--from", &path]));
    assert!(one.contains("fake_service.start result=n1"), "{one}");
    let why = text(&from(&["trace", "why", "demo", "--from", &path]));
    let others = format!("{} others of this shape", count - 1);
    assert!(why.contains(&others), "{why}");
    let missing = from(&["trace", "other", "--from", &path]);
    assert_eq!(error(&missing, 1), "polylet: trace not found: other");

    // A line that is cut off does not hide the others.
    let content = fs::read_to_string(&file).unwrap();
    fs::write(&file, content.trim_end().trim_end_matches('}')).unwrap();
    let partial = from(&["trace", "list", "--from", &path]);
    // The header, and all but the last one.
    let lines = String::from_utf8_lossy(&partial.stdout).lines().count();
    assert_eq!(lines, count);
    let message = error(&partial, 65);
    assert!(
        message.starts_with(&format!("polylet: {path}:{count}: ")),
        "{message}"
    );
    let gone = from(&["trace", "list", "--from", "/nowhere/x"]);
    assert_eq!(
        error(&gone, 65),
        "polylet: /nowhere/x: No such file or directory (os error 2)"
    );
}

#[test]
fn recording_ends_at_a_signal_and_leaves_no_partial_file() {
    let node = node();
    let file = node.path("traces.jsonl");
    let path = file.to_str().unwrap();
    let args = ["trace", "record", path, "--since", "1h", "-o", "json"];
    let recording = node.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let is_begun = || {
        let mut entries = fs::read_dir(node.dir.path()).unwrap();
        entries.any(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            name.starts_with(".traces.jsonl.")
        })
    };
    node.until("the recording", is_begun);
    kill(u64::from(recording.id()), rustix::process::Signal::INT);
    let ended = recording.wait_with_output().unwrap();
    assert!(!is_begun());
    // Whether traces were read by then is a matter of time.
    match ended.status.code() {
        Some(0) => {
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            assert_eq!(json(&ended)["traces"], lines);
        }
        Some(1) => assert!(!file.exists()),
        code => panic!("{code:?}"),
    }
    let none = node.run(&[
        "trace",
        "record",
        path,
        "--for",
        "10ms",
        "--outcome",
        "failed",
    ]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("was not written"));
    let nowhere = node.run(&[
        "trace",
        "record",
        "/nowhere/x",
        "--starts",
        "1",
        "-o",
        "json",
    ]);
    let message = error(&nowhere, 70);
    assert_eq!(
        message,
        "polylet: writing /nowhere/x: No such file or directory (os error 2)"
    );
}

#[test]
fn traces_are_followed_across_an_upgrade_of_the_supervisor() {
    let node = node();
    let mut following = node.command(&["trace", "follow", "-o", "json"]);
    let mut following = following.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let (sender, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines {
            if sender.send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    // Whether it follows already is not known until the first line.
    loop {
        restart(&node, "prober");
        match received.recv_timeout(Duration::from_secs(5)) {
            Ok(line) => {
                assert!(line.contains(r#""prober":"0.0.1"#), "{line}");
                break;
            }
            Err(error) => assert_eq!(error, RecvTimeoutError::Timeout),
        }
    }
    let before = traces(&node, &[]).len();
    let upgraded = upgrade(&node, "supervisor", &build_supervisor(&node, "second"), &[]);
    assert!(upgraded.status.success(), "{}", node.log());
    assert!(traces(&node, &[]).len() >= before, "summaries are kept");
    restart(&node, "eviction");
    let mut seen = Vec::new();
    loop {
        let line = received.recv_timeout(TIMEOUT).unwrap();
        let trace: Value = serde_json::from_str(&line).unwrap();
        assert!(!seen.contains(&trace["traceId"]), "{trace}");
        seen.push(trace["traceId"].clone());
        if trace["versions"]["eviction"].is_string() {
            break;
        }
    }
    kill(u64::from(following.id()), rustix::process::Signal::KILL);
    following.wait().unwrap();
}
