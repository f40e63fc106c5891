//! Traces of observed changes, until their pods are published.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_kit::cause::{self, root};
use polylet_kit::trace_context;
use polylet_wire::time::to_wire;
use tracing::Span;

use crate::convert;
use crate::core::StaticPod;
use crate::core::state::PersistedCause;
use crate::trace::{annotation, new_pod_trace};

/// Traces by the origin of the changed manifest. They end when this is dropped.
#[derive(Default)]
pub(super) struct PodTraces {
    traces: BTreeMap<String, TracedChange>,
    /// Spans of further pods of these manifests.
    further: Vec<Span>,
}

struct TracedChange {
    span: Span,
    observed_at: Timestamp,
    /// Whether a pod uses the trace.
    used: bool,
}

impl PodTraces {
    pub(super) fn add(&mut self, origin: String, span: Span, observed_at: Timestamp) {
        let trace = TracedChange {
            span,
            observed_at,
            used: false,
        };
        self.traces.insert(origin, trace);
    }

    /// The cause of a new or changed pod. The first pod of an origin continues the trace that
    /// started with the observation of the change; each further one has its own, linked to that.
    pub(super) fn new_cause(
        &mut self,
        pod: &StaticPod,
        origin: &str,
        is_known: bool,
    ) -> PersistedCause {
        let trace = self
            .traces
            .get_mut(origin)
            .filter(|trace| !trace.span.is_disabled());
        let (span, observed_at) = match trace {
            Some(trace) if !trace.used => {
                trace.used = true;
                (trace.span.clone(), trace.observed_at)
            }
            Some(trace) => {
                let span = new_pod_trace(origin);
                span.follows_from(&trace.span);
                (span, trace.observed_at)
            }
            None => (new_pod_trace(origin), Timestamp::now()),
        };
        span.record("k8s.pod.uid", pod.uid.as_str())
            .record("k8s.pod.name", pod.name.as_str())
            .record("k8s.namespace.name", pod.namespace.as_str())
            .record("polylet.result", "accepted");
        let root = if is_known {
            root::POD_UPDATE
        } else {
            root::POD_START
        };
        cause::name_root(&span, root);
        let mut cause = trace_context::first_cause(&span, annotation(&pod.manifest).as_deref());
        cause.observed_at = Some(to_wire(observed_at));
        self.further.push(span);
        PersistedCause {
            removed_at: pod.removed_at,
            ..convert::persisted_cause(&cause, &pod.digest)
        }
    }

    /// Marks the traces of changes that have changed no pod.
    pub(super) fn record_unused(&self) {
        for trace in self.traces.values().filter(|trace| !trace.used) {
            trace.span.record("polylet.result", "nothing new");
        }
    }
}
