//! What a claim's status says of the growth of its volume on this node: upstream's patches.

use serde_json::{Value, json};

/// How the growth stands on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// It begins.
    InProgress,
    /// It is done.
    Finished,
    /// It failed and is tried again; why.
    Failed(String),
    /// It will never be; why.
    Infeasible(String),
}

/// A claim whose volume grows here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) size: String,
    pub(crate) growth: Growth,
}

/// Conditions of a growth; when it has ended, none of them holds.
const CONDITIONS: [&str; 4] = [
    "Resizing",
    "FileSystemResizePending",
    "ControllerResizeError",
    "NodeResizeError",
];

/// The patch of the claim's status, a strategic merge; of this claim alone, and of no later one of
/// its name.
pub(crate) fn patch(claim: &Claim) -> Value {
    let status = match &claim.growth {
        Growth::InProgress => json!({
            "allocatedResourceStatuses": {"storage": "NodeResizeInProgress"},
        }),
        Growth::Finished => {
            let ended = CONDITIONS.map(|kind| json!({"type": kind, "$patch": "delete"}));
            json!({
                "capacity": {"storage": claim.size},
                "allocatedResourceStatuses": {"storage": null},
                "conditions": ended,
            })
        }
        Growth::Failed(why) => json!({"conditions": [failed(why)]}),
        Growth::Infeasible(why) => json!({
            "allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"},
            "conditions": [failed(why)],
        }),
    };
    json!({"metadata": {"uid": claim.uid}, "status": status})
}

fn failed(why: &str) -> Value {
    json!({"type": "NodeResizeError", "status": "True",
        "message": format!("failed to expand pvc with {why}")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_growth() {
        let said = |growth| {
            patch(&Claim {
                namespace: "ns".into(),
                name: "c".into(),
                uid: "u".into(),
                size: "2Gi".into(),
                growth,
            })
        };
        let begins = said(Growth::InProgress);
        assert_eq!(begins["metadata"]["uid"], "u");
        let storage = &begins["status"]["allocatedResourceStatuses"]["storage"];
        assert_eq!(*storage, "NodeResizeInProgress");
        let done = said(Growth::Finished);
        assert_eq!(done["status"]["capacity"]["storage"], "2Gi");
        assert!(done["status"]["allocatedResourceStatuses"]["storage"].is_null());
        assert_eq!(
            done["status"]["conditions"].as_array().map(Vec::len),
            Some(4)
        );
        let failed = said(Growth::Infeasible("no".into()));
        let condition = &failed["status"]["conditions"][0];
        assert_eq!(condition["message"], "failed to expand pvc with no");
    }
}
