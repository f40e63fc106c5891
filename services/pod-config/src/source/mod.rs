//! Where pods come from: the effects.

pub mod directory;
mod events;
mod fetch;
pub mod http;
mod look;
mod tls;

use polylet_kit::cause;
use tracing::Span;

/// The root of a pod's trace: from the first sight of a change until it is served.
pub fn observe(origin: &str) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "podconfig.observe",
        file = origin,
        k8s.pod.uid = tracing::field::Empty,
        k8s.pod.name = tracing::field::Empty,
        k8s.namespace.name = tracing::field::Empty,
        result = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
        otel.status_description = tracing::field::Empty,
    );
    cause::new_trace(&span);
    span
}
