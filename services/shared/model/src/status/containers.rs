//! The statuses of all containers.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, ResourceRequirements,
};

use super::lookup::{ContainerStatuses, by_name, previous_status};
use super::{
    ContainerPhase, PodWorkerState, RuntimeContainer, StatusInputs, WaitReason, readiness,
    replacement, state,
};
use crate::constants::reason;
use crate::pod::ContainerKind;
use crate::restart::{self, RestartDecision};

/// Computes the statuses.
pub(super) fn compute(facts: &StatusInputs<'_>) -> ContainerStatuses {
    let mut statuses = ContainerStatuses::default();
    for (kind, spec) in facts.manifest.all_containers() {
        let mut status = container_status(facts, kind, spec);
        readiness::set(facts, kind, spec, &mut status);
        match kind {
            ContainerKind::Init | ContainerKind::Sidecar => statuses.init.push(status),
            ContainerKind::Regular => {
                let previous = previous_status(facts, kind, &spec.name);
                status.allocated_resources_status =
                    super::devices::resource_statuses(facts, &spec.name, previous);
                statuses.regular.push(status);
            }
            ContainerKind::Ephemeral => statuses.ephemeral.push(status),
        }
    }
    statuses.regular.sort_by(|a, b| a.name.cmp(&b.name));
    statuses.ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}

fn container_status(
    facts: &StatusInputs<'_>,
    kind: ContainerKind,
    spec: &Container,
) -> ContainerStatus {
    let previous = previous_status(facts, kind, &spec.name);
    let waiting = facts.waiting.iter().find(|it| it.container == spec.name);
    let mut containers =
        by_name(facts, &spec.name).filter(|it| !is_starting(facts, previous, waiting, it));
    let newest = containers
        .next()
        .filter(|it| !is_stale(facts, previous, it))
        .map(|it| replacement::published_form(facts, previous, waiting, it));
    let newest = newest.as_deref();
    let mut status = match newest {
        Some(container) => {
            let mut status = state::from_runtime(facts, container, previous);
            if let Some(last) = containers.next() {
                let last = state::from_runtime(facts, last, None).state;
                status.last_state = last
                    .filter(|state| state.terminated.is_some())
                    .or(status.last_state);
            }
            status.resources = Some(super::resources::reported(facts, spec, container, previous));
            status.allocated_resources = requests(spec);
            status
        }
        None => missing_container(facts, spec, previous, waiting),
    };
    if status.image.is_empty() {
        status.image = spec.image.clone().unwrap_or_default();
    }
    if let Some(state) = retained_waiting(previous, waiting, &status) {
        status.last_state = status.state.replace(state);
    }
    status.volume_mounts = super::volume_mounts::volume_mounts(spec, facts.recursive_read_only);
    let restarts_all = waiting.is_some_and(|it| it.reason == reason::RESTARTING_ALL_CONTAINERS)
        || super::restart_all::in_progress(facts);
    if kind == ContainerKind::Init && newest.is_none() && !restarts_all && initialized_before(facts)
    {
        if state::is_waiting(&status) {
            status.state = Some(state::terminated_state(removed_init_termination()));
        }
    } else if let Some(waiting) = waiting.filter(|it| is_published(it))
        && should_run(facts, kind, spec, newest)
    {
        if state::termination(&status).is_some() {
            status.last_state = status.state.take();
        }
        status.state = Some(state::waiting_state(&waiting.reason, &waiting.message));
    }
    status
}

/// Whether the reason is one for clients of the API.
fn is_published(waiting: &WaitReason) -> bool {
    let internal = [reason::POST_START_HOOK, reason::REPLACEMENT];
    !waiting.reason.is_empty() && !internal.contains(&waiting.reason.as_str())
}

fn is_post_start(waiting: &WaitReason) -> bool {
    waiting.reason == reason::POST_START_HOOK
}

/// Whether a container is starting. It counts as running once its start has completed, including the
/// postStart hook, or has failed; a cancelled one is repeated. Until then the previous status stays, as
/// with upstream's kubelet, which blocks during the start.
fn is_starting(
    facts: &StatusInputs<'_>,
    previous: Option<&ContainerStatus>,
    waiting: Option<&WaitReason>,
    container: &RuntimeContainer,
) -> bool {
    let was_running = || {
        let id = state::container_id(facts, container);
        previous.is_some_and(|previous| {
            state::is_running(previous) && previous.container_id.as_ref() == Some(&id)
        })
    };
    facts.worker_state == PodWorkerState::Syncing
        && match container.phase {
            ContainerPhase::Created => true,
            ContainerPhase::Running => waiting.is_some_and(is_post_start) && !was_running(),
            ContainerPhase::Exited => {
                restart::start_was_cancelled(&container.reason, &container.message)
            }
            ContainerPhase::Unknown => false,
        }
}

/// Whether a container exited before the one that was published last. The later one has already been
/// removed, as the containers of a terminated pod are removed one by one, and stays the last one.
fn is_stale(
    facts: &StatusInputs<'_>,
    previous: Option<&ContainerStatus>,
    container: &RuntimeContainer,
) -> bool {
    let termination = previous.and_then(|it| Some((it, state::termination(it)?)));
    let Some((previous, last)) = termination else {
        return false;
    };
    let attempt = i32::try_from(container.attempt).unwrap_or(i32::MAX);
    let finished = container.finished_at.map(super::whole_second);
    facts.worker_state != PodWorkerState::Syncing
        && container.phase == ContainerPhase::Exited
        && previous.container_id.as_ref() != Some(&state::container_id(facts, container))
        && attempt < previous.restart_count
        && finished <= last.finished_at
}

/// The waiting state of an exited container that is being started again: it stays until the start has
/// completed.
fn retained_waiting(
    previous: Option<&ContainerStatus>,
    waiting: Option<&WaitReason>,
    status: &ContainerStatus,
) -> Option<ContainerState> {
    let previous = previous.filter(|it| it.container_id == status.container_id)?;
    let termination = state::termination(status);
    let is_restarting = waiting.is_some_and(is_post_start) && termination.is_some();
    let was_waiting =
        state::is_waiting(previous) && state::last_termination(previous) == termination;
    (is_restarting && was_waiting).then(|| previous.state.clone())?
}

/// The status of a container that the runtime does not have: not created yet, or removed.
fn missing_container(
    facts: &StatusInputs<'_>,
    spec: &Container,
    previous: Option<&ContainerStatus>,
    waiting: Option<&WaitReason>,
) -> ContainerStatus {
    let has_init = !facts.manifest.init_containers().is_empty();
    let default_reason = if has_init {
        reason::POD_INITIALIZING
    } else {
        reason::CONTAINER_CREATING
    };
    let mut status = ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        state: Some(state::waiting_state(default_reason, "")),
        restart_count: waiting.map_or(0, |it| i32::try_from(it.restarts).unwrap_or(i32::MAX)),
        ..ContainerStatus::default()
    };
    if let Some(removed) = super::restart_all::removed_container(previous, waiting, status.clone())
    {
        return removed;
    }
    let Some(previous) = previous else {
        return status;
    };
    if state::termination(previous).is_some() {
        return previous.clone();
    }
    status.restart_count = status.restart_count.max(previous.restart_count);
    status.last_state.clone_from(&previous.last_state);
    // Other fields stay those of the last container.
    status.container_id.clone_from(&previous.container_id);
    status.image_id.clone_from(&previous.image_id);
    status.image.clone_from(&previous.image);
    status.resources.clone_from(&previous.resources);
    status
        .allocated_resources
        .clone_from(&previous.allocated_resources);
    if state::is_running(previous) && state::last_termination(previous).is_none() {
        // It ran, and its exit was not observed: an unknown exit shows that it has been started.
        status.last_state = Some(state::unknown_termination(
            "The container could not be located when the pod was deleted.  The container used to be Running",
        ));
        if facts.manifest.deletion_timestamp().is_none() {
            status.restart_count = status
                .restart_count
                .max(previous.restart_count.saturating_add(1));
        }
    }
    status
}

/// Whether a regular container has been created: removed init containers have completed then.
fn initialized_before(facts: &StatusInputs<'_>) -> bool {
    facts
        .manifest
        .containers()
        .iter()
        .any(|regular| by_name(facts, &regular.name).next().is_some())
}

fn removed_init_termination() -> ContainerStateTerminated {
    ContainerStateTerminated {
        reason: Some(reason::COMPLETED.to_owned()),
        message: Some(
            "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
                .to_owned(),
        ),
        ..Default::default()
    }
}

/// Whether a container is to be started next.
fn should_run(
    facts: &StatusInputs<'_>,
    kind: ContainerKind,
    spec: &Container,
    newest: Option<&RuntimeContainer>,
) -> bool {
    if facts.worker_state != PodWorkerState::Syncing
        || facts.manifest.deletion_timestamp().is_some()
    {
        return false;
    }
    let Some(newest) = newest else { return true };
    match newest.phase {
        ContainerPhase::Running => false,
        ContainerPhase::Created | ContainerPhase::Unknown => true,
        ContainerPhase::Exited => {
            restart::after_exit(
                kind,
                spec,
                facts.manifest.restart_policy(),
                newest.exit_code,
            ) != RestartDecision::NoRestart
        }
    }
}

fn requests(
    spec: &Container,
) -> Option<
    std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
> {
    let ResourceRequirements { requests, .. } = spec.resources.as_ref()?;
    requests.clone().filter(|requests| !requests.is_empty())
}
