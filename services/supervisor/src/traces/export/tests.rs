use std::path::Path;
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Status;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use polylet_kit::config::Tracing;

use super::*;
use receiver::{Receiver, ReceiverTls};

mod receiver;

const TIMEOUT: Duration = Duration::from_secs(20);

fn span(trace: TraceId, name: &str, failed: bool) -> Span {
    Span {
        trace_id: trace.to_vec(),
        span_id: vec![1; 8],
        name: name.to_owned(),
        status: failed.then(|| Status {
            code: StatusCode::Error.into(),
            ..Status::default()
        }),
        flags: 0x100,
        ..Span::default()
    }
}

fn resource_spans(spans: Vec<Span>) -> ResourceSpans {
    ResourceSpans {
        scope_spans: vec![ScopeSpans {
            spans,
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    }
}

fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![resource_spans(spans)],
    }
}

fn trace(number: u64) -> TraceId {
    // Spread over all IDs, always in the same way.
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(mixed) << 64
        | u128::from(mixed.rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9)))
    .to_be_bytes()
}

fn exporter(rate: i32, errors: bool, environment: &[(&str, &str)]) -> SpanExporter {
    let config = KubeletConfiguration {
        tracing: Some(Tracing {
            endpoint: None,
            sampling_rate_per_million: Some(rate),
        }),
        ..KubeletConfiguration::default()
    };
    let tail = TailSampling { errors, slowest: 0 };
    let environment = |name: &str| {
        let variable = environment.iter().find(|(known, _)| *known == name);
        variable.map(|(_, value)| (*value).to_owned())
    };
    SpanExporter::new(&config, tail, environment)
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn a_rate_of_traces_is_exported_whole_and_failed_ones_always() {
    let mut receiver = Receiver::start(None).await;
    let endpoint = receiver.url();
    let exporter = exporter(250_000, true, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let failed = |number: u64| number.is_multiple_of(100);
    // The spans of a trace come at different times.
    for half in ["first", "second"] {
        for batch in 0..20 {
            let spans = (batch * 100..(batch + 1) * 100)
                .map(|number| span(trace(number), half, failed(number)));
            exporter.receive(request(spans.collect()));
        }
    }
    for number in 0..2_000 {
        let end = TraceEnd {
            trace: trace(number),
            root: "pod.start",
            duration: Duration::from_secs(1),
            failed: failed(number),
        };
        let root = span(trace(number), "root", failed(number));
        exporter.end(end, Some(resource_spans(vec![root])));
    }
    exporter.flush(TIMEOUT).await;
    let received = receiver.traces();
    let by_rate = received
        .keys()
        .filter(|id| !(0..20).any(|n| trace(n * 100) == **id))
        .count();
    assert!(
        (400..=600).contains(&by_rate),
        "{by_rate} of 2,000 at a quarter"
    );
    for n in 0..20 {
        assert!(received.contains_key(&trace(n * 100)), "a failed one");
    }
    for names in received.values() {
        let mut names = names.clone();
        names.sort();
        assert_eq!(names, ["first", "root", "second"], "each span once");
    }
}

#[tokio::test]
async fn spans_wait_for_a_collector_that_is_gone_and_comes_back() {
    let mut receiver = Receiver::start(None).await;
    let endpoint = receiver.url();
    let exporter = exporter(
        1_000_000,
        false,
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)],
    );
    exporter.receive(request(vec![span([1; 16], "before", false)]));
    exporter.flush(TIMEOUT).await;
    let port = receiver.stop().await;
    for number in 0..10 {
        exporter.receive(request(vec![span([2; 16], &number.to_string(), false)]));
    }
    exporter.flush(Duration::from_millis(100)).await;
    receiver.restart(port).await;
    exporter.flush(TIMEOUT).await;
    let received = receiver.traces();
    assert_eq!(received[&[1; 16]], ["before"]);
    assert_eq!(received[&[2; 16]].len(), 10, "each once: {received:?}");
}

#[tokio::test]
async fn requests_are_compressed_and_have_the_headers_that_are_set() {
    for protocol in ["grpc", "http/protobuf"] {
        let mut receiver = Receiver::start(None).await;
        let endpoint = receiver.url();
        let exporter = exporter(
            1_000_000,
            false,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x"),
            ],
        );
        exporter.receive(request(vec![span([1; 16], "one", false)]));
        exporter.flush(TIMEOUT).await;
        assert_eq!(receiver.traces().len(), 1, "{protocol}");
        let headers = receiver.headers();
        let header = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(
            header("authorization").as_deref(),
            Some("Bearer x"),
            "{protocol}"
        );
        let encoding = header("grpc-encoding").or(header("content-encoding"));
        assert_eq!(encoding.as_deref(), Some("gzip"), "{protocol}");
    }
}

#[tokio::test]
async fn collectors_are_known_by_their_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let tls = ReceiverTls::new(dir.path());
    for protocol in ["grpc", "http/protobuf"] {
        let mut receiver = Receiver::start(Some(&tls)).await;
        let endpoint = receiver.url();
        let environment = |authorities: &Path| {
            let authorities = authorities.to_str().unwrap().to_owned();
            let endpoint = endpoint.clone();
            move |name: &str| match name {
                "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
                "OTEL_EXPORTER_OTLP_PROTOCOL" => Some(protocol.to_owned()),
                "OTEL_EXPORTER_OTLP_CERTIFICATE" => Some(authorities.clone()),
                _ => None,
            }
        };
        let collector = |authorities: &Path| {
            let settings = ExportSettings::new(None, environment(authorities)).unwrap();
            CollectorClient::new(settings.unwrap())
        };
        let spans = request(vec![span([1; 16], "one", false)]);
        let right = collector(&tls.authority).unwrap();
        assert_eq!(right.export(&spans).await.unwrap().spans, 0);
        assert_eq!(receiver.traces().len(), 1);
        let wrong = collector(&tls.other_authority).unwrap();
        let error = wrong.export(&spans).await.unwrap_err();
        let line = report(&error);
        assert!(
            line.contains("invalid peer certificate: "),
            "{protocol}: {line}"
        );
        assert!(!line.contains('\n') && error.is_retryable(), "{line}");
        let empty = dir.path().join("empty.pem");
        std::fs::write(&empty, "").unwrap();
        let error = collector(&empty).map(|_| ()).unwrap_err();
        assert_eq!(
            report(&error),
            format!("no certificate in {}", empty.display())
        );
        let missing = collector(&dir.path().join("none.pem"))
            .map(|_| ())
            .unwrap_err();
        assert!(
            report(&missing).contains("none.pem"),
            "{}",
            report(&missing)
        );
    }
}

#[tokio::test]
async fn traces_that_continue_others_are_exported_as_part_of_them() {
    let mut receiver = Receiver::start(None).await;
    let endpoint = receiver.url();
    let exporter = exporter(0, false, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let (own, outside) = ([7; 16], [9; 16]);
    let step = |name: &str, parent: Option<&str>| Span {
        attributes: parent
            .into_iter()
            .map(|parent| {
                crate::traces::convert::attribute_of("polylet.traceparent", parent.to_owned())
            })
            .collect(),
        flags: 0x181,
        ..span(own, name, false)
    };
    // One comes before the first step.
    exporter.receive(request(vec![step("early", None)]));
    let parent = format!("00-{}-{}-01", hex(&outside), hex(&[3; 8]));
    exporter.receive(request(vec![step("first", Some(&parent))]));
    exporter.receive(request(vec![step("later", None)]));
    let end = TraceEnd {
        trace: own,
        root: "pod.start",
        duration: Duration::from_secs(1),
        failed: false,
    };
    let root = Span {
        span_id: polylet_kit::cause::root_id(own).to_vec(),
        ..span(own, "root", false)
    };
    exporter.end(end, Some(resource_spans(vec![root])));
    exporter.flush(TIMEOUT).await;
    let mut names = receiver.traces().remove(&outside).unwrap();
    names.sort();
    assert_eq!(names, ["early", "first", "later", "root<-0303030303030303"]);
}

#[tokio::test]
async fn another_program_exports_what_is_left() {
    let mut receiver = Receiver::start(None).await;
    let endpoint = receiver.url();
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
    let port = receiver.stop().await;
    let before = exporter(0, true, &environment);
    before.receive(request(vec![span([1; 16], "failed", true)]));
    before
        .queue
        .push(request(vec![span([2; 16], "queued", false)]));
    before.flush(Duration::from_millis(100)).await;
    let content = serde_json::to_string(&before.content()).unwrap();
    drop(before);
    receiver.restart(port).await;
    let after = exporter(0, true, &environment);
    after.restore(serde_json::from_str(&content).unwrap());
    let end = TraceEnd {
        trace: [1; 16],
        root: "pod.start",
        duration: Duration::from_secs(1),
        failed: true,
    };
    after.end(end, None);
    after.flush(TIMEOUT).await;
    let received = receiver.traces();
    assert_eq!(received[&[1; 16]], ["failed"]);
    assert!(received.contains_key(&[2; 16]), "{received:?}");
}
