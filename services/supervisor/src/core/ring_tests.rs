use jiff::Timestamp;

use super::*;
use crate::core::span::{POD_NAME, POD_NAMESPACE};
use proptest::prelude::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

fn span(trace: u8, pod: (&str, &str, &str), start: i64, end: i64) -> SpanRecord {
    let (uid, namespace, name) = pod;
    let attributes = [(POD_UID, uid), (POD_NAMESPACE, namespace), (POD_NAME, name)];
    SpanRecord {
        trace: [trace; 16],
        span: [1; 8],
        parent: None,
        service: "pleg".to_owned(),
        name: "x".to_owned(),
        start: at(start),
        end: at(end),
        attributes: attributes.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        error: None,
        links: Vec::new(),
    }
}

#[test]
fn another_program_takes_over_the_spans() {
    let mut ring = SpanRing::new(2, 10_000);
    for start in 1..=3 {
        ring.push(&span(1, ("u1", "ns", "web"), start, 40));
    }
    let content = serde_json::to_string(&ring.content()).unwrap();
    let mut next = SpanRing::new(2, 10_000);
    next.restore(&mut serde_json::Deserializer::from_str(&content))
        .unwrap();
    assert_eq!(next.trace([1; 16]), ring.trace([1; 16]));
    assert_eq!((next.len(), next.dropped()), (2, 1));
    // With less room.
    let mut small = SpanRing::new(1, 10_000);
    small
        .restore(&mut serde_json::Deserializer::from_str(&content))
        .unwrap();
    assert_eq!((small.len(), small.dropped()), (1, 2));
    let mut none = SpanRing::new(1, 10_000);
    assert!(
        none.restore(&mut serde_json::Deserializer::from_str("{}"))
            .is_err()
    );
    assert!(none.is_empty());
}

#[test]
fn pod_is_found_by_uid_and_names() {
    let mut ring = SpanRing::new(10, 10_000);
    ring.push(&span(1, ("u1", "ns", "web"), 10, 20));
    ring.push(&span(2, ("u1", "ns", "web"), 30, 40));
    for query in ["u1", "web", "ns/web", &"01".repeat(16)] {
        assert_eq!(ring.find(query), Some([1; 16]), "{query}");
    }
    for query in ["", "u2", "other/web", "ns/", "/web", &"03".repeat(16)] {
        assert_eq!(ring.find(query), None, "{query}");
    }
    assert_eq!(ring.trace([2; 16]).len(), 1);
}

#[test]
fn latest_pod_of_a_name_is_found() {
    let mut ring = SpanRing::new(10, 10_000);
    ring.push(&span(1, ("u1", "ns", "web"), 10, 20));
    ring.push(&span(2, ("u2", "ns", "web"), 30, 40));
    ring.push(&span(3, ("u2", "ns", "web"), 50, 60));
    assert_eq!(ring.find("web"), Some([2; 16]));
    assert_eq!(ring.find("u1"), Some([1; 16]));
}

#[test]
fn oversized_span_is_dropped() {
    let mut ring = SpanRing::new(10, 5);
    ring.push(&span(1, ("u", "n", "p"), 0, 1));
    assert!(ring.is_empty());
    assert_eq!(ring.dropped(), 1);
}

proptest! {
    #[test]
    fn bounds_hold_and_drops_are_counted(
        sizes in prop::collection::vec(0..500_usize, 0..200),
        max_spans in 1..20_usize,
        max_bytes in 1..4000_usize,
    ) {
        let mut ring = SpanRing::new(max_spans, max_bytes);
        for (n, size) in sizes.iter().enumerate() {
            ring.push(&SpanRecord { name: "x".repeat(*size), ..span(n as u8, ("u", "n", "p"), n as i64, n as i64) });
            prop_assert!(ring.len() <= max_spans);
            prop_assert!(ring.bytes <= max_bytes);
            prop_assert_eq!(ring.len() as u64 + ring.dropped(), n as u64 + 1);
            prop_assert_eq!(ring.bytes, ring.records.iter().map(EncodedSpan::size).sum::<usize>());
        }
    }
}
