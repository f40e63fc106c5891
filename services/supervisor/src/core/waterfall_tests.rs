use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_trace::TraceId;
use proptest::prelude::*;

use super::*;

const TRACE: TraceId = [0x0a; 16];

fn span(id: u8, parent: u8, service: &str, name: &str, start: i64, end: i64) -> SpanRecord {
    SpanRecord {
        trace: TRACE,
        span: [id; 8],
        parent: (parent != 0).then_some([parent; 8]),
        service: service.to_owned(),
        version: String::new(),
        name: name.to_owned(),
        start: Timestamp::from_microsecond(start).unwrap(),
        end: Timestamp::from_microsecond(end).unwrap(),
        attributes: BTreeMap::new(),
        error: None,
        links: Vec::new(),
    }
}

fn drawn(spans: Vec<SpanRecord>) -> String {
    waterfall(&Trace { id: TRACE, spans })
}

#[test]
fn pod_start_is_drawn() {
    let mut spans = vec![
        span(1, 0, "pod-config", "pod.seen", 0, 1_000),
        span(2, 1, "sync-coordinator", "pod.start", 2_000, 160_000),
        span(3, 2, "volume-manager", "volume.mount", 3_000, 9_000),
        span(4, 2, "sync-coordinator", "cri.RunPodSandbox", 3_000, 90_000),
        span(
            5,
            2,
            "sync-coordinator",
            "cri.StartContainer",
            90_000,
            160_000,
        ),
        span(6, 9, "prober", "probe.readiness", 161_000, 200_000),
    ];
    spans[4].attributes = [
        ("k8s.container.name", "web"),
        ("polylet.attempt", "0"),
        ("other", "no"),
    ]
    .map(own)
    .into();
    spans[5].error = Some("refused\nagain".to_owned());
    spans[1].links = vec![
        format!("{}-{}", hex(&TRACE), hex(&[1; 8])),
        "0af8-z".to_owned(),
    ];
    let expected = "\
trace 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a

   START    TOOK  SERVICE                                               SPAN
*  0.0ms   1.0ms  pod-config        |=                               |  pod.seen
*  2.0ms 158.0ms  sync-coordinator  |==========================      |    pod.start links=2
   3.0ms   6.0ms  volume-manager    |==                              |      volume.mount
*  3.0ms  87.0ms  sync-coordinator  |===============                 |      cri.RunPodSandbox
* 90.0ms  70.0ms  sync-coordinator  |              ============      |      cri.StartContainer container=web attempt=0
* 161.0ms";
    let text = drawn(spans);
    let squeezed = |text: &str| -> Vec<Vec<String>> {
        text.lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect()
    };
    let (found, expected) = (squeezed(&text), squeezed(expected));
    assert_eq!(found[..8], expected[..8], "{text}");
    assert!(
        text.contains("probe.readiness  ERROR refused again"),
        "{text}"
    );
    assert!(
        text.contains("total 200.0ms, 6 spans in 4 services, 1 with errors"),
        "{text}"
    );
}

fn own((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn empty_trace_is_drawn() {
    assert!(drawn(Vec::new()).contains("total 0.0ms, 0 spans"));
}

proptest! {
    #[test]
    fn every_span_has_one_line(
        raw in prop::collection::vec((0..9_u8, 0..9_u8, 0..1000_i64, -5..500_i64), 0..30),
    ) {
        let spans: Vec<SpanRecord> = (1..)
            .zip(&raw)
            .map(|(n, (_, parent, start, long))| span(n, *parent, "s", "x", *start, start + long))
            .collect();
        let text = drawn(spans);
        prop_assert_eq!(text.lines().filter(|line| line.contains('|')).count(), raw.len());
    }
}
