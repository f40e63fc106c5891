//! Spans of attempts that a pod's start waits for. Periodic attempts have none.

use polylet_kit::cause;
use polylet_wire::common::v1::Cause;
use tracing::Span;
use tracing::field::Empty;

use crate::core::types::{ProbeAttempt, ProbeOutput, ResolvedHandler};

macro_rules! span {
    ($name:literal, $attempt:expr) => {
        tracing::info_span!(
            $name,
            k8s.pod.uid = %$attempt.id.pod,
            k8s.pod.name = &*$attempt.pod,
            k8s.namespace.name = &*$attempt.namespace,
            k8s.container.name = &*$attempt.container,
            container.id = %$attempt.id.container,
            polylet.probe.type = $attempt.id.kind.as_str(),
            polylet.attempt = $attempt.attempt,
            polylet.result = Empty,
            otel.status_code = Empty,
            otel.status_description = Empty,
        )
    };
}

/// The span of an attempt, which follows from what caused the container's present state.
pub(crate) fn attempt(attempt: &ProbeAttempt, cause: Option<&Cause>) -> Span {
    if !attempt.awaited {
        return Span::none();
    }
    let span = match attempt.probe.handler {
        ResolvedHandler::Exec { .. } => span!("probe.exec", attempt),
        ResolvedHandler::Http(_) => span!("probe.http", attempt),
        ResolvedHandler::Tcp { .. } => span!("probe.tcp", attempt),
        ResolvedHandler::Grpc { .. } => span!("probe.grpc", attempt),
        ResolvedHandler::Invalid(_) => return Span::none(),
    };
    cause::follow(&span, cause);
    span
}

/// The first span of the trace of an outcome change that no pod start waited for.
pub(crate) fn outcome(attempt: &ProbeAttempt) -> Span {
    let span = span!("probe.outcome", attempt);
    cause::start_trace(&span);
    cause::name_root(&span, cause::root::PROBE_CHANGE);
    span
}

/// Records the result of an attempt.
pub(crate) fn record(span: &Span, attempt: &ProbeAttempt, output: &ProbeOutput) {
    span.record("polylet.result", output.as_str());
    if let ProbeOutput::Failure(message) | ProbeOutput::Unknown(message) = output {
        span.record("otel.status_code", "ERROR");
        // The output of a command may be confidential.
        if !matches!(attempt.probe.handler, ResolvedHandler::Exec { .. }) {
            span.record("otel.status_description", message.as_str());
        }
    }
}
