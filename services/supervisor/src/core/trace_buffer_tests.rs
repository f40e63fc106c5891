use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::cause::{OUTCOME_ATTRIBUTE, ROOT_ATTRIBUTE, outcome, root};
use proptest::prelude::*;

use super::*;
use polylet_trace::{POD_NAME, POD_NAMESPACE, POD_UID};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

fn span(trace: u8, pod: (&str, &str, &str), start: i64, end: i64) -> SpanRecord {
    let (uid, namespace, name) = pod;
    let attributes = [(POD_UID, uid), (POD_NAMESPACE, namespace), (POD_NAME, name)];
    SpanRecord {
        trace: [trace; 16],
        span: [trace.wrapping_add(1); 8],
        parent: None,
        service: "pleg".to_owned(),
        version: String::new(),
        name: "x".to_owned(),
        start: at(start),
        end: at(end),
        attributes: attributes.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        error: None,
        links: Vec::new(),
    }
}

/// A step below the root of its trace, with an attribute.
fn step(trace: u8, start: i64, end: i64, key: &str, value: &str) -> SpanRecord {
    let mut step = span(trace, ("u1", "ns", "web"), start, end);
    step.parent = Some([trace; 8]);
    step.attributes.insert(key.to_owned(), value.to_owned());
    step
}

/// A buffer with these spans.
fn filled(max_spans: usize, spans: &[SpanRecord]) -> (TraceBuffer, Instant) {
    let now = Instant::now();
    let mut buffer = TraceBuffer::new(max_spans, 1 << 20);
    for (n, span) in (0..).zip(spans) {
        buffer.push(span, now + Duration::from_millis(n));
    }
    (buffer, now)
}

fn restored(max_spans: usize, content: &str) -> TraceBuffer {
    let mut buffer = TraceBuffer::new(max_spans, 1 << 20);
    let mut content = serde_json::Deserializer::from_str(content);
    buffer.restore(&mut content, Instant::now()).unwrap();
    buffer
}

#[test]
fn another_program_takes_over_the_traces() {
    let spans = [1, 2, 3].map(|trace| span(trace, ("u1", "ns", "web"), trace.into(), 40));
    let (buffer, _) = filled(2, &spans);
    let content = serde_json::to_string(&buffer.content()).unwrap();
    let next = restored(2, &content);
    assert_eq!(next.trace([3; 16]), [spans[2].clone()]);
    assert_eq!((next.len(), next.dropped()), (2, 1));
    // With less room.
    let small = restored(1, &content);
    assert_eq!((small.len(), small.dropped()), (1, 2));
    // What programs before wrote.
    let older = content.replace(r#","ended":[]"#, "");
    assert_ne!(older, content);
    assert_eq!(restored(2, &older).len(), 2);
    let mut none = TraceBuffer::new(1, 10_000);
    let mut content = serde_json::Deserializer::from_str("{}");
    assert!(none.restore(&mut content, Instant::now()).is_err());
    assert!(none.is_empty());
}

#[test]
fn pod_is_found_by_uid_and_names() {
    let web = ("u1", "ns", "web");
    let (buffer, _) = filled(10, &[span(1, web, 10, 20), span(2, web, 30, 40)]);
    for query in ["u1", "web", "ns/web", &"01".repeat(16)] {
        assert_eq!(buffer.find(query), Some([1; 16]), "{query}");
    }
    for query in ["", "u2", "other/web", "ns/", "/web", &"03".repeat(16)] {
        assert_eq!(buffer.find(query), None, "{query}");
    }
    assert_eq!(buffer.trace([2; 16]).len(), 1);
}

#[test]
fn latest_pod_of_a_name_is_found() {
    let (first, second) = (("u1", "ns", "web"), ("u2", "ns", "web"));
    let spans = [
        span(1, first, 10, 20),
        span(2, second, 30, 40),
        span(3, second, 50, 60),
    ];
    let (buffer, _) = filled(10, &spans);
    assert_eq!(buffer.find("web"), Some([2; 16]));
    assert_eq!(buffer.find("u1"), Some([1; 16]));
}

#[test]
fn oversized_span_is_dropped() {
    let mut buffer = TraceBuffer::new(10, 5);
    buffer.push(&span(1, ("u", "n", "p"), 0, 1), Instant::now());
    assert!(buffer.is_empty());
    assert_eq!(buffer.find("u"), None);
    assert_eq!(buffer.dropped(), 1);
}

#[test]
fn a_storm_of_spans_is_cut_off() {
    let spans = vec![span(1, ("u", "n", "p"), 0, 1); MAX_SPANS_OF_TRACE + 3];
    let (buffer, _) = filled(10_000, &spans);
    assert_eq!((buffer.len(), buffer.dropped()), (MAX_SPANS_OF_TRACE, 3));
}

#[test]
fn whole_traces_are_dropped_failed_and_slow_ones_last() {
    let plain = |trace: u8| span(trace, ("u", "n", "p"), 0, 10);
    let mut spans: Vec<_> = (10..40)
        .flat_map(|trace| [plain(trace), plain(trace)])
        .collect();
    spans[0].error = Some("no".to_owned());
    spans[2].end = at(9_000);
    let (buffer, _) = filled(40, &spans);
    let kept = |trace: u8| buffer.trace([trace; 16]).len();
    assert_eq!([kept(10), kept(11), kept(12), kept(13)], [2, 2, 0, 0]);
    assert_eq!(kept(39), 2);
    assert_eq!(buffer.len() as u64 + buffer.dropped(), 60);
    assert!((37..=40).contains(&buffer.len()), "{}", buffer.len());
}

#[test]
fn a_full_buffer_makes_room_for_several_traces() {
    let spans: Vec<_> = (0..=100)
        .map(|trace| span(trace, ("u", "n", "p"), 0, 1))
        .collect();
    let (buffer, _) = filled(100, &spans);
    assert_eq!((buffer.len(), buffer.dropped()), (94, 7));
}

#[test]
fn the_root_of_an_ended_trace_is_reported_once() {
    let started = step(1, 10, 20, ROOT_ATTRIBUTE, root::POD_START);
    let ready = step(1, 30, 90, OUTCOME_ATTRIBUTE, outcome::READY);
    let (mut buffer, now) = filled(10, &[started]);
    let later = |seconds| now + Duration::from_secs(seconds);
    assert_eq!(buffer.take_ended(later(600)), None);
    // A trace that is shown before it ended has a root, too.
    let names = |buffer: &TraceBuffer| {
        buffer
            .trace([1; 16])
            .iter()
            .map(|span| span.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&buffer), ["pod.start", "x"]);
    buffer.push(&ready, later(600));
    assert_eq!(buffer.take_ended(later(601)), None);
    assert_eq!(buffer.next_end(), Some(later(602)));
    let ended = buffer.take_ended(later(602)).unwrap();
    let root = ended.derived_root.unwrap();
    assert_eq!((root.start, root.end), (at(10), at(90)));
    assert_eq!(ended.trace.root(), Some(&root));
    assert_eq!(ended.trace.spans.len(), 3);
    assert_eq!(buffer.take_ended(later(9_000)), None);
    assert_eq!(buffer.next_end(), None);
    // Nor by the program after.
    let content = serde_json::to_string(&buffer.content()).unwrap();
    assert_eq!(restored(10, &content).next_end(), None);
    assert_eq!(names(&restored(10, &content)), ["pod.start", "x", "x"]);
}

#[test]
fn a_trace_is_reported_again_when_spans_of_it_came_late() {
    let ready = step(1, 30, 90, OUTCOME_ATTRIBUTE, outcome::READY);
    let (mut buffer, now) = filled(10, &[ready]);
    let later = |seconds| now + Duration::from_secs(seconds);
    let first = buffer.take_ended(later(2)).unwrap();
    assert!(!first.is_revision);
    // What follows from the end, such as a probe, changes nothing of it.
    buffer.push(&step(1, 90, 95, "k", "v"), later(3));
    assert_eq!(buffer.next_end(), None);
    buffer.push(&step(1, 40, 60, "k", "v"), later(5));
    assert_eq!(buffer.next_end(), Some(later(7)));
    let again = buffer.take_ended(later(7)).unwrap();
    assert!(again.is_revision);
    assert_eq!(again.trace.spans.len(), first.trace.spans.len() + 2);
    assert_eq!(buffer.next_end(), None);
}

#[test]
fn the_runtime_that_sends_spans_is_waited_for() {
    let ready = |trace| step(trace, 30, 90, OUTCOME_ATTRIBUTE, outcome::READY);
    let now = Instant::now();
    let later = |seconds| now + Duration::from_secs(seconds);
    let mut buffer = TraceBuffer::new(10, 1 << 20);
    buffer.expect_from_runtime(now);
    buffer.push(&ready(1), later(599));
    assert_eq!(buffer.next_end(), Some(later(606)));
    assert!(buffer.take_ended(later(606)).is_some());
    // It sends no more.
    buffer.push(&ready(2), later(601));
    assert_eq!(buffer.next_end(), Some(later(603)));
    // Once a trace was reported, what comes late is reported soon.
    buffer.expect_from_runtime(later(610));
    buffer.push(&step(1, 40, 60, "k", "v"), later(610));
    assert_eq!(buffer.trace([1; 16]).len(), 3);
    assert!(buffer.take_ended(later(609)).is_some());
    assert_eq!(buffer.next_end(), Some(later(612)));
}

#[test]
fn traces_without_an_outcome_end_when_no_span_follows() {
    for (root, seconds) in [
        (root::POD_START, 3_600),
        (root::POD_DELETE, 60),
        (root::CONTAINER_EXIT, 10),
    ] {
        let (buffer, now) = filled(10, &[step(1, 0, 1, ROOT_ATTRIBUTE, root)]);
        assert_eq!(
            buffer.next_end(),
            Some(now + Duration::from_secs(seconds)),
            "{root}"
        );
    }
    // Without steps below a derived root there is nothing to tell.
    let (buffer, _) = filled(10, &[span(1, ("u", "n", "p"), 0, 1)]);
    assert_eq!(buffer.next_end(), None);
}

proptest! {
    #[test]
    fn bounds_hold_and_drops_are_counted(
        spans in prop::collection::vec((0..12_u8, 0..500_usize, any::<bool>()), 0..200),
        max_spans in 0..20_usize,
        max_bytes in 1..4000_usize,
    ) {
        let now = Instant::now();
        let mut buffer = TraceBuffer::new(max_spans, max_bytes);
        for (n, (trace, size, failed)) in spans.into_iter().enumerate() {
            let record = SpanRecord {
                name: "x".repeat(size),
                error: failed.then(String::new),
                ..span(trace, ("u", "n", "p"), n as i64, n as i64)
            };
            buffer.push(&record, now);
            prop_assert!(buffer.len() <= max_spans);
            prop_assert!(buffer.bytes <= max_bytes);
            prop_assert_eq!(buffer.len() as u64 + buffer.dropped(), n as u64 + 1);
            let traces = buffer.traces.values();
            prop_assert_eq!(buffer.bytes, traces.map(BufferedTrace::bytes).sum::<usize>());
        }
    }
}

#[test]
fn spans_of_a_trace_that_has_ended_take_less_memory_and_late_ones_join_them() {
    let mut spans: Vec<_> = (0..20).map(|n| step(1, n, n + 1, "key", "value")).collect();
    spans.push(step(1, 20, 30, OUTCOME_ATTRIBUTE, outcome::READY));
    let (mut buffer, now) = filled(100, &spans);
    let before = buffer.bytes;
    let later = now + Duration::from_secs(60);
    let ended = buffer.take_ended(later).unwrap();
    assert_eq!(buffer.pack(later), None);
    assert!(buffer.bytes * 2 < before, "{} of {before}", buffer.bytes);
    // With the root.
    assert_eq!(buffer.trace([1; 16]), ended.trace.spans);
    let late = step(1, 35, 40, "key", "late");
    let packed = buffer.bytes;
    buffer.push(&late, later);
    assert_eq!(buffer.len(), spans.len() + 1);
    assert!(buffer.trace([1; 16]).contains(&late));
    // It waits for others.
    let unpacked = buffer.bytes - packed;
    let due = buffer.pack(later).unwrap();
    assert!(due > later && buffer.bytes == packed + unpacked);
    let almost = due - Duration::from_millis(1);
    assert_eq!(
        (buffer.pack(almost), buffer.bytes),
        (Some(due), packed + unpacked)
    );
    assert_eq!(buffer.pack(due), None);
    assert!(buffer.bytes < packed + unpacked);
    assert!(buffer.trace([1; 16]).contains(&late));
    // One that changes what was told is told first.
    buffer.push(&step(1, 5, 40, "key", "late"), due);
    assert_eq!(buffer.pack(due + Duration::from_secs(60)), None);
    let revised = buffer.take_ended(due + Duration::from_secs(60));
    assert!(revised.is_some_and(|trace| trace.is_revision));
    // All of them are dropped together, and nothing of them counts any longer.
    buffer.max_spans = 1;
    buffer.push(&span(2, ("u2", "ns", "db"), 50, 60), later);
    assert_eq!(buffer.dropped(), spans.len() as u64 + 2);
    let kept: usize = buffer.traces.values().map(BufferedTrace::bytes).sum();
    assert_eq!((buffer.len(), buffer.bytes), (1, kept));
}

/// A start of a pod that has ended.
fn ended_start(trace: u8, failed: bool) -> Vec<SpanRecord> {
    let mut spans: Vec<_> = (0..10)
        .map(|n| step(trace, n, n + 1, "key", &format!("value {n}")))
        .collect();
    spans.push(step(trace, 10, 20, OUTCOME_ATTRIBUTE, outcome::READY));
    spans[0].error = failed.then(|| "not found".to_owned());
    spans
}

/// A buffer with traces that have ended and are compressed; those of `failed` failed.
fn packed(count: u8, failed: &[u8]) -> (TraceBuffer, Instant) {
    let spans = (0..count).flat_map(|trace| ended_start(trace, failed.contains(&trace)));
    let (mut buffer, now) = filled(100_000, &spans.collect::<Vec<_>>());
    let later = now + Duration::from_secs(60);
    while buffer.take_ended(later).is_some() {}
    assert_eq!(buffer.pack(later), None);
    (buffer, later)
}

fn memory_of_batches(buffer: &TraceBuffer) -> usize {
    let batches = buffer.traces.values().filter_map(BufferedTrace::batch);
    let batches: BTreeMap<_, _> = batches
        .map(|batch| (Arc::as_ptr(batch), batch.size()))
        .collect();
    batches.values().sum()
}

#[test]
fn traces_are_compressed_together_and_read_by_themselves() {
    let (buffer, _) = packed(20, &[]);
    let batches = buffer.traces.values().filter_map(BufferedTrace::batch);
    assert_eq!(
        batches
            .map(Arc::as_ptr)
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        3
    );
    assert!(memory_of_batches(&buffer).abs_diff(buffer.bytes) < 20);
    assert!(buffer.unsettled.is_empty(), "none is looked at again");
    let (alone, _) = packed(1, &[]);
    assert!(
        buffer.bytes < alone.bytes * 20 / 2,
        "{} and {}",
        buffer.bytes,
        alone.bytes
    );
    for trace in 0..20 {
        let spans = buffer.trace([trace; 16]);
        let expected = ended_start(trace, false);
        assert!(expected.iter().all(|span| spans.contains(span)), "{trace}");
    }
}

/// Those that failed are kept when the others go, and not the memory of these.
#[test]
fn the_remaining_traces_of_a_batch_are_recompressed() {
    let failed = [3, 11, 19, 27, 35, 43, 51, 59];
    let (mut buffer, later) = packed(64, &failed);
    buffer.max_spans = 11 * (failed.len() + 1);
    buffer.push(&span(100, ("u2", "ns", "db"), 50, 60), later);
    for trace in failed {
        assert_eq!(buffer.trace([trace; 16]).len(), 12, "{trace}");
    }
    let kept: usize = buffer.traces.values().map(BufferedTrace::bytes).sum();
    assert_eq!(kept, buffer.bytes);
    assert!(memory_of_batches(&buffer) <= 2 * kept);
}

#[test]
fn another_program_has_as_many_traces() {
    let (buffer, _) = packed(200, &[]);
    let content = serde_json::to_string(&buffer.content()).unwrap();
    let mut next = TraceBuffer::new(100_000, buffer.bytes * 11 / 10);
    let mut decoder = serde_json::Deserializer::from_str(&content);
    next.restore(&mut decoder, Instant::now()).unwrap();
    assert_eq!((next.len(), next.dropped()), (buffer.len(), 0));
}
