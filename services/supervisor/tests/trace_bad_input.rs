//! `polylet trace` with files that are damaged, foreign or hostile, and outputs that cannot be written.

mod fixture;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use fixture::output::{error, text};
use fixture::{Node, POLYLET};

/// In nanoseconds.
const BEGIN: u64 = 1_700_000_000_000_000_000;
/// What one screen of text, with long names cut off, stays far below.
const MAX_TEXT: usize = 64 << 10;

/// A span: its ID, its parent's, its name, its times in nanoseconds, its attributes.
fn span(
    trace: &str,
    [id, parent]: [&str; 2],
    name: &str,
    times: [u64; 2],
    attributes: &Value,
) -> Value {
    let pairs = attributes.as_object().into_iter().flatten();
    let attribute =
        |(key, value): (&String, &Value)| json!({ "key": key, "value": { "stringValue": value } });
    json!({
        "traceId": trace, "spanId": id, "parentSpanId": parent, "name": name, "kind": 1,
        "startTimeUnixNano": times[0].to_string(), "endTimeUnixNano": times[1].to_string(),
        "attributes": pairs.map(attribute).collect::<Value>(),
    })
}

fn line(spans: &[Value]) -> String {
    let service = json!({ "key": "service.name", "value": { "stringValue": "polylet-pleg" } });
    json!({ "resourceSpans": [{
        "resource": { "attributes": [service] },
        "scopeSpans": [{ "spans": spans }],
    }] })
    .to_string()
}

/// A line with the start of a pod that took so many milliseconds.
fn start(n: u64, millis: u64) -> String {
    let trace = format!("{n:032x}");
    let from = BEGIN + n * 1_000_000_000;
    let times = [from, from + millis * 1_000_000];
    let named = json!({ "k8s.pod.name": format!("web-{n}"), "polylet.outcome": "ready" });
    let (root, step) = ("00000000000000a1", "00000000000000a2");
    line(&[
        span(&trace, [root, ""], "pod.start", times, &named),
        span(
            &trace,
            [step, root],
            "sync.start",
            times,
            &json!({ "k8s.container.name": "web" }),
        ),
    ])
}

fn written(node: &Node, name: &str, lines: &[String]) -> String {
    let path = node.path(name);
    fs::write(&path, lines.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

fn traces(output: &Output) -> usize {
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    listed["traces"].as_array().unwrap().len()
}

#[test]
fn a_line_that_cannot_be_read_is_named_and_the_rest_counts() {
    let node = Node::prepared();
    let mut lines: Vec<String> = (1..=20).map(|n| start(n, 100)).collect();
    lines[16].truncate(200);
    let file = written(&node, "truncated.jsonl", &lines);
    let listed = node.run(&["trace", "list", "-o", "json", "--from", &file]);
    let message = error(&listed, 65);
    let begin = format!("polylet: {file}:17: ");
    assert!(message.starts_with(&begin), "{message}");
    assert!(message.ends_with("(column 200)"), "{message}");
    assert_eq!(traces(&listed), 19);
    lines[2] = "{\"hello\": 1}\u{1b}[31m".to_owned();
    lines[3] = "something else".to_owned();
    let file = written(&node, "foreign.jsonl", &lines);
    for args in [
        &["trace", "top"][..],
        &["trace", "web-9"],
        &["trace", "why", "web-9"],
    ] {
        let shown = node.run(&[args, &["--from", &file]].concat());
        let message = error(&shown, 65);
        assert!(
            message.starts_with(&format!("polylet: {file}:3: ")),
            "{message}"
        );
        assert!(message.ends_with("(and 2 more lines)"), "{message}");
        assert!(
            !message.contains('\u{1b}') && !shown.stdout.is_empty(),
            "{message}"
        );
    }
    // What was asked for is exported all the same.
    let to = node.path("out.jsonl").display().to_string();
    let export = ["trace", "export", "otlp-json", "--to", &to, "--from", &file];
    error(&node.run(&export), 65);
    assert_eq!(fs::read_to_string(&to).unwrap().lines().count(), 17);
}

#[test]
fn sets_without_traces_or_of_the_same_traces_are_said() {
    let node = Node::prepared();
    let lines: Vec<String> = (1..=20).map(|n| start(n, 100)).collect();
    let file = written(&node, "starts.jsonl", &lines);
    let empty = written(&node, "empty.jsonl", &[]);
    let none = "no trace that has ended matches the filters";
    let top = node.run(&["trace", "top", "--from", &empty]);
    assert_eq!(error(&top, 1), format!("polylet: {none}"));
    let diff = node.run(&["trace", "diff", &file, &empty]);
    assert_eq!(error(&diff, 1), format!("polylet: {empty}: {none}"));
    let list = node.run(&["trace", "list", "-o", "json", "--from", &empty]);
    assert_eq!(traces(&list), 0);
    assert!(list.status.success());
    let same = node.run(&["trace", "diff", &file, &file]);
    assert!(error(&same, 64).contains("A and B are the same set of traces"));
    // Under another name it is seen by the traces.
    let link = node.path("link.jsonl");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let link = link.to_str().unwrap();
    let compared = text(&node.run(&["trace", "diff", &file, link, "--fail-on", "slower"]));
    assert!(
        compared.contains("warning: 20 traces are in both sets"),
        "{compared}"
    );
}

/// Commands that show one trace or all, and formats that they are exported in.
fn shown_in_every_way(node: &Node, file: &str, trace: &str) -> Vec<(String, Output)> {
    let report = node.path("report.html").display().to_string();
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["trace", trace],
        vec!["trace", trace, "-o", "json"],
        vec!["trace", "why", trace, "--root", "all"],
        vec!["trace", "list", "--root", "all"],
        vec!["trace", "top", "--root", "all"],
        vec!["trace", "report", &report, "--root", "all"],
    ];
    for format in ["otlp-json", "perfetto", "chrome", "folded", "svg"] {
        commands.push(vec!["trace", "export", format, trace]);
    }
    let run = |args: Vec<&str>| {
        (
            args.join(" "),
            node.run(&[&args[..], &["--from", file]].concat()),
        )
    };
    commands.into_iter().map(run).collect()
}

#[test]
fn impossible_traces_are_shown() {
    let node = Node::prepared();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let of = |ids, name: &str, times| span(trace, ids, name, times, &json!({}));
    let (a, b) = ("00000000000000a1", "00000000000000a2");
    let after = |nanos: u64| BEGIN + nanos;
    for (what, spans) in [
        (
            "a root whose child ends before it begins",
            [
                of([a, ""], "a", [after(9_000_000), after(0)]),
                of([b, a], "b", [after(7_000_000), after(2_000_000)]),
            ],
        ),
        (
            "times of 1970 and of the end of time",
            [of([a, ""], "a", [0, 5]), of([b, a], "b", [0, u64::MAX])],
        ),
        (
            "two roots",
            [
                of([a, ""], "a", [after(0), after(9_000_000)]),
                of([b, ""], "b", [after(3_000_000), after(20_000_000)]),
            ],
        ),
        (
            "a root, and a span that is its own parent",
            [
                of([a, ""], "a", [after(0), after(9_000_000)]),
                of([b, b], "b", [after(0), after(9_000_000)]),
            ],
        ),
    ] {
        let file = written(&node, "traces.jsonl", &[line(&spans)]);
        for (command, output) in shown_in_every_way(&node, &file, trace) {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command} with {what}: {errors}");
        }
    }
    // Nothing is the first of a cycle, so that it is the start of nothing.
    let cycle = [
        of([a, b], "a", [after(0), after(9)]),
        of([b, a], "b", [after(0), after(9)]),
    ];
    let file = written(&node, "cycle.jsonl", &[line(&cycle), start(1, 100)]);
    assert_eq!(
        traces(&node.run(&[
            "trace", "list", "-o", "json", "--root", "all", "--from", &file
        ])),
        1
    );
    let unknown = node.run(&["trace", trace, "--from", &file]);
    assert_eq!(
        error(&unknown, 1),
        format!("polylet: trace not found: {trace}")
    );
}

#[test]
fn a_huge_attribute_does_not_flood_texts() {
    let node = Node::prepared();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let huge = "x".repeat(10 << 20);
    let attributes =
        json!({ "k8s.pod.name": huge, "k8s.container.name": huge, "polylet.outcome": huge });
    let times = [BEGIN, BEGIN + 1_000_000];
    let spans = [
        span(
            trace,
            ["00000000000000a1", ""],
            "pod.start",
            times,
            &attributes,
        ),
        span(
            trace,
            ["00000000000000a2", "00000000000000a1"],
            "sync.start",
            times,
            &attributes,
        ),
    ];
    // A line may have 16 MiB.
    let mut lines = spans.map(|span| line(&[span]));
    for line in &mut lines {
        assert!(line.len() > 16 << 20);
    }
    let file = written(&node, "too_long.jsonl", &lines);
    let refused = node.run(&["trace", "list", "--from", &file]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains(":1: longer than 16 MiB"));
    let one = json!({ "k8s.pod.name": huge, "polylet.outcome": "ready" });
    let span = span(trace, ["00000000000000a1", ""], "pod.start", times, &one);
    let file = written(&node, "huge.jsonl", &[line(&[span])]);
    for (command, output) in shown_in_every_way(&node, &file, trace) {
        assert!(
            output.status.success(),
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let is_data = command.contains("export") || command.contains("json");
        let length = output.stdout.len();
        assert!(
            is_data || length < MAX_TEXT,
            "{command} prints {length} bytes"
        );
    }
    let page = fs::metadata(node.path("report.html")).unwrap().len();
    assert!(page < 1 << 20, "{page} bytes");
}

#[test]
fn outputs_that_cannot_be_written_leave_nothing() {
    let node = Node::prepared();
    let lines: Vec<String> = (1..=2_000).map(|n| start(n, 100)).collect();
    let file = written(&node, "starts.jsonl", &lines);
    // The reader of a pipe has seen enough.
    for args in [&["trace", "list"][..], &["trace", "export", "otlp-json"]] {
        let mut command = node.command(&[args, &["--from", &file]].concat());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(text(&ended), "");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut export = node.command(&["trace", "export", "chrome", "--from", &file]);
    let ended = export.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let message = error(&ended.wait_with_output().unwrap(), 70);
    assert_eq!(
        message,
        "polylet: writing /dev/stdout: No space left on device (os error 28)"
    );
    full_disk(&node, &file);
}

/// A disk of 64 KiB that nobody else sees, where the machine lets this process mount one.
fn full_disk(node: &Node, file: &str) {
    let disk = node.path("disk");
    fs::create_dir(&disk).unwrap();
    let on_disk = |script: &str| {
        let mount = "mount -t tmpfs -o size=64k tmpfs \"$0\" || exit 99";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command.arg(format!(
            "{mount}; {script}; code=$?; ls -A \"$0\" >&2; exit $code"
        ));
        command
            .arg(&disk)
            .arg(POLYLET)
            .arg(file)
            .arg(node.path("config.yaml"));
        command.output().unwrap()
    };
    if !on_disk("true").status.success() {
        println!("skipped: no file system can be mounted here");
        return;
    }
    for format in ["otlp-json", "chrome", "perfetto"] {
        let script =
            format!("\"$1\" trace export {format} --to \"$0/out\" --from \"$2\" --config \"$3\"");
        let output = on_disk(&script);
        let path = Path::new(&disk).join("out");
        // Then the names of what is left in the directory: nothing.
        let expected = format!(
            "polylet: writing {}: No space left on device (os error 28)",
            path.display()
        );
        assert_eq!(error(&output, 70), expected);
    }
}
