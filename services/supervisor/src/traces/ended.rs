//! Traces that have ended: their summaries, and their roots for the collector.

use std::sync::Weak;
use std::time::Instant;

use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use tokio::time::sleep_until;

use super::convert;
use super::{FollowState, TraceStoreInner};
use crate::core::export_sampling::TraceEnd;
use crate::core::trace_root::duration;

/// Summarizes each trace that ends, exports its root, and compresses it later, until the store is gone.
pub(super) async fn collect(store: Weak<TraceStoreInner>, node: String) {
    let resource = resource(&node);
    loop {
        let Some(inner) = store.upgrade() else { return };
        while inner.end_one(&resource) {}
        let next = inner.next_time();
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

impl TraceStoreInner {
    /// Compresses what is due, and returns when the next trace ends or is to be compressed.
    fn next_time(&self) -> Option<Instant> {
        let mut buffer = self.buffer();
        let next_packed = buffer.pack(super::now());
        buffer.next_end().into_iter().chain(next_packed).min()
    }

    /// Takes the next trace that has ended; `false` if there is none.
    fn end_one(&self, resource: &Resource) -> bool {
        let ended = self.buffer().take_ended(super::now());
        let Some(ended) = ended else { return false };
        let summary = ended.trace.summary();
        if ended.is_revision {
            // Counted and exported it is already.
            summary
                .iter()
                .for_each(|summary| self.summaries().replace(summary));
            return true;
        }
        if let Some(summary) = summary {
            self.summaries().push(&summary);
            self.start_counts.count(&summary);
            self.counted.notify_one();
            self.following.send_modify(|_: &mut FollowState| {});
        }
        if let (Some(exporter), Some(root)) = (&self.exporter, ended.derived_root) {
            let end = TraceEnd {
                trace: ended.trace.id,
                root: &root.name.clone(),
                duration: duration(root.start, root.end),
                failed: ended.failed,
            };
            exporter.end(end, Some(resource_spans(resource, convert::to_otlp(root))));
        }
        true
    }
}

fn resource(node: &str) -> Resource {
    let attributes = super::identity(node).attributes().into_iter();
    Resource {
        attributes: attributes
            .map(|(key, value)| convert::attribute_of(&key, value))
            .collect(),
        ..Resource::default()
    }
}

fn resource_spans(resource: &Resource, root: Span) -> ResourceSpans {
    ResourceSpans {
        resource: Some(resource.clone()),
        scope_spans: vec![ScopeSpans {
            spans: vec![root],
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    }
}
