//! Spans of attempts that a pod's start waits for. Periodic attempts have none.

use polylet_kit::cause;
use polylet_wire::common::v1::Cause;
use tracing::Span;
use tracing::field::Empty;

use crate::core::types::{Ask, Job, Observation};

macro_rules! span {
    ($name:literal, $job:expr) => {
        tracing::info_span!(
            $name,
            k8s.pod.uid = %$job.id.pod,
            k8s.pod.name = &*$job.pod,
            k8s.namespace.name = &*$job.namespace,
            k8s.container.name = &*$job.container,
            container.id = %$job.id.container,
            probe = $job.id.kind.as_str(),
            attempt = $job.attempt,
            result = Empty,
            otel.status_code = Empty,
            otel.status_description = Empty,
        )
    };
}

/// The span of an attempt, below what brought the container to its present state.
pub(crate) fn of_attempt(job: &Job, cause: Option<&Cause>) -> Span {
    if !job.awaited {
        return Span::none();
    }
    let span = match job.probe.ask {
        Ask::Exec { .. } => span!("probe.exec", job),
        Ask::Http(_) => span!("probe.http", job),
        Ask::Tcp { .. } => span!("probe.tcp", job),
        Ask::Grpc { .. } => span!("probe.grpc", job),
        Ask::Impossible(_) => return Span::none(),
    };
    cause::set_parent(&span, cause);
    span
}

/// The root of a verdict that no start waited for.
pub(crate) fn of_verdict(job: &Job) -> Span {
    let span = span!("probe.verdict", job);
    cause::new_trace(&span);
    span
}

/// How the attempt ended.
pub(crate) fn record(span: &Span, job: &Job, said: &Observation) {
    span.record("result", said.as_str());
    if let Observation::Failure(why) | Observation::Unknown(why) = said {
        span.record("otel.status_code", "ERROR");
        // What a command printed is the container's own affair.
        if !matches!(job.probe.ask, Ask::Exec { .. }) {
            span.record("otel.status_description", why.as_str());
        }
    }
}
