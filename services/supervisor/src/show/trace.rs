//! `polylet trace`.

use jiff::Timestamp;
use polylet_kit::Config;
use polylet_trace::{PathSegment, StepOwner, Trace, hex, parse_trace_id};
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use serde_json::{Value, json};

use crate::args::OutputFormat;
use crate::client::{self, ClientError};
use crate::core::path_table::path_table;
use crate::core::waterfall::waterfall;
use crate::traces::convert;

/// Prints the trace of a pod's start.
pub(crate) async fn show(
    config: &Config,
    pod: &str,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let mut supervisor = SupervisorServiceClient::new(client::connect(config, "supervisor")?)
        .max_decoding_message_size(polylet_kit::MAX_MESSAGE_SIZE);
    let get = supervisor.get_trace(wire::GetTraceRequest {
        query: pod.to_owned(),
    });
    let found = client::call("supervisor", get).await?;
    let as_spans: Vec<Value> = found.spans.iter().map(as_json).collect();
    let id = parse_trace_id(&found.trace_id).unwrap_or_default();
    let spans = found.spans.into_iter();
    let spans = spans.filter_map(|span| convert::from_wire(id, span));
    let trace = Trace {
        id,
        spans: spans.collect(),
    };
    if output == OutputFormat::Json {
        super::json(&json!({
            "traceId": found.trace_id,
            "spans": as_spans,
            "criticalPath": path_as_json(&trace),
            "dropped": found.dropped,
        }));
        return Ok(());
    }
    let text = waterfall(&trace);
    super::print(&format!("{text}\n{}", path_table(&trace)));
    Ok(())
}

/// The segments, the earliest first; `spanId` and `owner` are null where no span explains the time.
fn path_as_json(trace: &Trace) -> Vec<Value> {
    let path = trace.critical_path().into_iter();
    let segment = |segment: PathSegment| {
        let span = segment.node.and_then(|at| trace.spans.get(at));
        let time = |nanos| Timestamp::from_nanosecond(nanos).ok();
        json!({
            "spanId": span.map(|span| hex(&span.span)),
            "owner": span.map(|span| StepOwner::of(&span.name).label()),
            "start": time(segment.start).map(|at| at.to_string()),
            "end": time(segment.end).map(|at| at.to_string()),
        })
    };
    path.map(segment).collect()
}

fn as_json(span: &wire::Span) -> Value {
    json!({
        "spanId": span.span_id,
        "parentSpanId": span.parent_span_id,
        "service": span.service,
        "name": span.name,
        "start": client::time(span.start.as_ref()),
        "end": client::time(span.end.as_ref()),
        "attributes": span.attributes,
        "error": span.error,
        "links": span.links,
    })
}
