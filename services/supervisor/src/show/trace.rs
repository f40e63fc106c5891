//! `polylet trace`.

use jiff::Timestamp;
use polylet_kit::Config;
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use serde_json::{Value, json};

use crate::args::OutputFormat;
use crate::client::{self, ClientError};
use crate::core::critical_path::{PathSegment, critical_path};
use crate::core::path_table::path_table;
use crate::core::step_owner::StepOwner;
use crate::core::waterfall::{WaterfallSpan, nodes, waterfall};

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
    let spans: Vec<WaterfallSpan> = found.spans.into_iter().filter_map(from_wire).collect();
    if output == OutputFormat::Json {
        super::json(&json!({
            "traceId": found.trace_id,
            "spans": as_spans,
            "criticalPath": path_as_json(&spans),
            "dropped": found.dropped,
        }));
        return Ok(());
    }
    let text = waterfall(&found.trace_id, &spans);
    super::print(&format!("{text}\n{}", path_table(&spans)));
    Ok(())
}

/// The segments, the earliest first; `spanId` and `owner` are null where no span explains the time.
fn path_as_json(spans: &[WaterfallSpan]) -> Vec<Value> {
    let path = critical_path(&nodes(spans)).into_iter();
    let segment = |segment: PathSegment| {
        let span = segment.node.and_then(|at| spans.get(at));
        let time = |nanos| Timestamp::from_nanosecond(nanos).ok();
        json!({
            "spanId": span.map(|span| &span.id),
            "owner": span.map(|span| StepOwner::of(&span.name).label()),
            "start": time(segment.start).map(|at| at.to_string()),
            "end": time(segment.end).map(|at| at.to_string()),
        })
    };
    path.map(segment).collect()
}

fn from_wire(span: wire::Span) -> Option<WaterfallSpan> {
    let time = |at: Option<&_>| polylet_wire::time::from_wire_opt(at);
    Some(WaterfallSpan {
        start: time(span.start.as_ref())?,
        end: time(span.end.as_ref())?,
        id: span.span_id,
        parent: span.parent_span_id,
        service: span.service,
        name: span.name,
        attributes: span.attributes.into_iter().collect(),
        error: span.error,
        links: span.links,
    })
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
