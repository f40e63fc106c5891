//! The previous status that a new one is computed from.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use polylet_model::constants::condition::DISRUPTION_TARGET;
use polylet_model::status::is_terminal;

use super::report::merge::OWNED_CONDITIONS;

/// Our last status with what others have written at the API server; the API server's where there
/// is no other.
pub(super) fn previous(last: Option<&PodStatus>, api: Option<&PodStatus>) -> Option<PodStatus> {
    let (Some(last), Some(api)) = (last, api) else {
        return last.or(api).cloned();
    };
    let (terminal, foreign) = foreign_fields(api);
    let own = last.conditions.iter().flatten();
    let own = own.filter(|c| is_owned(c)).cloned();
    let mut last = PodStatus {
        conditions: Some(foreign.into_iter().cloned().chain(own).collect()),
        ..last.clone()
    };
    if let Some(phase) = terminal.filter(|_| !last.phase.as_deref().is_some_and(is_terminal)) {
        last.phase = Some(phase.to_owned());
        last.reason.clone_from(&api.reason);
        last.message.clone_from(&api.message);
    }
    Some(last)
}

/// What others than the node agent may write: a terminal phase, and conditions that it does not own.
pub(super) fn foreign_fields(status: &PodStatus) -> (Option<&str>, Vec<&PodCondition>) {
    let conditions = status.conditions.iter().flatten();
    let terminal = status.phase.as_deref().filter(|phase| is_terminal(phase));
    (terminal, conditions.filter(|c| !is_owned(c)).collect())
}

fn is_owned(condition: &PodCondition) -> bool {
    let type_ = condition.type_.as_str();
    OWNED_CONDITIONS.contains(&type_) || type_ == DISRUPTION_TARGET
}
