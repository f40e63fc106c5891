use proptest::prelude::*;

use super::*;

/// The start of a pod with this many steps, as long as a real one's names are.
fn start(n: usize, steps: usize) -> TraceSummary {
    let step = |at: usize| {
        let name = StepName {
            service: "sync-coordinator".to_owned(),
            operation: format!("cri.SomethingLong{at}"),
        };
        (name, Duration::from_nanos(12_345_678 + at as u64))
    };
    let services = ["pleg", "pod-config", "sync-coordinator", "status-reporter"];
    TraceSummary {
        id: [(n % 251) as u8; 16],
        root: "pod.start".to_owned(),
        uid: "8b5e7c3e-98c0-4c0f-9d7b-0242ac120002".to_owned(),
        namespace: format!("namespace-{}", n % 7),
        name: format!("deployment-5d59d67564-{n}"),
        shape: "2 containers, volumes, probes".to_owned(),
        outcome: "ready".to_owned(),
        start: Timestamp::from_second(1_700_000_000 + n as i64).unwrap(),
        duration: Duration::from_millis(n as u64),
        steps: (0..steps).map(step).collect(),
        versions: services
            .map(|name| (name.to_owned(), "0.1.0".to_owned()))
            .into(),
    }
}

#[test]
fn thousands_of_starts_fit_into_the_bounds() {
    let mut buffer = SummaryBuffer::new(4_096, 2 << 20);
    for n in 0..5_000 {
        buffer.push(&start(n, 25));
    }
    assert_eq!((buffer.len(), buffer.next_number()), (4_096, 5_000));
    assert!(buffer.bytes() <= 2 << 20, "{}", buffer.bytes());
    let (first, _) = buffer.select(0, &TraceFilter::default(), 1);
    assert_eq!(first[0], start(904, 25));
}

#[test]
fn a_summary_takes_the_place_of_the_one_before() {
    let mut buffer = SummaryBuffer::new(3, 1 << 20);
    (0..4).for_each(|n| buffer.push(&start(n, 2)));
    let bytes = buffer.bytes();
    let numbered = |buffer: &SummaryBuffer| (buffer.len(), buffer.next_number());
    let before = numbered(&buffer);
    let revised = TraceSummary {
        steps: start(90, 40).steps,
        ..start(2, 2)
    };
    buffer.replace(&revised);
    // One that was dropped.
    buffer.replace(&start(0, 30));
    assert_eq!(numbered(&buffer), before);
    let (all, _) = buffer.select(0, &TraceFilter::default(), 9);
    assert_eq!(all, [start(1, 2), revised, start(3, 2)]);
    // What was before takes no room any longer.
    buffer.replace(&start(2, 2));
    assert_eq!(buffer.bytes(), bytes);
}

/// Each trace may be revised, more than once.
#[test]
fn revised_summaries_leave_little_unused() {
    let mut buffer = SummaryBuffer::new(4_096, 2 << 20);
    for n in 0..200 {
        buffer.push(&start(n, 10));
        for steps in [12, 5, 11] {
            buffer.replace(&start(n, steps));
            assert!(buffer.wasted * WASTED_PARTS <= buffer.bytes);
        }
    }
    let (all, _) = buffer.select(0, &TraceFilter::default(), usize::MAX);
    let expected: Vec<_> = (0..200).map(|n| start(n, 11)).collect();
    assert_eq!(all, expected);
}

#[test]
fn summaries_are_selected_in_portions() {
    let mut buffer = SummaryBuffer::new(100, 1 << 20);
    (0..10).for_each(|n| buffer.push(&start(n, 1)));
    let filter = TraceFilter {
        slower_than: Some(Duration::from_millis(3)),
        ..TraceFilter::default()
    };
    let names = |summaries: Vec<TraceSummary>| -> Vec<u128> {
        summaries
            .iter()
            .map(|one| one.duration.as_millis())
            .collect()
    };
    let (portion, next) = buffer.select(0, &filter, 2);
    assert_eq!((names(portion), next), (vec![4, 5], 6));
    let (portion, next) = buffer.select(next, &filter, 100);
    assert_eq!((names(portion), next), (vec![6, 7, 8, 9], 10));
    assert_eq!(buffer.select(next, &filter, 100), (Vec::new(), 10));
}

#[test]
fn another_program_takes_over_the_summaries() {
    let mut buffer = SummaryBuffer::new(100, 1 << 20);
    (0..3).for_each(|n| buffer.push(&start(n, 4)));
    let content = serde_json::to_string(&buffer.content()).unwrap();
    let mut next = SummaryBuffer::new(2, 1 << 20);
    let mut decoder = serde_json::Deserializer::from_str(&content);
    next.restore(&mut decoder).unwrap();
    let (summaries, _) = next.select(0, &TraceFilter::default(), 9);
    assert_eq!(summaries, [start(1, 4), start(2, 4)]);
    let mut none = serde_json::Deserializer::from_str("{}");
    assert!(next.restore(&mut none).is_err());
}

proptest! {
    #[test]
    fn bounds_hold(
        steps in prop::collection::vec(0..300_usize, 1..60),
        max_summaries in 0..20_usize,
        max_bytes in 0..20_000_usize,
    ) {
        let mut buffer = SummaryBuffer::new(max_summaries, max_bytes);
        for (n, steps) in steps.iter().enumerate() {
            buffer.push(&start(n, *steps));
            prop_assert!(buffer.len() <= max_summaries);
            prop_assert!(buffer.bytes() <= max_bytes);
            prop_assert_eq!(buffer.next_number(), n as u64 + 1);
        }
        let (all, next) = buffer.select(0, &TraceFilter::default(), usize::MAX);
        prop_assert_eq!((all.len(), next), (buffer.len(), buffer.next_number()));
    }
}
