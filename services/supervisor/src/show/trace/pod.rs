//! `polylet trace POD`.

use jiff::Timestamp;
use polylet_trace::{PathSegment, SpanRecord, StepOwner, Trace, hex};
use serde_json::{Value, json};

use super::source::TraceInput;
use crate::args::OutputFormat;
use crate::client::ClientError;
use crate::core::path_table::path_table;
use crate::core::waterfall::waterfall;
use crate::show;

/// Prints the trace of a pod's start.
pub(super) async fn show(
    source: &TraceInput<'_>,
    pod: &str,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let (trace, dropped) = source.find(pod).await?;
    if output == OutputFormat::Json {
        show::json(&json!({
            "traceId": hex(&trace.id),
            "spans": trace.spans.iter().map(as_json).collect::<Vec<_>>(),
            "criticalPath": path_as_json(&trace),
            "dropped": dropped,
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
            "owner": span.map(|span| StepOwner::of(&span.service, &span.name).label()),
            "start": time(segment.start).map(|at| at.to_string()),
            "end": time(segment.end).map(|at| at.to_string()),
        })
    };
    path.map(segment).collect()
}

fn as_json(span: &SpanRecord) -> Value {
    json!({
        "spanId": hex(&span.span),
        "parentSpanId": span.parent.map(|id| hex(&id)).unwrap_or_default(),
        "service": span.service,
        "version": span.version,
        "name": span.name,
        "start": span.start.to_string(),
        "end": span.end.to_string(),
        "attributes": span.attributes,
        "error": span.error.as_deref().unwrap_or_default(),
        "links": span.links,
    })
}
