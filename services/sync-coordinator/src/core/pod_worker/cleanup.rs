//! Removal of records that are no longer needed.

use jiff::SignedDuration;
use polylet_model::constants::reason;

use crate::core::checkpoint::PodTermination;
use crate::core::plan::{Plan, SyncPhase};
use crate::core::runtime_state::{ContainerRecord, ContainerState, PodRuntimeState, SandboxRecord};
use crate::core::step::{Step, StepKey};
use crate::core::view::View;

/// How long a removed pod stays published.
const FORGET_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// How long what an ended container replaces stays, and the container itself of an evicted pod, so that its
/// last state is published.
const RECORD_DELAY: SignedDuration = SignedDuration::from_secs(2);

/// Removes everything of a stopped pod, its containers and files at the same time. Sandboxes go last: only
/// their records tell the next process instance the pod's name.
pub fn remove_all(view: &View<'_>, volumes_released: bool, plan: &mut Plan) {
    let observed = view.observed();
    for container in &observed.containers {
        remove_container(view, container, plan);
    }
    if !view.pod.cgroup_removed {
        plan.start_step(view, Step::RemoveCgroup);
    }
    plan.reclaimed = volumes_released && view.pod.cgroup_removed;
    if volumes_released && !view.pod.files_removed {
        plan.start_step(view, Step::RemoveFiles);
    }
    let has_others = !view.pod.cgroup_removed || !view.pod.files_removed;
    if has_others || !observed.containers.is_empty() {
        return;
    }
    for sandbox in &observed.sandboxes {
        let id = sandbox.id.clone();
        plan.start_step(view, Step::RemoveSandbox { id });
    }
    let removing =
        |key: &StepKey| matches!(key, StepKey::RemoveContainer(_) | StepKey::RemoveSandbox(_));
    if observed.sandboxes.is_empty() && !view.pod.in_flight.keys().any(removing) {
        plan.phase = SyncPhase::CleanedUp;
    }
}

/// Releases what a stopped pod holds that starts over. As upstream, its records and logs stay, so that
/// restart counts go on.
pub fn release(view: &View<'_>, volumes_released: bool, plan: &mut Plan) {
    if !view.pod.cgroup_removed {
        plan.start_step(view, Step::RemoveCgroup);
        return;
    }
    // Begun before its source served it again.
    let removes = |key: &StepKey| {
        matches!(
            key,
            StepKey::RemoveContainer(_) | StepKey::RemoveSandbox(_) | StepKey::RemoveFiles
        )
    };
    if volumes_released && !view.pod.in_flight.keys().any(removes) {
        plan.phase = SyncPhase::CleanedUp;
    }
}

/// Removes superseded containers, and old sandboxes without containers.
pub fn remove_old_records(view: &View<'_>, current: &SandboxRecord, plan: &mut Plan) {
    remove_superseded_containers(view, plan);
    let observed = view.observed();
    for sandbox in observed
        .sandboxes
        .iter()
        .filter(|s| s.id != current.id && !s.ready)
    {
        if has_containers(observed, sandbox) {
            continue;
        }
        // Stopped by us first: its network may still be set up.
        remove_sandbox(view, sandbox, plan);
    }
}

/// Removes what is no longer needed of a terminated pod, as upstream's container garbage collection:
/// of an evicted pod everything; under disk pressure all containers and sandboxes; otherwise all but
/// the newest. Containers go before logs, which are kept as long as they are, and sandboxes last.
pub fn collect_terminated(view: &View<'_>, plan: &mut Plan) {
    let observed = view.observed();
    let evicted = is_evicted(view.pod.checkpoint.termination.as_ref());
    remove_superseded_containers(view, plan);
    for container in &observed.containers {
        if (evicted && was_seen(view, container, plan)) || is_reclaimed(view, container) {
            remove_container(view, container, plan);
        }
    }
    if evicted && !observed.is_empty() && observed.containers.is_empty() && !view.pod.files_removed
    {
        plan.start_step(view, Step::RemoveFiles);
        return;
    }
    let newest = observed.newest_sandbox().map(|newest| newest.id.as_str());
    for sandbox in &observed.sandboxes {
        let requested = view.node.container_reclaim;
        let reclaimed = requested.is_some() && sandbox.created_at <= requested;
        let old = newest != Some(sandbox.id.as_str());
        if (evicted || reclaimed || old) && !has_containers(observed, sandbox) {
            remove_sandbox(view, sandbox, plan);
        }
    }
}

/// Whether upstream removes the pod's content while the pod still exists: it was evicted or preempted.
fn is_evicted(termination: Option<&PodTermination>) -> bool {
    let reasons = [reason::EVICTED, reason::PREEMPTING];
    termination.is_some_and(|termination| reasons.contains(&termination.reason.as_str()))
}

/// Whether the last request to free disk space covers a container that does not run.
fn is_reclaimed(view: &View<'_>, container: &ContainerRecord) -> bool {
    let ended_at = match container.state {
        ContainerState::Created => container.created_at,
        _ => container.finished_at.or(container.created_at),
    };
    let requested = view.node.container_reclaim;
    requested.is_some() && !container.may_run() && ended_at <= requested
}

/// Whether the end of a container is old enough that watchers have seen it.
fn was_seen(view: &View<'_>, container: &ContainerRecord, plan: &mut Plan) -> bool {
    let Some(finished_at) = container.finished_at else {
        return true;
    };
    match finished_at.checked_add(RECORD_DELAY) {
        // An end in the future predates a backward clock step.
        Ok(due) if finished_at <= view.now && view.now < due => {
            plan.wake_by(due);
            false
        }
        _ => true,
    }
}

/// Removes containers that newer ones replace. Statuses name an exited one as the last until the exit of its
/// successor has been seen, and its log is read by that.
fn remove_superseded_containers(view: &View<'_>, plan: &mut Plan) {
    let observed = view.observed();
    for old in &observed.containers {
        let mut successors = observed.containers.iter().filter(|new| replaces(new, old));
        let is_superseded = match old.state {
            ContainerState::Exited => successors.any(|new| was_seen(view, new, plan)),
            _ => successors.next().is_some(),
        };
        if is_superseded {
            remove_container(view, old, plan);
        }
    }
}

/// Whether a newer container replaces an old one: an exited one is kept while it is the last of its
/// name that ran and exited, one that was never started only while it is the last of its name.
fn replaces(new: &ContainerRecord, old: &ContainerRecord) -> bool {
    let replaces = match old.state {
        ContainerState::Exited => new.state == ContainerState::Exited && !new.aborted,
        ContainerState::Created => true,
        ContainerState::Running | ContainerState::Unknown => false,
    };
    let order = |container: &ContainerRecord| (container.attempt, container.created_at);
    replaces && new.name == old.name && order(new) > order(old)
}

fn has_containers(observed: &PodRuntimeState, sandbox: &SandboxRecord) -> bool {
    let mut containers = observed.containers.iter();
    containers.any(|container| container.sandbox_id == sandbox.id)
}

/// Forgets a removed pod after a moment, so that watchers see its last state.
pub fn forget_after_delay(view: &View<'_>, plan: &mut Plan) {
    let Some(since) = view.pod.cleaned_up_at else {
        return;
    };
    if view.pod.starts_over() && !view.observed().is_empty() {
        // The worker that follows knows what this one knows.
        plan.forget = true;
        return;
    }
    // Refreshes overtake a stream that is behind: what it still brings would make a new pod of the
    // one that was removed, which is stopped and removed once more.
    if view.pod.in_stream {
        return;
    }
    let deleting = view
        .pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.deletion_grace_period.is_some());
    if view.pod.has_source {
        // Served again under the same UID: it starts over. A deleted pod stays until its source
        // drops it.
        plan.forget = !deleting;
        return;
    }
    match since.checked_add(FORGET_DELAY) {
        // A backward clock step must not prolong the delay.
        Ok(due) if since <= view.now && view.now < due => plan.wake_by(due),
        _ => plan.forget = true,
    }
}

/// Removes a container that does not run, with its log.
pub fn remove_container(view: &View<'_>, container: &ContainerRecord, plan: &mut Plan) {
    plan.start_step(
        view,
        Step::RemoveContainer {
            id: container.id.clone(),
            container: container.name.clone(),
        },
    );
}

/// Removes a sandbox, after it was stopped by this instance or as part of the pod's termination.
fn remove_sandbox(view: &View<'_>, sandbox: &SandboxRecord, plan: &mut Plan) {
    let id = sandbox.id.clone();
    let stopped = view.pod.stopped_sandboxes.contains(&id)
        || (view.pod.checkpoint.terminated && !sandbox.ready);
    plan.start_step(
        view,
        if stopped {
            Step::RemoveSandbox { id }
        } else {
            Step::StopSandbox { id }
        },
    );
}
