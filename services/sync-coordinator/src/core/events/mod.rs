//! Kubernetes events of decisions, in upstream's wording. Steps emit their own events
//! (`runtime/events.rs`).
//!
//! A plan is compared with the previous one: what was reported is not reported again.

mod killing;
mod resize;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use polylet_model::constants::{REJECTION_MESSAGE_PREFIX, reason};
use polylet_model::{ContainerKind, Manifest};

use crate::core::checkpoint::PodTermination;
use crate::core::plan::{
    ContainerWaiting, GRACE_PERIOD_EXCEEDED, Plan, RUNTIME_STATUS_UNAVAILABLE, SyncPhase,
    WaitingFor,
};
use crate::core::pod_spec::PodSpecView;
use crate::core::step::{Step, StepKey};
use crate::core::view::View;

/// An event of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEvent {
    /// The container's field path (`spec.containers{web}`); empty for the whole pod.
    pub field_path: String,
    /// Whether its type is `Warning`.
    pub warning: bool,
    /// The event's reason.
    pub reason: String,
    /// The event's message.
    pub message: String,
}

impl PodEvent {
    fn normal(reason: &str, message: impl Into<String>) -> Self {
        PodEvent {
            field_path: String::new(),
            warning: false,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    fn warning(reason: &str, message: impl Into<String>) -> Self {
        PodEvent {
            warning: true,
            ..PodEvent::normal(reason, message)
        }
    }

    fn in_container(self, field_path: &str) -> Self {
        PodEvent {
            field_path: field_path.to_owned(),
            ..self
        }
    }
}

/// The event of an update that requires features which the node does not have.
pub fn missing_features(missing: &str) -> PodEvent {
    PodEvent::warning(
        reason::FAILED_NODE_DECLARED_FEATURES_CHECK,
        format!("Pod requires node features that are not available: {missing}"),
    )
}

/// The field path of a container in its pod.
pub fn field_path(manifest: &Manifest, container: &str) -> String {
    let list = match manifest.container(container).map(|(kind, _)| kind) {
        Some(ContainerKind::Init | ContainerKind::Sidecar) => "spec.initContainers",
        Some(ContainerKind::Ephemeral) => "spec.ephemeralContainers",
        Some(ContainerKind::Regular) => "spec.containers",
        None => return format!("implicitly required container {container}"),
    };
    format!("{list}{{{container}}}")
}

/// The events of a plan after the previous one, in a process that was started at `process_start`.
pub fn events(
    view: &View<'_>,
    before: &Plan,
    plan: &Plan,
    process_start: Timestamp,
) -> Vec<PodEvent> {
    let mut events = Vec::new();
    let Some(spec) = view.pod.spec.as_deref() else {
        return events;
    };
    termination(view, plan, &mut events);
    killing::killing(view, spec, plan, &mut events);
    delays(before, plan, process_start, &mut events);
    if plan.phase == SyncPhase::Syncing {
        for waiting in &plan.waiting_containers {
            if is_of_this_process(view, waiting, process_start) {
                back_off(view, spec, before, waiting, &mut events);
            }
        }
        sandbox_changed(view, plan, &mut events);
        network_not_ready(view, plan, &mut events);
        resize::resize(view, spec, before, plan, &mut events);
    }
    events
}

/// Evictions, preemptions, rejections and deadlines.
fn termination(view: &View<'_>, plan: &Plan, events: &mut Vec<PodEvent>) {
    if view.pod.failures.contains_key(&StepKey::Checkpoint) {
        return;
    }
    let termination = plan.steps.iter().find_map(|step| match step {
        Step::CheckpointTermination(termination) if !termination.reason.is_empty() => {
            Some(termination)
        }
        _ => None,
    });
    let Some(PodTermination {
        reason, message, ..
    }) = termination
    else {
        return;
    };
    let rejection = message.strip_prefix(REJECTION_MESSAGE_PREFIX);
    if reason == reason::EVICTED && rejection.is_none() {
        // Reported by eviction, with what it measured.
        return;
    }
    let own_message = rejection.unwrap_or(message);
    events.push(if reason == reason::DEADLINE_EXCEEDED {
        PodEvent::normal(reason, own_message)
    } else {
        PodEvent::warning(reason, own_message)
    });
}

/// Missing runtime status, and containers that do not stop in time.
fn delays(before: &Plan, plan: &Plan, process_start: Timestamp, events: &mut Vec<PodEvent>) {
    let was_reported = |new: &&WaitingFor| {
        let same = |old: &WaitingFor| old.what == new.what && old.error == new.error;
        before.waiting_for.iter().any(same)
    };
    for waiting in plan.waiting_for.iter().filter(|w| !was_reported(w)) {
        if waiting.what == RUNTIME_STATUS_UNAVAILABLE {
            let message = format!("error determining status: {}", waiting.error);
            events.push(PodEvent::warning("FailedSync", message));
        }
        // The previous instance has reported what was overdue in its time.
        if waiting.what == GRACE_PERIOD_EXCEEDED && waiting.since >= Some(process_start) {
            let message = "Container runtime did not kill the pod within specified grace period.";
            events.push(PodEvent::warning("ExceededGracePeriod", message));
        }
    }
}

/// Whether a back-off follows an exit in the time of this instance: the previous one has reported
/// the others.
fn is_of_this_process(
    view: &View<'_>,
    waiting: &ContainerWaiting,
    process_start: Timestamp,
) -> bool {
    let newest = view.observed().newest_container(&waiting.container);
    let finished_at = newest.and_then(|newest| newest.finished_at);
    waiting.reason != reason::CRASH_LOOP_BACK_OFF
        || finished_at.is_none_or(|at| at >= process_start)
}

fn back_off(
    view: &View<'_>,
    spec: &PodSpecView,
    before: &Plan,
    waiting: &ContainerWaiting,
    events: &mut Vec<PodEvent>,
) {
    let previous = before
        .waiting_containers
        .iter()
        .find(|old| old.container == waiting.container && old.reason == waiting.reason);
    let is_new_retry =
        |old: &ContainerWaiting| waiting.retry_at.is_some() && old.retry_at < waiting.retry_at;
    if !previous.is_none_or(is_new_retry) {
        return;
    }
    let field_path = field_path(&spec.manifest, &waiting.container);
    if waiting.reason == reason::CRASH_LOOP_BACK_OFF {
        let message = format!(
            "Back-off restarting failed container {} in pod {}_{}({})",
            waiting.container, spec.name, spec.namespace, view.pod.uid
        );
        events.push(PodEvent::warning("BackOff", message).in_container(&field_path));
    } else if waiting.reason == reason::IMAGE_PULL_BACK_OFF {
        // The error of the last pull follows the image; upstream's event ends before it.
        let start = waiting.message.split("\": ").next().unwrap_or_default();
        let quote = if start.len() < waiting.message.len() {
            "\""
        } else {
            ""
        };
        let message = format!("{start}{quote}");
        // The event of an image volume belongs to the pod.
        let own = spec.container(&waiting.container);
        let is_own_image = own.is_some_and(|own| message.ends_with(&format!(" \"{}\"", own.image)));
        let image_path = if is_own_image { &field_path } else { "" };
        events.push(PodEvent::normal("BackOff", message).in_container(image_path));
        let failed = PodEvent::warning("Failed", "Error: ImagePullBackOff");
        events.push(failed.in_container(&field_path));
    }
}

fn sandbox_changed(view: &View<'_>, plan: &Plan, events: &mut Vec<PodEvent>) {
    let mut steps = plan.steps.iter();
    let creates = steps.any(|step| step.key() == StepKey::CreateSandbox);
    let is_retry = view.pod.failures.contains_key(&StepKey::CreateSandbox);
    if creates && !is_retry && !view.observed().sandboxes.is_empty() {
        let message = "Pod sandbox changed, it will be killed and re-created.";
        events.push(PodEvent::normal("SandboxChanged", message));
    }
}

fn network_not_ready(view: &View<'_>, plan: &Plan, events: &mut Vec<PodEvent>) {
    let is_due = plan.network_reported_at != view.pod.network_reported_at;
    if let (Some(_), true, Err(error)) = (plan.network_reported_at, is_due, &view.node.network) {
        let (reason, message) = error.split_once(": ").unwrap_or(("", error));
        events.push(PodEvent::warning(
            "NetworkNotReady",
            format!("network is not ready: container runtime network not ready: NetworkReady=false reason:{reason} message:{message}"),
        ));
    }
}
