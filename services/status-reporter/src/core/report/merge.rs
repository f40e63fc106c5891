//! What the cluster should hold of a pod: what we say, beside what others have said.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use polylet_model::constants::{condition, condition_reason as why, phase};
use polylet_model::status::is_terminal;

/// What all last words of a pod share.
const MESSAGES: usize = 12 << 10;

/// Conditions that are a node agent's alone; all others are someone else's and stay.
pub(crate) const OWN: [&str; 8] = [
    condition::POD_READY_TO_START_CONTAINERS,
    condition::INITIALIZED,
    condition::READY,
    condition::CONTAINERS_READY,
    condition::POD_SCHEDULED,
    condition::POD_RESIZE_PENDING,
    condition::POD_RESIZE_IN_PROGRESS,
    condition::ALL_CONTAINERS_RESTARTING,
];

/// What the cluster holds, with ours in the place of ours.
///
/// - Conditions that are not a node agent's stay; `DisruptionTarget` comes with the end alone.
/// - Claims of resources are told by others and stay.
/// - No end is told while a container may still run, and none is taken back.
/// - A condition that says the same keeps the time it has, and a pod its start.
pub(crate) fn merged(holds: &PodStatus, ours: &PodStatus, may_run: bool) -> PodStatus {
    let mut new = ours.clone();
    let ended = is_end(holds);
    let ends = !ended && is_end(&new);
    if (ends && may_run) || (ended && !is_end(&new)) {
        new.phase.clone_from(&holds.phase);
        new.reason.clone_from(&holds.reason);
        new.message.clone_from(&holds.message);
    }
    new.conditions = Some(conditions(holds, ours, ends && !may_run));
    if is_end(&new) {
        close(&mut new);
    }
    new.resource_claim_statuses
        .clone_from(&holds.resource_claim_statuses);
    new.extended_resource_claim_status
        .clone_from(&holds.extended_resource_claim_status);
    new.node_allocatable_resource_claim_statuses
        .clone_from(&holds.node_allocatable_resource_claim_statuses);
    if holds.start_time.is_some() {
        new.start_time.clone_from(&holds.start_time);
    }
    normalise(&mut new);
    new
}

fn is_end(status: &PodStatus) -> bool {
    status.phase.as_deref().is_some_and(is_terminal)
}

fn conditions(holds: &PodStatus, ours: &PodStatus, ends: bool) -> Vec<PodCondition> {
    let held = || holds.conditions.iter().flatten();
    let of_others = held().filter(|c| !OWN.contains(&c.type_.as_str()));
    let mut all: Vec<PodCondition> = of_others.cloned().collect();
    for said in ours.conditions.iter().flatten() {
        let disruption = said.type_ == condition::DISRUPTION_TARGET;
        if !(OWN.contains(&said.type_.as_str()) || disruption && ends) {
            continue;
        }
        let mut said = said.clone();
        let known = held().find(|known| known.type_ == said.type_);
        if let Some(known) = known.filter(|known| known.status == said.status) {
            said.last_transition_time
                .clone_from(&known.last_transition_time);
        }
        all.retain(|other| other.type_ != said.type_);
        all.push(said);
    }
    all
}

/// What has ended is not ready, whatever its containers say.
fn close(status: &mut PodStatus) {
    let reason = if status.phase.as_deref() == Some(phase::SUCCEEDED) {
        why::POD_COMPLETED
    } else {
        why::POD_FAILED
    };
    for condition in status.conditions.iter_mut().flatten() {
        let readiness = [condition::READY, condition::CONTAINERS_READY];
        if readiness.contains(&condition.type_.as_str()) && condition.status == "True" {
            condition.status = "False".to_owned();
            condition.reason = Some(reason.to_owned());
            condition.message = None;
        }
    }
}

/// Into the form that the API server keeps: whole seconds, words within their room, one order.
fn normalise(status: &mut PodStatus) {
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let containers = lists.into_iter().flatten().flatten().count();
    let room = MESSAGES / containers.max(1);
    if let Some(list) = &mut status.container_statuses {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    for list in [
        &mut status.container_statuses,
        &mut status.init_container_statuses,
        &mut status.ephemeral_container_statuses,
    ] {
        let each = list.iter_mut().flatten();
        each.for_each(|container| normalise_container(container, room));
    }
    cut(&mut status.start_time);
    for condition in status.conditions.iter_mut().flatten() {
        cut(&mut condition.last_probe_time);
        cut(&mut condition.last_transition_time);
    }
}

fn normalise_container(container: &mut ContainerStatus, room: usize) {
    let states = [&mut container.state, &mut container.last_state];
    for state in states.into_iter().flatten() {
        normalise_state(state, room);
    }
}

fn normalise_state(state: &mut ContainerState, room: usize) {
    if let Some(running) = &mut state.running {
        cut(&mut running.started_at);
    }
    if let Some(ended) = &mut state.terminated {
        cut(&mut ended.started_at);
        cut(&mut ended.finished_at);
        if let Some(message) = &mut ended.message {
            let end = (0..=room.min(message.len())).rev();
            let end = end.into_iter().find(|at| message.is_char_boundary(*at));
            message.truncate(end.unwrap_or(0));
        }
    }
}

fn cut(at: &mut Option<Time>) {
    if let Some(Time(at)) = at
        && let Ok(second) = jiff::Timestamp::from_second(at.as_second())
    {
        *at = second;
    }
}
