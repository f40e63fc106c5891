//! Spans of the steps that a pod's start or end waits for.

use polylet_kit::cause;
use polylet_wire::common::v1::{Cause, PodRef};
use tracing::{Span, field::Empty};

use super::StepContext;
use crate::core::step::{Step, StepOutcome};

/// The span of a step, which follows from its cause.
pub fn step_span(context: &StepContext) -> Span {
    macro_rules! span {
        ($name:literal) => {
            span!($name, Empty, Empty)
        };
        ($name:literal, $container:expr, $attempt:expr) => {
            tracing::info_span!(
                parent: None,
                $name,
                k8s.pod.uid = context.pod.uid,
                k8s.pod.name = context.pod.name,
                k8s.namespace.name = context.pod.namespace,
                k8s.container.name = $container,
                polylet.attempt = $attempt,
                polylet.result = Empty,
                otel.status_code = Empty,
                otel.status_description = Empty,
            )
        };
    }
    let span = match &context.step {
        Step::Checkpoint => span!("sync.checkpoint"),
        Step::CheckpointTermination(_) | Step::CheckpointTerminated => {
            span!("sync.checkpoint_termination")
        }
        Step::CheckpointAllocation { .. } => span!("sync.checkpoint_allocation"),
        Step::Resize { .. } => span!("sync.resize"),
        Step::AllocateDevices => span!("sync.allocate_devices"),
        Step::EnsureCgroup => span!("sync.cgroup"),
        Step::ApplyVolumes => span!("sync.volumes"),
        Step::CreateSandbox { attempt } => span!("sync.sandbox", Empty, *attempt),
        Step::PullImage { container } => span!("sync.pull", container.as_str(), Empty),
        Step::FindImage { container } => span!("sync.find_image", container.as_str(), Empty),
        Step::PrepareDevices { container } => {
            span!("sync.prepare_devices", container.as_str(), Empty)
        }
        Step::PrepareSubPaths { container, .. } => {
            span!("sync.sub_paths", container.as_str(), Empty)
        }
        Step::CreateContainer {
            container, attempt, ..
        } => span!("sync.container", container.as_str(), *attempt),
        Step::StartContainer {
            container, attempt, ..
        } => span!("sync.start", container.as_str(), *attempt),
        Step::PostStart { container, .. } => span!("sync.post_start", container.as_str(), Empty),
        Step::PreStop { container, .. } => span!("sync.pre_stop", container.as_str(), Empty),
        Step::StopContainer { container, .. } => span!("sync.stop", container.as_str(), Empty),
        Step::StopSandbox { .. } => span!("sync.stop_sandbox"),
        Step::RemoveForRestart { container, .. } => {
            span!("sync.remove_for_restart", container.as_str(), Empty)
        }
        Step::RemoveContainer { container, .. } => span!("sync.remove", container.as_str(), Empty),
        Step::RemoveSandbox { .. } => span!("sync.remove_sandbox"),
        Step::ReleaseVolumes => span!("sync.release_volumes"),
        Step::RemoveCgroup => span!("sync.remove_cgroup"),
        Step::RemoveFiles => span!("sync.remove_files"),
    };
    match &context.cause {
        Some(known) => cause::follow(&span, Some(known)),
        None => {
            cause::start_trace(&span);
            cause::name_root(&span, cause::root::POD_SYNC);
        }
    }
    span
}

/// Records the result of a step in its span.
pub fn record_outcome(span: &Span, outcome: &StepOutcome) {
    match outcome {
        StepOutcome::Failed(failure) => {
            span.record("polylet.result", failure.reason.as_str());
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", failure.message.as_str());
        }
        // Without a description: a hook's output may be confidential.
        StepOutcome::HookFailed(_) => {
            span.record("polylet.result", "failed");
            span.record("otel.status_code", "ERROR");
        }
        StepOutcome::Cancelled => {
            span.record("polylet.result", "cancelled");
        }
        _ => {
            span.record("polylet.result", "ok");
        }
    }
}

/// The span of the wait for a start permit. It ends when it is dropped.
pub fn permit_wait_span(pod: &PodRef, known: Option<&Cause>) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "sync.wait_start_permit",
        k8s.pod.uid = pod.uid,
        k8s.pod.name = pod.name,
        k8s.namespace.name = pod.namespace,
    );
    cause::follow(&span, known);
    span
}

/// The span of a refresh of the pod's state after a step.
pub fn refresh_span(pod: &PodRef, step: Option<&Cause>) -> Span {
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
    cause::follow(&span, Some(step));
    span
}

/// The cause that a span is for what follows from it.
pub fn cause_of(span: &Span) -> Cause {
    cause::from_span(span)
}
