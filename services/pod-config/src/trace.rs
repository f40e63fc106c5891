//! The first spans of pod traces.

use polylet_kit::cause;
use tracing::Span;

/// The first step of a pod's trace: from the first sight of a change until the pod is published.
pub(crate) fn new_pod_trace(origin: &str) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "podconfig.observe",
        polylet.pod.origin = origin,
        k8s.pod.uid = tracing::field::Empty,
        k8s.pod.name = tracing::field::Empty,
        k8s.namespace.name = tracing::field::Empty,
        polylet.result = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
        otel.status_description = tracing::field::Empty,
    );
    cause::start_trace(&span);
    span
}
