//! Events of pods about steps, with the kubelet's reasons and messages. Each is recorded by the
//! process instance that executes the step; a later one, which sees only the result, does not repeat
//! it.

use polylet_cri::CriError;
use polylet_model::Manifest;
use polylet_wire::common::v1::PodRef;

use super::{RuntimeManager, StepContext};
use crate::core::events::{PodEvent, field_path};
use crate::core::step::{Step, StepFailure, StepOutcome};

/// Records an event.
pub fn record(manager: &RuntimeManager, pod: &PodRef, event: PodEvent) {
    let notices = manager.ctx.notices();
    if event.warning {
        notices.warning(pod, &event.field_path, &event.reason, event.message);
    } else {
        notices.normal(pod, &event.field_path, &event.reason, event.message);
    }
}

/// Records an event of a container.
pub fn record_container(
    manager: &RuntimeManager,
    context: &StepContext,
    container: &str,
    warning: bool,
    reason: &str,
    message: impl Into<String>,
) {
    let event = PodEvent {
        field_path: container_path(context, container),
        warning,
        reason: reason.to_owned(),
        message: message.into(),
    };
    record(manager, &context.pod, event);
}

/// Records an event of the pod.
pub fn record_pod(
    manager: &RuntimeManager,
    context: &StepContext,
    warning: bool,
    reason: &str,
    message: impl Into<String>,
) {
    let event = PodEvent {
        field_path: String::new(),
        warning,
        reason: reason.to_owned(),
        message: message.into(),
    };
    record(manager, &context.pod, event);
}

/// The field path of a container in the step's pod.
pub fn container_path(context: &StepContext, container: &str) -> String {
    match &context.manifest {
        Some(manifest) => field_path(manifest, container),
        None => format!("implicitly required container {container}"),
    }
}

/// The reference to a manifest's pod.
pub fn pod_ref(manifest: &Manifest) -> PodRef {
    PodRef {
        uid: manifest.uid().to_string(),
        namespace: manifest.namespace().to_owned(),
        name: manifest.name().to_owned(),
    }
}

/// An error of the runtime, formatted as the kubelet does.
pub fn error_text(error: &CriError) -> String {
    error.rpc_error()
}

/// Records the events about the result of a step.
pub fn record_outcome(manager: &RuntimeManager, context: &StepContext, outcome: &StepOutcome) {
    let record = |container: &str, warning, reason: &str, message: String| {
        record_container(manager, context, container, warning, reason, message);
    };
    match (&context.step, outcome) {
        (Step::CreateContainer { container, .. }, StepOutcome::ContainerCreated(_)) => {
            record(container, false, "Created", "Container created".to_owned());
        }
        (Step::StartContainer { container, .. }, StepOutcome::Done) => {
            record(container, false, "Started", "Container started".to_owned());
        }
        (
            Step::PrepareDevices { container }
            | Step::PrepareSubPaths { container, .. }
            | Step::CreateContainer { container, .. },
            StepOutcome::Failed(failure),
        ) if !failure.name_reserved => {
            let message = format!("Error: {}", failure.message);
            record(container, true, "Failed", message);
        }
        (Step::StartContainer { container, id, .. }, StepOutcome::Failed(failure))
            if !failure.name_reserved =>
        {
            // Without the ID, so that repeated failures have the same message.
            let message = failure.message.replace(id.as_str(), container);
            record(container, true, "Failed", format!("Error: {message}"));
        }
        (Step::PullImage { container }, StepOutcome::Failed(failure)) => {
            let message = format!("Error: {}", failure.reason);
            record(container, true, "Failed", message);
        }
        (Step::PostStart { container, .. }, StepOutcome::HookFailed(_)) => {
            let message = "PostStartHook failed".to_owned();
            record(container, true, "FailedPostStartHook", message);
        }
        (Step::PreStop { container, .. }, StepOutcome::HookFailed(_)) => {
            let message = "PreStopHook failed".to_owned();
            record(container, true, "FailedPreStopHook", message);
        }
        (
            Step::Checkpoint
            | Step::CheckpointTermination(_)
            | Step::CheckpointTerminated
            | Step::CheckpointAllocation { .. },
            StepOutcome::Failed(failure),
        ) => {
            let message = format!("Failed to save the pod's state: {}", failure.message);
            record_pod(manager, context, true, "FailedCheckpoint", message);
        }
        (Step::EnsureCgroup, StepOutcome::Failed(failure)) => {
            let message = format!("unable to ensure pod container exists: {}", failure.message);
            record_pod(manager, context, true, "FailedCreatePodContainer", message);
        }
        (Step::StopContainer { container, .. }, StepOutcome::Failed(failure)) => {
            record_kill_failure(manager, context, "KillContainer", container, failure);
        }
        (Step::StopSandbox { .. }, StepOutcome::Failed(failure)) => {
            let uid = &context.pod.uid;
            record_kill_failure(manager, context, "KillPodSandbox", uid, failure);
        }
        _ => {}
    }
}

fn record_kill_failure(
    manager: &RuntimeManager,
    context: &StepContext,
    action: &str,
    target: &str,
    failure: &StepFailure,
) {
    let StepFailure {
        reason, message, ..
    } = failure;
    let message = format!(
        "error killing pod: failed to {action:?} for {target:?} with {reason}: {message:?}"
    );
    record_pod(manager, context, true, "FailedKillPod", message);
}
