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
fn the_root_says_by_what_starts_can_be_compared() {
    let known = [
        (OUTCOME_ATTRIBUTE, outcome::READY),
        ("container.runtime.name", "containerd"),
        ("container.runtime.version", "2.1.9"),
        ("polylet.kernel.version", "6.12.1"),
        ("polylet.pod.containers", "2"),
        ("polylet.pod.init_containers", "0"),
        ("polylet.pod.volumes", "3"),
        ("polylet.result", "ready"),
    ];
    let before = [("polylet.pod.volumes", "1")];
    let mut spans = [
        step(1, 10, 11, &before),
        step(2, 50, 80, &known),
        step(3, 40, 90, &[]),
    ];
    for (span, version) in spans.iter_mut().zip(["1.0.0", "1.2.3+abc", ""]) {
        span.version = version.to_owned();
    }
    let root = root_of(TRACE, &spans).unwrap();
    let attributes = root.attributes.iter();
    let attributes: Vec<_> = attributes.map(|(key, value)| (&**key, &**value)).collect();
    let expected = [
        ("container.runtime.name", "containerd"),
        ("container.runtime.version", "2.1.9"),
        ("polylet.kernel.version", "6.12.1"),
        ("polylet.outcome", "ready"),
        ("polylet.pod.containers", "2"),
        ("polylet.pod.init_containers", "0"),
        ("polylet.pod.volumes", "3"),
        ("polylet.shape", "0 containers"),
        ("polylet.version.pleg", "1.2.3+abc"),
    ];
    assert_eq!(attributes, expected);
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
