use std::collections::BTreeMap;
use std::io::Cursor;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::span::{SpanRecord, hex};
use crate::trace::Trace;

fn read_text(text: &str) -> (Vec<Trace>, Vec<String>) {
    let mut errors = Vec::new();
    let traces = read(Cursor::new(text), &mut |error| {
        errors.push(error.to_string())
    });
    (traces, errors)
}

fn written(traces: &[Trace]) -> String {
    let mut bytes = Vec::new();
    write(traces, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn sorted(mut traces: Vec<Trace>) -> Vec<Trace> {
    for trace in &mut traces {
        trace.spans.sort_by_key(|span| span.span);
    }
    traces.sort_by_key(|trace| trace.id);
    traces
}

/// As a collector's file exporter writes it.
const LINE: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"polylet-pleg"}},{"key":"service.version","value":{"stringValue":"0.1.0"}}]},"scopeSpans":[{"scope":{"name":"pleg"},"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","parentSpanId":"","name":"pleg.observe","kind":1,"startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000","attributes":[{"key":"n","value":{"intValue":"5"}},{"key":"ok","value":{"boolValue":true}},{"key":"share","value":{"doubleValue":0.5}},{"key":"list","value":{"arrayValue":{"values":[{"stringValue":"a"},{"intValue":1}]}}},{"key":"map","value":{"kvlistValue":{"values":[{"key":"k","value":{"stringValue":"v"}}]}}},{"key":"none","value":{}}],"events":[],"links":[{"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"eee19b7ec3c1b175","flags":256}],"status":{"code":2,"message":"no"}}]}],"schemaUrl":"x"}]}"#;

#[test]
fn lines_of_a_collector_are_read() {
    let (traces, errors) = read_text(&format!("{LINE}\r\n\n{LINE}\n"));
    assert_eq!(errors, [""; 0]);
    let [trace] = &traces[..] else {
        panic!("{traces:?}")
    };
    let [span] = &trace.spans[..] else {
        panic!("a span that occurs again counts once: {trace:?}")
    };
    assert_eq!(hex(&trace.id), "5b8efff798038103d269b633813fc60c");
    assert_eq!((&*span.service, &*span.version), ("pleg", "0.1.0"));
    assert_eq!((&*span.name, span.parent), ("pleg.observe", None));
    assert_eq!(span.error.as_deref(), Some("no"));
    assert_eq!(
        span.links,
        ["5b8efff798038103d269b633813fc60c-eee19b7ec3c1b175"]
    );
    let attributes: Vec<(&str, &str)> = span
        .attributes
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    assert_eq!(
        attributes,
        [
            ("list", r#"["a",1]"#),
            ("map", r#"{"k":"v"}"#),
            ("n", "5"),
            ("none", ""),
            ("ok", "true"),
            ("share", "0.5"),
        ]
    );
}

#[test]
fn errors_name_the_line_and_the_field() {
    let cases = [
        (&LINE[..40], "EOF while parsing"),
        (
            &LINE.replace("eee19b7ec3c1b174", "xyz"),
            "resourceSpans[0].scopeSpans[0].spans[0].spanId: invalid value: string \"xyz\", expected a span ID of 16 hexadecimal digits",
        ),
        (
            &LINE.replace("\"1544712660000000000\"", "\"soon\""),
            "resourceSpans[0].scopeSpans[0].spans[0].startTimeUnixNano: invalid value: string \"soon\", expected nanoseconds since 1970",
        ),
        (
            &LINE.replace("5b8efff798038103d269b633813fc60c", &"0".repeat(32)),
            "spans[0].traceId: invalid value",
        ),
        (r#"{"resourceMetrics":[]}"#, "missing field `resourceSpans`"),
        (&format!("{LINE} x"), "trailing characters"),
        ("\u{1b}[31m", "expected value"),
        ("level=info", "expected value"),
        (&"[".repeat(100_000), "invalid type"),
    ];
    for (text, expected) in cases {
        let (traces, errors) = read_text(&format!("{LINE}\n{text}\n{LINE}"));
        assert_eq!(traces.len(), 1, "{text}");
        let [error] = &errors[..] else {
            panic!("{text}: {errors:?}")
        };
        assert!(error.starts_with("2: "), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(
            error.len() < 500 && !error.contains(char::is_control),
            "{error}"
        );
    }
}

#[test]
fn what_is_not_text_is_one_error() {
    let mut reader = OtlpJsonReader::new(Cursor::new(b"\xff\xfe\x00\n".to_vec()));
    assert!(matches!(
        reader.next(),
        Some(Err(OtlpJsonError::Invalid { line: 1, .. }))
    ));
    assert!(reader.next().is_none());
}

#[test]
fn long_lines_are_refused_and_skipped() {
    let long = "x".repeat(MAX_LINE + 1);
    let (traces, errors) = read_text(&format!("{long}\n{LINE}\n{long}"));
    assert_eq!(traces.len(), 1);
    assert_eq!(errors, ["1: longer than 16 MiB", "3: longer than 16 MiB"]);
    let longest = format!("{LINE}{}", " ".repeat(MAX_LINE - LINE.len()));
    assert_eq!(read_text(&longest).1, [""; 0]);
    assert_eq!(read_text(&format!("{longest}\n")).1, [""; 0]);
}

#[test]
fn long_texts_are_cut_off() {
    let line = LINE.replace("\"a\"", &format!("\"{}\"", "ä".repeat(5 << 20)));
    let line = line.replace("pleg.observe", &"x".repeat(1 << 20));
    let (traces, errors) = read_text(&line);
    assert_eq!(errors, [""; 0]);
    let span = &traces[0].spans[0];
    assert_eq!(span.name.len(), encoding::MAX_TEXT);
    assert!(span.attribute("list").len() <= encoding::MAX_TEXT);
}

#[test]
fn a_closed_pipe_is_an_error() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (traces, _) = read_text(LINE);
    let error = write(&traces, &mut Closed).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

fn any_span() -> impl Strategy<Value = SpanRecord> {
    let text = || "[\\PC\"\\\\\n\u{0}\u{1b}]{0,12}|</script>";
    let attributes = prop::collection::btree_map("\\PC{1,8}", text(), 0..4);
    let link = any::<(u128, u64)>().prop_map(|(trace, span)| format!("{trace:032x}-{span:016x}"));
    (
        (1..4_u8, any::<[u8; 8]>(), any::<Option<[u8; 8]>>()),
        ("[a-z-]{0,9}", "[0-9a-z.+]{0,9}", text()),
        any::<(u64, u64)>(),
        attributes,
        prop::option::of("\\PC{1,9}"),
        prop::collection::vec(link, 0..3),
    )
        .prop_map(
            |((trace, span, parent), (service, version, name), times, attributes, error, links)| {
                let time = |nanos: u64| Timestamp::from_nanosecond(i128::from(nanos)).unwrap();
                SpanRecord {
                    trace: [trace; 16],
                    span,
                    parent,
                    service,
                    version,
                    name,
                    start: time(times.0),
                    end: time(times.1),
                    attributes,
                    error,
                    links,
                }
            },
        )
}

proptest! {
    #[test]
    fn what_was_written_is_read(spans in prop::collection::vec(any_span(), 0..12)) {
        let mut by_trace: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for span in spans {
            by_trace.entry(span.trace).or_default().insert(span.span, span);
        }
        let traces = by_trace.into_iter();
        let traces: Vec<Trace> = traces
            .map(|(id, spans)| Trace { id, spans: spans.into_values().collect() })
            .collect();
        let text = written(&traces);
        prop_assert_eq!(text.lines().count(), traces.len());
        let (read, errors) = read_text(&text);
        prop_assert_eq!(errors, Vec::<String>::new());
        prop_assert_eq!(sorted(read), traces);
    }

    #[test]
    fn any_line_is_read_or_refused(text in "\\PC{0,40}", at in 0..LINE.len()) {
        read_text(&text);
        let changed = format!("{}{text}{}", &LINE[..at], &LINE[at..]);
        read_text(&changed);
    }
}
