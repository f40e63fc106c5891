//! A span for each step that a pod's start or end waits for.

use polylet_kit::cause;
use polylet_wire::common::v1::{Cause, PodRef};
use tracing::{Span, field::Empty};

use super::Job;
use crate::core::learn::Outcome;
use crate::core::step::Step;

/// The span of a step below what set it off.
pub fn span(job: &Job) -> Span {
    macro_rules! of {
        ($name:literal) => {
            of!($name, Empty, Empty)
        };
        ($name:literal, $container:expr, $attempt:expr) => {
            tracing::info_span!(
                parent: None,
                $name,
                k8s.pod.uid = job.pod.uid,
                k8s.pod.name = job.pod.name,
                k8s.namespace.name = job.pod.namespace,
                k8s.container.name = $container,
                attempt = $attempt,
                result = Empty,
                otel.status_code = Empty,
                otel.status_description = Empty,
            )
        };
    }
    let span = match &job.step {
        Step::Journal => of!("sync.journal"),
        Step::Decide(_) | Step::TornDown => of!("sync.decide"),
        Step::Allocate { .. } => of!("sync.allocate"),
        Step::Resize { .. } => of!("sync.resize"),
        Step::EnsureCgroup => of!("sync.cgroup"),
        Step::ApplyVolumes => of!("sync.volumes"),
        Step::CreateSandbox { attempt } => of!("sync.sandbox", Empty, *attempt),
        Step::PullImage { container } => of!("sync.pull", container.as_str(), Empty),
        Step::CreateContainer {
            container, attempt, ..
        } => of!("sync.container", container.as_str(), *attempt),
        Step::StartContainer {
            container, attempt, ..
        } => of!("sync.start", container.as_str(), *attempt),
        Step::PostStart { container, .. } => of!("sync.post_start", container.as_str(), Empty),
        Step::PreStop { container, .. } => of!("sync.pre_stop", container.as_str(), Empty),
        Step::StopContainer { container, .. } => of!("sync.stop", container.as_str(), Empty),
        Step::StopSandbox { .. } => of!("sync.stop_sandbox"),
        Step::ResetContainer { container, .. } => of!("sync.reset", container.as_str(), Empty),
        Step::RemoveContainer { container, .. } => of!("sync.remove", container.as_str(), Empty),
        Step::RemoveSandbox { .. } => of!("sync.remove_sandbox"),
        Step::ReleaseVolumes => of!("sync.release_volumes"),
        Step::RemoveCgroup => of!("sync.remove_cgroup"),
        Step::RemoveFiles => of!("sync.remove_files"),
    };
    match &job.cause {
        Some(known) => cause::set_parent(&span, Some(known)),
        None => cause::new_trace(&span),
    }
    span
}

/// Writes how it ended into the span.
pub fn ended(span: &Span, outcome: &Outcome) {
    match outcome {
        Outcome::Failed(trouble) => {
            span.record("result", trouble.reason.as_str());
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", trouble.message.as_str());
        }
        // In no words: a hook's output is nobody else's.
        Outcome::HookFailed(_) => {
            span.record("result", "failed");
            span.record("otel.status_code", "ERROR");
        }
        Outcome::Cancelled => {
            span.record("result", "cancelled");
        }
        _ => {
            span.record("result", "ok");
        }
    }
}

/// The wait for a place among the pods that start. Ends when it is dropped.
pub fn slot_wait(pod: &PodRef, known: Option<&Cause>) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "sync.wait_slot",
        k8s.pod.uid = pod.uid,
        k8s.pod.name = pod.name,
        k8s.namespace.name = pod.namespace,
    );
    cause::set_parent(&span, known);
    span
}

/// A look at what the runtime holds after a step.
pub fn refresh(pod: &PodRef, step: Option<&Cause>) -> Span {
    let Some(step) = step else {
        return Span::none();
    };
    let span = tracing::info_span!(
        parent: None,
        "sync.refresh",
        k8s.pod.uid = pod.uid,
        k8s.pod.name = pod.name,
        k8s.namespace.name = pod.namespace,
    );
    cause::set_parent(&span, Some(step));
    span
}

/// The cause that a step is.
pub fn cause_of(span: &Span) -> Cause {
    cause::of_span(span)
}
