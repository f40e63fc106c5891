use super::*;

const TRACE: TraceId = [7; 16];

fn step(span: u8, start: i64, end: i64, attributes: &[(&str, &str)]) -> SpanRecord {
    let attributes = attributes.iter();
    SpanRecord {
        trace: TRACE,
        span: [span; 8],
        parent: Some([7; 8]),
        service: "pleg".to_owned(),
        version: String::new(),
        name: "x".to_owned(),
        start: Timestamp::from_millisecond(start).unwrap(),
        end: Timestamp::from_millisecond(end).unwrap(),
        attributes: attributes
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        error: None,
        links: Vec::new(),
    }
}

#[test]
fn the_root_lasts_from_the_first_step_to_the_outcome() {
    let spans = [
        step(3, 40, 90, &[]),
        step(
            1,
            10,
            11,
            &[
                (ROOT_ATTRIBUTE, root::POD_START),
                (POD_UID, "u1"),
                (POD_NAME, "web"),
            ],
        ),
        step(2, 50, 80, &[(OUTCOME_ATTRIBUTE, outcome::READY)]),
    ];
    let root = root_of(TRACE, &spans).unwrap();
    assert_eq!(root.name, "pod.start");
    assert_eq!((root.span, root.parent), ([7; 8], None));
    let times = [root.start, root.end].map(Timestamp::as_millisecond);
    assert_eq!(times, [10, 80]);
    assert_eq!(root.attribute(OUTCOME_ATTRIBUTE), "ready");
    assert_eq!(
        (root.attribute(POD_UID), root.attribute(POD_NAME)),
        ("u1", "web")
    );
    assert_eq!(root.error, None);
}

#[test]
fn the_root_of_a_failed_start_is_an_error() {
    let spans = [step(2, 50, 80, &[(OUTCOME_ATTRIBUTE, outcome::FAILED)])];
    assert!(root_of(TRACE, &spans).unwrap().error.is_some());
}

#[test]
fn without_a_name_or_an_outcome_the_root_covers_all_spans() {
    let root = root_of(TRACE, &[step(1, 20, 90, &[]), step(2, 10, 30, &[])]).unwrap();
    assert_eq!(root.name, "pod.sync");
    let times = [root.start, root.end].map(Timestamp::as_millisecond);
    assert_eq!(times, [10, 90]);
    // Times in reverse, as after the clock was set back.
    let root = root_of(TRACE, &[step(1, 90, 20, &[])]).unwrap();
    assert_eq!(root.start, root.end);
}

#[test]
fn a_trace_with_a_root_of_its_own_gets_no_other() {
    let own = SpanRecord {
        parent: None,
        ..step(1, 0, 1, &[])
    };
    assert_eq!(root_of(TRACE, &[own]), None);
    let written = SpanRecord {
        parent: None,
        ..step(7, 0, 1, &[])
    };
    assert_eq!(root_of(TRACE, &[written, step(1, 0, 1, &[])]), None);
    assert_eq!(root_of(TRACE, &[]), None);
}
