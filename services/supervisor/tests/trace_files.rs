//! `polylet trace` with files of traces, without services.

mod fixture;

use std::fs;

use jiff::Timestamp;
use polylet_trace::format::otlp_json;
use polylet_trace::{SpanRecord, Trace};
use serde_json::Value;

use fixture::Node;
use fixture::output::{error, text};

/// A file with the starts of pods, which took so long for their sandboxes.
fn file_of_starts(node: &Node, name: &str, version: &str, sandbox: i64) -> String {
    let at = |millis| Timestamp::from_millisecond(1_700_000_000_000 + millis).unwrap();
    let attributes = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let start = |n: u8| {
        let begin = i64::from(n) * 1_000;
        let root = SpanRecord {
            trace: [n; 16],
            span: [n; 8],
            parent: None,
            service: "supervisor".to_owned(),
            version: String::new(),
            name: "pod.start".to_owned(),
            start: at(begin),
            end: at(begin + sandbox + i64::from(n) + 100),
            attributes: attributes(&[
                ("k8s.pod.name", "web"),
                ("k8s.namespace.name", "default"),
                ("polylet.outcome", "ready"),
            ]),
            error: None,
            links: Vec::new(),
        };
        let step = |id, name: &str, from, to| SpanRecord {
            span: [id; 8],
            parent: Some(root.span),
            service: "sync-coordinator".to_owned(),
            version: version.to_owned(),
            name: name.to_owned(),
            start: at(begin + from),
            end: at(begin + to),
            attributes: attributes(&[("k8s.container.name", "web")]),
            ..root.clone()
        };
        let created = sandbox + i64::from(n);
        let spans = vec![
            step(0xf0, "cri.RunPodSandbox", 0, created),
            step(0xf1, "sync.start", created, created + 100),
            root.clone(),
        ];
        Trace { id: [n; 16], spans }
    };
    let traces: Vec<Trace> = (1..=20).map(start).collect();
    let path = node.path(name);
    let mut file = fs::File::create(&path).unwrap();
    otlp_json::write(&traces, &mut file).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn two_sets_of_traces_are_compared_and_exported() {
    let node = Node::prepared();
    let a = file_of_starts(&node, "a.jsonl", "0.1.0", 200);
    let b = file_of_starts(&node, "b.jsonl", "0.2.0", 300);
    let compared = text(&node.run(&["trace", "diff", &a, &b]));
    let sandbox = |line: &&str| line.contains("cri.RunPodSandbox");
    let line = compared.lines().find(sandbox).unwrap();
    assert!(line.contains("slower"), "{compared}");
    assert!(compared.contains("0.1.0 -> 0.2.0"), "{compared}");
    let failed = node.run(&["trace", "diff", &a, &b, "--fail-on", "slower", "-o", "json"]);
    assert_eq!(
        error(&failed, 2),
        "polylet: the second set of traces is slower"
    );
    let comparison: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(comparison["shapes"][0]["total"]["verdict"], "slower");
    text(&node.run(&["trace", "diff", &b, &a, "--fail-on", "slower"]));
    let same = node.run(&["trace", "diff", &a, &a]);
    assert!(error(&same, 64).contains("A and B are the same set of traces"));
    // Both sets out of the same traces.
    let (before, after) = ("sync-coordinator=0.1.0", "sync-coordinator=0.2.0");
    let both = ["--from", &a, &b];
    let versions = node.run(&[&["trace", "diff", before, after][..], &both].concat());
    assert!(text(&versions).contains("slower"));
    let unknown = ["trace", "diff", before, "sync-coordinator=0.3.0"];
    let unknown = node.run(&[&unknown[..], &both].concat());
    assert_eq!(
        error(&unknown, 1),
        "polylet: sync-coordinator=0.3.0: no trace with sync-coordinator 0.3.0; seen are 0.1.0, 0.2.0"
    );

    let export = ["trace", "export", "otlp-json", "--from", &a];
    assert_eq!(text(&node.run(&export)), fs::read_to_string(&a).unwrap());
    let to = node.path("one.jsonl");
    let to = to.to_str().unwrap();
    let id = "03".repeat(16);
    let one = [
        "trace",
        "export",
        "otlp-json",
        &id,
        "--to",
        to,
        "--from",
        &a,
    ];
    assert_eq!(text(&node.run(&one)), "");
    let written = fs::read_to_string(to).unwrap();
    assert_eq!(
        fs::read_to_string(&a).unwrap().lines().nth(2),
        Some(written.trim_end())
    );
    for (format, begin) in [
        ("chrome", "{\"displayTimeUnit\""),
        ("folded", ""),
        ("svg", "<svg"),
        ("perfetto", ""),
    ] {
        let one = node.run(&["trace", "export", format, &id, "--from", &a]);
        assert!(one.status.success(), "{format}");
        let content = String::from_utf8_lossy(&one.stdout);
        assert!(content.starts_with(begin), "{format}: {content}");
        assert!(content.contains("cri.RunPodSandbox"), "{format}: {content}");
    }
    let all = node.run(&["trace", "export", "svg", "--from", &a]);
    assert!(error(&all, 64).contains("svg draws one trace, and 20 match"));
    let page = |name: &str| fs::read_to_string(node.path(name)).unwrap();
    let report = node.path("report.html").display().to_string();
    text(&node.run(&["trace", "report", &report, "--from", &a, &b]));
    assert!(page("report.html").starts_with("<!DOCTYPE html>"));
    assert!(page("report.html").contains("40 traces of pod.start"));
    let report = node.path("diff.html").display().to_string();
    text(&node.run(&["trace", "diff", &a, &b, "--html", &report]));
    assert!(page("diff.html").contains("cri.RunPodSandbox"));
    // A directory, a pipe or a device is not replaced.
    let directory = node.dir.path().to_str().unwrap();
    let refused = node.run(&[
        "trace",
        "export",
        "otlp-json",
        "--to",
        directory,
        "--from",
        &a,
    ]);
    assert!(error(&refused, 70).ends_with(": not a regular file"));
}
