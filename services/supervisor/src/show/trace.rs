//! `polylet trace`.

use polylet_kit::Config;
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use serde_json::{Value, json};

use crate::args::OutputFormat;
use crate::client::{self, ClientError};
use crate::core::waterfall::{WaterfallSpan, waterfall};

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
    if output == OutputFormat::Json {
        let spans: Vec<Value> = found.spans.iter().map(as_json).collect();
        let (trace, dropped) = (&found.trace_id, found.dropped);
        super::json(&json!({"traceId": trace, "spans": spans, "dropped": dropped}));
        return Ok(());
    }
    let spans: Vec<WaterfallSpan> = found.spans.into_iter().filter_map(from_wire).collect();
    super::print(&waterfall(&found.trace_id, &spans));
    Ok(())
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
        links: span.links.len(),
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
