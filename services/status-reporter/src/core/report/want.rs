//! What a pod's status asks for at the API server, and how soon.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use polylet_model::status::{is_ready, is_terminal};
use serde_json::Value;

use super::{merge, patch};

/// What is said of a pod here.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Says {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) status: Arc<PodStatus>,
    /// A container of it may still run.
    pub(crate) may_run: bool,
    /// Its end was asked for at the API server, and nothing of it is left here.
    pub(crate) deletable: bool,
}

/// What the cluster holds of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Holds {
    /// Of the pod at the API server: of a static pod its mirror's.
    pub(crate) uid: String,
    pub(crate) status: Arc<PodStatus>,
}

/// One thing to do at the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Patch the status, with this body.
    Patch(Value),
    /// Remove the pod: it has ended, everything is cleaned up and the cluster knows.
    Delete,
}

/// How soon, the soonest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Haste {
    /// Others wait for it: an end, readiness, the removal.
    First,
    /// A container has ended or began anew.
    Soon,
    /// Steps on the way: those that come close together go together.
    Gather,
}

/// What is to be done now; `None` when the cluster knows everything.
pub(crate) fn wanted(says: &Says, holds: &Holds) -> Option<(Step, Haste)> {
    let new = merge::merged(&holds.status, &says.status, says.may_run);
    if let Some(body) = patch::between(&holds.uid, &holds.status, &new) {
        return Some((Step::Patch(body), haste(&holds.status, &new)));
    }
    removable(says, holds).then_some((Step::Delete, Haste::First))
}

/// Whether nothing keeps the pod at the API server but what the cluster may not know yet.
pub(crate) fn removable(says: &Says, holds: &Holds) -> bool {
    says.deletable && is_end(&holds.status)
}

fn is_end(status: &PodStatus) -> bool {
    status.phase.as_deref().is_some_and(is_terminal)
}

fn haste(old: &PodStatus, new: &PodStatus) -> Haste {
    if is_end(old) != is_end(new) || is_ready(old) != is_ready(new) {
        return Haste::First;
    }
    let lists = |status: &PodStatus| {
        let each = [
            &status.container_statuses,
            &status.init_container_statuses,
            &status.ephemeral_container_statuses,
        ];
        let all = each.into_iter().flatten().flatten();
        all.map(ends).collect::<Vec<_>>()
    };
    let (before, after) = (lists(old), lists(new));
    let news = |end: &(String, i32, bool)| (end.2 || end.1 > 0) && !before.contains(end);
    if after.iter().any(news) {
        Haste::Soon
    } else {
        Haste::Gather
    }
}

/// What tells the ends of a container: its name, its restarts, and whether it has ended.
fn ends(container: &ContainerStatus) -> (String, i32, bool) {
    let state = container.state.as_ref();
    let ended = state.is_some_and(|state| state.terminated.is_some());
    (container.name.clone(), container.restart_count, ended)
}
