//! Roots of traces for the collector, once they have ended.

use std::sync::Weak;
use std::time::Instant;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use tokio::time::sleep_until;

use super::TraceStoreInner;
use super::convert;

/// Forwards the root of each trace that ends, until the store is gone.
pub(super) async fn forward(store: Weak<TraceStoreInner>, node: String) {
    let resource = resource(&node);
    loop {
        let Some(inner) = store.upgrade() else { return };
        let (ended, next) = {
            let mut buffer = inner.buffer();
            (buffer.take_ended(Instant::now()), buffer.next_end())
        };
        if let Some(forwarder) = inner.forwarder.as_ref().filter(|_| !ended.is_empty()) {
            let spans = ended.into_iter().map(convert::to_otlp).collect();
            forwarder.forward(request(&resource, spans));
        }
        let received = inner.received.clone();
        drop(inner);
        match next {
            // What comes meanwhile can only bring the end of another trace forward to this.
            Some(next) => tokio::select! {
                () = sleep_until(next.into()) => {}
                () = received.notified() => {}
            },
            None => received.notified().await,
        }
    }
}

fn resource(node: &str) -> Resource {
    let attributes = [
        ("service.name", "polylet-supervisor"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("k8s.node.name", node),
    ];
    Resource {
        attributes: attributes
            .map(|(key, value)| convert::attribute_of(key, value.to_owned()))
            .into(),
        ..Resource::default()
    }
}

fn request(
    resource: &Resource,
    spans: Vec<opentelemetry_proto::tonic::trace::v1::Span>,
) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}
