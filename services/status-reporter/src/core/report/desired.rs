//! The next request that a pod's status needs at the API server, and its priority.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use polylet_model::PodUid;
use polylet_model::status::{is_ready, is_terminal};
use serde_json::Value;

use super::merge::{self, PhaseRules};
use super::patch;
use crate::core::shared_status::SharedStatus;

/// A pod's status as this node publishes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredStatus {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) status: SharedStatus,
    pub(crate) phase: PhaseRules,
    /// The deletion was requested at the API server.
    pub(crate) deleting: bool,
    /// The deletion was requested at the API server, and what the pod used here is free.
    pub(crate) deletable: bool,
}

/// A pod's status at the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiStatus {
    /// The pod's uid at the API server; for a static pod that of its mirror pod.
    pub(crate) uid: PodUid,
    pub(crate) status: SharedStatus,
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApiAction {
    /// Patch the status with this body.
    Patch(Value),
    /// Delete the pod: it has ended, what it used is free, and the API server has its last status.
    Delete,
}

/// How soon a request is sent, the soonest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Others wait for it: a terminal phase, readiness, the deletion.
    Immediate,
    /// A container has ended or restarted.
    High,
    /// An intermediate step, batched with others.
    Batched,
    /// No container of a pod that is being deleted runs any more: its last status follows once its
    /// sandbox is stopped. Upstream's pod worker publishes none before that.
    Ending,
}

/// The next request; `None` when the API server is up to date.
pub(crate) fn next_action(
    desired: &DesiredStatus,
    api: &ApiStatus,
) -> Option<(ApiAction, Priority)> {
    let new = merge::merged(&api.status, &desired.status, desired.phase);
    if let Some(body) = patch::between(api.uid.as_str(), &api.status, &new) {
        let priority = if desired.deleting && is_ending(&new) {
            Priority::Ending
        } else {
            priority(&api.status, &new)
        };
        return Some((ApiAction::Patch(body), priority));
    }
    is_deletable(desired, api).then_some((ApiAction::Delete, Priority::Immediate))
}

/// Whether the pod may be deleted at the API server, apart from fields that it may not have yet.
pub(crate) fn is_deletable(desired: &DesiredStatus, api: &ApiStatus) -> bool {
    desired.deletable && has_ended(&api.status)
}

/// Whether no container runs of a pod whose phase is not terminal yet.
fn is_ending(status: &PodStatus) -> bool {
    let runs = |container: &ContainerStatus| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    };
    !has_ended(status) && !containers(status).any(runs)
}

fn has_ended(status: &PodStatus) -> bool {
    status.phase.as_deref().is_some_and(is_terminal)
}

fn priority(old: &PodStatus, new: &PodStatus) -> Priority {
    if has_ended(old) != has_ended(new) || is_ready(old) != is_ready(new) {
        return Priority::Immediate;
    }
    let runs = |status: &PodStatus| containers(status).map(container_run).collect::<Vec<_>>();
    let (before, after) = (runs(old), runs(new));
    let is_new = |run: &(String, i32, bool)| (run.2 || run.1 > 0) && !before.contains(run);
    if after.iter().any(is_new) {
        Priority::High
    } else {
        Priority::Batched
    }
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    lists.into_iter().flatten().flatten()
}

/// Identifies a run of a container: name, restart count, and whether it has ended.
fn container_run(container: &ContainerStatus) -> (String, i32, bool) {
    let state = container.state.as_ref();
    let ended = state.is_some_and(|state| state.terminated.is_some());
    (container.name.clone(), container.restart_count, ended)
}
