//! The status that the API server should have: the desired one, merged with what others write.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use polylet_model::constants::{condition, condition_reason as why, phase};
use polylet_model::status::is_terminal;

/// Bytes that the termination messages of a pod share, as upstream (`MaxPodTerminationMessageLogLength`).
const MAX_MESSAGES: usize = 12 << 10;

/// Conditions that only the node agent writes, upstream's `PodConditionsByKubelet`.
pub(crate) const OWNED_CONDITIONS: [&str; 8] = [
    condition::POD_READY_TO_START_CONTAINERS,
    condition::INITIALIZED,
    condition::READY,
    condition::CONTAINERS_READY,
    condition::POD_SCHEDULED,
    condition::POD_RESIZE_PENDING,
    condition::POD_RESIZE_IN_PROGRESS,
    condition::ALL_CONTAINERS_RESTARTING,
];

/// What a pod's phase may change to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhaseRules {
    /// A container may still run.
    pub(crate) may_run: bool,
    /// The status is that of a mirror pod, which stays when its static pod ends and the same manifest is
    /// put back, which then starts over.
    pub(crate) is_static: bool,
}

/// The API server's status with our fields replaced, as upstream's `mergePodStatus` does.
///
/// - Conditions that the node agent does not own stay; `DisruptionTarget` is only added together
///   with a terminal phase.
/// - Statuses of resource claims are written by others and stay.
/// - No terminal phase is reported while a container may still run, and none is taken back, except that
///   of a mirror pod.
/// - A condition whose status is unchanged keeps its transition time, and a pod its start time.
pub(crate) fn merged(api: &PodStatus, desired: &PodStatus, rules: PhaseRules) -> PodStatus {
    let PhaseRules { may_run, is_static } = rules;
    let mut new = desired.clone();
    let ended = has_ended(api);
    let ends = !ended && has_ended(&new);
    if (ends && may_run) || (ended && !has_ended(&new) && !is_static) {
        new.phase.clone_from(&api.phase);
        new.reason.clone_from(&api.reason);
        new.message.clone_from(&api.message);
    }
    new.conditions = Some(conditions(api, desired, ends && !may_run));
    if has_ended(&new) {
        mark_not_ready(&mut new);
    }
    new.resource_claim_statuses
        .clone_from(&api.resource_claim_statuses);
    new.extended_resource_claim_status
        .clone_from(&api.extended_resource_claim_status);
    new.node_allocatable_resource_claim_statuses
        .clone_from(&api.node_allocatable_resource_claim_statuses);
    if api.start_time.is_some() {
        new.start_time.clone_from(&api.start_time);
    }
    normalize(&mut new);
    new
}

fn has_ended(status: &PodStatus) -> bool {
    status.phase.as_deref().is_some_and(is_terminal)
}

fn conditions(api: &PodStatus, desired: &PodStatus, ends: bool) -> Vec<PodCondition> {
    let current = || api.conditions.iter().flatten();
    let foreign = current().filter(|c| !OWNED_CONDITIONS.contains(&c.type_.as_str()));
    let mut all: Vec<PodCondition> = foreign.cloned().collect();
    for condition in desired.conditions.iter().flatten() {
        let disruption = condition.type_ == condition::DISRUPTION_TARGET;
        if !(OWNED_CONDITIONS.contains(&condition.type_.as_str()) || disruption && ends) {
            continue;
        }
        let mut condition = condition.clone();
        let known = current().find(|known| known.type_ == condition.type_);
        if let Some(known) = known.filter(|known| known.status == condition.status) {
            condition
                .last_transition_time
                .clone_from(&known.last_transition_time);
        }
        all.retain(|other| other.type_ != condition.type_);
        all.push(condition);
    }
    all
}

/// Marks an ended pod as not ready, whatever its containers report.
fn mark_not_ready(status: &mut PodStatus) {
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

/// Normalizes a status to the form that the API server stores: whole seconds, messages within their
/// limit, containers in one order.
fn normalize(status: &mut PodStatus) {
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let containers = lists.into_iter().flatten().flatten().count();
    let limit = MAX_MESSAGES / containers.max(1);
    if let Some(list) = &mut status.container_statuses {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    for list in [
        &mut status.container_statuses,
        &mut status.init_container_statuses,
        &mut status.ephemeral_container_statuses,
    ] {
        let each = list.iter_mut().flatten();
        each.for_each(|container| normalize_container(container, limit));
    }
    truncate_time(&mut status.start_time);
    for condition in status.conditions.iter_mut().flatten() {
        truncate_time(&mut condition.last_probe_time);
        truncate_time(&mut condition.last_transition_time);
    }
}

fn normalize_container(container: &mut ContainerStatus, limit: usize) {
    let states = [&mut container.state, &mut container.last_state];
    for state in states.into_iter().flatten() {
        normalize_state(state, limit);
    }
}

fn normalize_state(state: &mut ContainerState, limit: usize) {
    if let Some(running) = &mut state.running {
        truncate_time(&mut running.started_at);
    }
    if let Some(ended) = &mut state.terminated {
        truncate_time(&mut ended.started_at);
        truncate_time(&mut ended.finished_at);
        if let Some(message) = &mut ended.message {
            let end = (0..=limit.min(message.len())).rev();
            let end = end.into_iter().find(|at| message.is_char_boundary(*at));
            message.truncate(end.unwrap_or(0));
        }
    }
}

fn truncate_time(at: &mut Option<Time>) {
    if let Some(Time(at)) = at
        && let Ok(second) = jiff::Timestamp::from_second(at.as_second())
    {
        *at = second;
    }
}
