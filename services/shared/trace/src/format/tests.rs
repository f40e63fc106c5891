//! What all formats have to hold, for a pod's start, for hostile texts, and for any spans.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

use super::{chrome, folded, svg};
use crate::span::{POD_NAME, POD_NAMESPACE, SpanRecord, hex};
use crate::trace::Trace;

fn span(id: u8, parent: u8, step: (&str, &str), start: i64, end: i64) -> SpanRecord {
    SpanRecord {
        trace: [7; 16],
        span: [id; 8],
        parent: (parent != 0).then_some([parent; 8]),
        service: step.0.to_owned(),
        version: "0.1.0".to_owned(),
        name: step.1.to_owned(),
        start: Timestamp::from_microsecond(1_700_000_000_000_000 + start).unwrap(),
        end: Timestamp::from_microsecond(1_700_000_000_000_000 + end).unwrap(),
        attributes: BTreeMap::new(),
        error: None,
        links: Vec::new(),
    }
}

/// A pod's start: its root has the second half of the trace's ID, as derived ones do.
pub(super) fn pod_start() -> Trace {
    let mut spans = vec![
        span(7, 0, ("supervisor", "pod.start"), 0, 420_000),
        span(1, 7, ("pod-config", "podconfig.observe"), 0, 3_000),
        span(2, 7, ("sync-coordinator", "sync.sandbox"), 4_000, 210_000),
        span(
            3,
            2,
            ("sync-coordinator", "cri.RunPodSandbox"),
            5_000,
            205_000,
        ),
        span(4, 7, ("volume-manager", "volume.mount"), 4_500, 30_000),
        span(5, 7, ("sync-coordinator", "sync.create"), 211_000, 260_000),
        span(
            6,
            5,
            ("sync-coordinator", "cri.CreateContainer"),
            212_000,
            258_000,
        ),
        // Overlaps the one before.
        span(8, 7, ("sync-coordinator", "sync.pull"), 100_000, 230_000),
        span(9, 7, ("sync-coordinator", "sync.start"), 261_000, 350_000),
        span(10, 7, ("prober", "probe.http"), 352_000, 400_000),
        span(11, 10, ("status-reporter", "status.join"), 401_000, 420_000),
    ];
    let pod = [
        (POD_NAME, "web"),
        (POD_NAMESPACE, "default"),
        ("polylet.outcome", "ready"),
    ];
    spans[0].attributes = pod
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    spans[5].links = vec![format!("{}-{}", hex(&[7; 16]), hex(&[2; 8]))];
    spans[8].error = Some("no such image".to_owned());
    Trace { id: [7; 16], spans }
}

/// The same with texts that would do harm if a format took them for its own.
pub(super) fn hostile() -> Trace {
    let mut trace = pod_start();
    let text = "\"'</script><svg onload=alert(1)>&amp;]]>\\\n\r;\u{0}\u{1b}[31m\u{202e}\u{ffff}é🦀";
    let long = text.repeat((10 << 20) / text.len());
    for span in &mut trace.spans {
        span.service = format!("{}{text}", span.service);
        span.name = format!("{}{text}", span.name);
        span.version = text.to_owned();
        span.error = Some(text.to_owned());
        span.attributes.insert(text.to_owned(), text.to_owned());
    }
    trace.spans[0]
        .attributes
        .insert(POD_NAME.to_owned(), text.to_owned());
    trace.spans[3]
        .attributes
        .insert("long".to_owned(), long.clone());
    trace.spans[4].name = long;
    trace
}

pub(super) fn any_trace() -> impl Strategy<Value = Trace> {
    let any_span = (
        1..30_u8,
        0..30_u8,
        0..3_usize,
        (0..100_i64, -5..60_i64),
        prop::option::of(1..30_u8),
    );
    prop::collection::vec(any_span, 0..25).prop_map(|spans| {
        let spans = spans
            .into_iter()
            .map(|(id, parent, service, (start, long), link)| {
                let step = ([("a", "sync.x"), ("b", "cri.PullImage"), ("c", "")])[service];
                let mut span = span(id, parent, step, start, start + long);
                span.links = link
                    .map(|id| format!("{}-{}", hex(&[7; 16]), hex(&[id; 8])))
                    .into_iter()
                    .collect();
                span
            });
        Trace {
            id: [7; 16],
            spans: spans.collect(),
        }
    })
}

fn text(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Checks a file of Chrome's: slices of a thread nest, and flows have both ends at slices. Returns the numbers of slices
/// and flows.
fn check_chrome(traces: &[Trace]) -> (usize, usize) {
    let text = text(|to| chrome::write(traces, to));
    let file: Value = serde_json::from_str(&text).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let nanos = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as i64;
    let mut threads: HashMap<(u64, u64), Vec<(i64, i64)>> = HashMap::new();
    let mut flows: HashMap<u64, [Option<i64>; 2]> = HashMap::new();
    for event in events {
        let thread = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        match event["ph"].as_str().unwrap() {
            "X" => {
                let start = nanos(&event["ts"]);
                let end = start + nanos(&event["dur"]);
                for (from, to) in threads.entry(thread).or_default().iter() {
                    assert!(*from <= start && (end <= *to || *to <= start), "{event}");
                }
                threads.entry(thread).or_default().push((start, end));
            }
            kind @ ("s" | "f") => {
                let at = nanos(&event["ts"]);
                let inside = threads[&thread]
                    .iter()
                    .any(|(start, end)| *start <= at && at <= *end);
                assert!(inside, "{event}");
                let ends = flows.entry(event["id"].as_u64().unwrap()).or_default();
                let end = &mut ends[usize::from(kind == "f")];
                assert_eq!(end.replace(at), None);
            }
            "M" => assert!(event["args"]["name"].is_string()),
            other => panic!("{other}"),
        }
    }
    for [left, arrived] in flows.values() {
        assert!(left.unwrap() <= arrived.unwrap());
    }
    (threads.values().map(Vec::len).sum(), flows.len())
}

#[test]
fn chrome_has_nested_slices_and_flows() {
    let trace = pod_start();
    let segments = trace.critical_path().len();
    // The link, and the status that followed the probe.
    assert_eq!(
        check_chrome(std::slice::from_ref(&trace)),
        (trace.spans.len() + segments + 1, 2)
    );
    check_chrome(&[hostile()]);
    assert_eq!(check_chrome(&[]), (0, 0));
}

#[test]
fn of_several_roots_the_derived_one_is_that_of_the_stacks() {
    let derived = span(7, 0, ("a", "pod.start"), 25, 25);
    let other = span(1, 0, ("a", "sync.x"), 25, 80);
    let trace = Trace {
        id: derived.trace,
        spans: vec![other, derived],
    };
    assert!(trace.root().unwrap().is_derived_root());
    assert_eq!(check_folded(&trace), 0);
}

fn check_folded(trace: &Trace) -> i64 {
    let text = text(|to| folded::write(std::slice::from_ref(trace), to));
    let mut sum = 0;
    for line in text.lines() {
        let (stack, micros) = line.rsplit_once(' ').unwrap();
        sum += micros.parse::<i64>().unwrap();
        assert!(
            !stack.is_empty() && !stack.contains(char::is_control),
            "{line}"
        );
    }
    let root = trace.root().map_or(0, |root| {
        (root.end.as_microsecond() - root.start.as_microsecond()).max(0)
    });
    assert!(
        (sum - root).abs() <= text.lines().count() as i64,
        "{sum} {root}"
    );
    sum
}

#[test]
fn folded_stacks_sum_up_to_the_duration() {
    assert_eq!(check_folded(&pod_start()), 420_000);
    check_folded(&hostile());
    let text = text(|to| folded::write(&[pod_start(), pod_start()], to));
    let line = "pod.start;sync-coordinator/sync.sandbox;sync-coordinator/cri.RunPodSandbox ";
    assert!(text.contains(line), "{text}");
}

/// A reader of XML as strict as browsers are with `image/svg+xml`.
fn check_svg(trace: &Trace) -> usize {
    let text = text(|to| svg::write(trace, to));
    let document =
        roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}: {text:.2000}"));
    let allowed = ["svg", "style", "title", "text", "line", "rect", "g"];
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        assert!(allowed.contains(&node.tag_name().name()), "{node:?}");
        assert!(
            node.attributes()
                .all(|attribute| !attribute.name().starts_with("on"))
        );
    }
    let rows = document
        .descendants()
        .filter(|node| node.attribute("class") == Some("bar"));
    rows.count()
}

#[test]
fn svg_has_a_row_for_each_span() {
    assert_eq!(check_svg(&pod_start()), pod_start().spans.len());
    assert_eq!(check_svg(&hostile()), hostile().spans.len());
    assert_eq!(
        check_svg(&Trace {
            id: [7; 16],
            spans: Vec::new()
        }),
        0
    );
    let hostile = text(|to| svg::write(&hostile(), to));
    assert!(hostile.len() < 100_000, "{}", hostile.len());
    assert!(!hostile.contains(['\u{1b}', '\0', '\u{202e}']));
}

#[test]
fn a_storm_of_spans_is_drawn_in_part() {
    let mut trace = pod_start();
    for at in 0..5000_u64 {
        trace.spans.push(SpanRecord {
            span: (at + 1000).to_be_bytes(),
            ..trace.spans[3].clone()
        });
    }
    assert_eq!(check_svg(&trace), 1000);
    let (slices, _) = check_chrome_quickly(&trace);
    assert!(slices > 5000);
}

/// Without the quadratic check of nesting.
fn check_chrome_quickly(trace: &Trace) -> (usize, usize) {
    let text = text(|to| chrome::write(std::slice::from_ref(trace), to));
    let file: Value = serde_json::from_str(&text).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let count = |ph: &str| events.iter().filter(|event| event["ph"] == ph).count();
    (count("X"), count("s"))
}

proptest! {
    #[test]
    fn any_trace_can_be_shown(trace in any_trace()) {
        check_chrome(std::slice::from_ref(&trace));
        check_folded(&trace);
        prop_assert_eq!(check_svg(&trace), trace.spans.len());
    }
}
