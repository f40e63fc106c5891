//! Status patches of claims whose volumes are resized on this node, as upstream writes them.

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

/// Conditions of a resize, removed when it is finished.
const CONDITIONS: [&str; 4] = [
    "Resizing",
    "FileSystemResizePending",
    "ControllerResizeError",
    "NodeResizeError",
];

/// The strategic merge patch of the claim's status, with its uid as a precondition.
pub(crate) fn patch(claim: &ResizedClaim) -> Value {
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
        ClaimResizeState::Failed(error) => json!({"conditions": [failed(error)]}),
        ClaimResizeState::Infeasible(error) => json!({
            "allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"},
            "conditions": [failed(error)],
        }),
    };
    json!({"metadata": {"uid": claim.uid}, "status": status})
}

fn failed(error: &str) -> Value {
    json!({"type": "NodeResizeError", "status": "True",
        "message": format!("failed to expand pvc with {error}")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_by_state() {
        let patch_of = |state| {
            patch(&ResizedClaim {
                namespace: "ns".into(),
                name: "c".into(),
                uid: "u".into(),
                size: "2Gi".into(),
                state,
            })
        };
        let begins = patch_of(ClaimResizeState::InProgress);
        assert_eq!(begins["metadata"]["uid"], "u");
        let storage = &begins["status"]["allocatedResourceStatuses"]["storage"];
        assert_eq!(*storage, "NodeResizeInProgress");
        let done = patch_of(ClaimResizeState::Finished);
        assert_eq!(done["status"]["capacity"]["storage"], "2Gi");
        assert!(done["status"]["allocatedResourceStatuses"]["storage"].is_null());
        assert_eq!(
            done["status"]["conditions"].as_array().map(Vec::len),
            Some(4)
        );
        let failed = patch_of(ClaimResizeState::Infeasible("no".into()));
        let condition = &failed["status"]["conditions"][0];
        assert_eq!(condition["message"], "failed to expand pvc with no");
    }
}
