//! Status patches of claims whose volumes are resized on this node, as upstream writes them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaimCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// The state of a resize on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimResizeState {
    InProgress,
    Finished,
    /// Failed and retried; the error.
    Failed(String),
    /// Failed for good; the error.
    Infeasible(String),
}

/// A claim whose volume is resized on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResizedClaim {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) size: String,
    pub(crate) state: ClaimResizeState,
}

impl ClaimResizeState {
    /// Whether the patch depends on the conditions that the claim has.
    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Infeasible(_))
    }
}

/// The condition of a resize that has failed on the node.
const NODE_ERROR: &str = "NodeResizeError";
/// Conditions of a resize, removed when it is finished.
const CONDITIONS: [&str; 4] = [
    "Resizing",
    "FileSystemResizePending",
    "ControllerResizeError",
    NODE_ERROR,
];

/// The strategic merge patch of the status of a claim that has these conditions, with its uid as a
/// precondition. As upstream, an error that the claim has already stays with its time and message.
pub(crate) fn patch(
    claim: &ResizedClaim,
    conditions: &[PersistentVolumeClaimCondition],
    now: Timestamp,
) -> Value {
    let status = match &claim.state {
        ClaimResizeState::InProgress => json!({
            "allocatedResourceStatuses": {"storage": "NodeResizeInProgress"},
        }),
        ClaimResizeState::Finished => {
            let ended = CONDITIONS.map(|kind| json!({"type": kind, "$patch": "delete"}));
            json!({
                "capacity": {"storage": claim.size},
                "allocatedResourceStatuses": {"storage": null},
                "conditions": ended,
            })
        }
        ClaimResizeState::Failed(error) => json!({"conditions": failed(error, conditions, now)}),
        ClaimResizeState::Infeasible(error) => json!({
            "allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"},
            "conditions": failed(error, conditions, now),
        }),
    };
    json!({"metadata": {"uid": claim.uid}, "status": status})
}

/// The condition to add, or none.
fn failed(
    error: &str,
    conditions: &[PersistentVolumeClaimCondition],
    now: Timestamp,
) -> Vec<PersistentVolumeClaimCondition> {
    let is_known = |known: &PersistentVolumeClaimCondition| {
        known.type_ == NODE_ERROR && known.status == "True"
    };
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let condition = PersistentVolumeClaimCondition {
        type_: NODE_ERROR.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(Time(now)),
        message: Some(format!("failed to expand pvc with {error}")),
        ..PersistentVolumeClaimCondition::default()
    };
    let is_new = !conditions.iter().any(is_known);
    is_new.then_some(condition).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch_of(state: ClaimResizeState, conditions: &[PersistentVolumeClaimCondition]) -> Value {
        let claim = ResizedClaim {
            namespace: "ns".into(),
            name: "c".into(),
            uid: "u".into(),
            size: "2Gi".into(),
            state,
        };
        let now = "2026-01-02T03:04:05.6Z".parse().unwrap();
        patch(&claim, conditions, now)
    }

    #[test]
    fn patches_by_state() {
        let begins = patch_of(ClaimResizeState::InProgress, &[]);
        assert_eq!(begins["metadata"]["uid"], "u");
        let storage = &begins["status"]["allocatedResourceStatuses"]["storage"];
        assert_eq!(*storage, "NodeResizeInProgress");
        let done = patch_of(ClaimResizeState::Finished, &[]);
        assert_eq!(done["status"]["capacity"]["storage"], "2Gi");
        assert!(done["status"]["allocatedResourceStatuses"]["storage"].is_null());
        assert_eq!(
            done["status"]["conditions"].as_array().map(Vec::len),
            Some(4)
        );
        let infeasible = patch_of(ClaimResizeState::Infeasible("no".into()), &[]);
        let storage = &infeasible["status"]["allocatedResourceStatuses"]["storage"];
        assert_eq!(*storage, "NodeResizeInfeasible");
    }

    #[test]
    fn an_error_that_begins_has_a_time_and_one_that_lasts_stays() {
        let known = |type_: &str, status: &str| PersistentVolumeClaimCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            ..Default::default()
        };
        let new = json!([{"type": "NodeResizeError", "status": "True",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "message": "failed to expand pvc with no"}]);
        for (conditions, expected) in [
            (vec![], new.clone()),
            (vec![known("Resizing", "True")], new.clone()),
            (vec![known("NodeResizeError", "False")], new),
            (vec![known("NodeResizeError", "True")], json!([])),
        ] {
            for state in [ClaimResizeState::Failed, ClaimResizeState::Infeasible] {
                let patch = patch_of(state("no".to_owned()), &conditions);
                assert_eq!(patch["status"]["conditions"], expected, "{conditions:?}");
            }
        }
    }
}
