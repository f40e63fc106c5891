//! The status that stood before.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use polylet_model::constants::condition::DISRUPTION_TARGET;
use polylet_model::status::is_terminal;

use crate::core::report::merge::OWN;

/// Ours, with what others have written to it at the cluster; or the cluster's where we have none.
pub(super) fn previous(
    last: Option<&PodStatus>,
    reported: Option<&PodStatus>,
) -> Option<PodStatus> {
    let (Some(last), Some(reported)) = (last, reported) else {
        return last.or(reported).cloned();
    };
    let (ended, others) = of_others(reported);
    let own = last.conditions.iter().flatten();
    let own = own.filter(|c| is_own(c)).cloned();
    let mut last = PodStatus {
        conditions: Some(others.into_iter().cloned().chain(own).collect()),
        ..last.clone()
    };
    if let Some(phase) = ended.filter(|_| !last.phase.as_deref().is_some_and(is_terminal)) {
        last.phase = Some(phase.to_owned());
        last.reason.clone_from(&reported.reason);
        last.message.clone_from(&reported.message);
    }
    Some(last)
}

/// What a node agent does not write alone: an end that others may have told, and the conditions
/// that are not its own.
pub(super) fn of_others(status: &PodStatus) -> (Option<&str>, Vec<&PodCondition>) {
    let conditions = status.conditions.iter().flatten();
    let ended = status.phase.as_deref().filter(|phase| is_terminal(phase));
    (ended, conditions.filter(|c| !is_own(c)).collect())
}

fn is_own(condition: &PodCondition) -> bool {
    let type_ = condition.type_.as_str();
    OWN.contains(&type_) || type_ == DISRUPTION_TARGET
}
