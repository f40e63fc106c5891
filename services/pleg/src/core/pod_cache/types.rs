use polylet_model::PodUid;

use super::*;

/// What to do next.
#[derive(Debug)]
pub enum Action {
    /// List everything.
    Relist { sequence: u64 },
    /// Inspect one pod. Without list entries, list it first.
    Inspect {
        uid: PodUid,
        listed: Option<ListedPod>,
        cached: CachedStatuses,
    },
    /// The pod changed, or is gone. `tokens` are the callers whose refresh found the change; none
    /// when it was found without a refresh.
    Publish {
        uid: PodUid,
        status: Option<Box<PodStatus>>,
        tokens: Vec<u64>,
    },
    /// The change that was just published without a cause was made by these callers.
    SetCause { uid: PodUid, tokens: Vec<u64> },
    /// The refresh of these callers is complete.
    Respond {
        uid: PodUid,
        tokens: Vec<u64>,
        result: Result<(), String>,
    },
    /// The initial sync is complete: every pod has been inspected once.
    Synced,
}

/// An event of the runtime about a sandbox or container. It only triggers an inspection.
#[derive(Debug, Clone)]
pub struct RuntimeEvent {
    pub pod: Option<PodIdentity>,
    /// The id of the sandbox or container.
    pub id: String,
    pub kind: RuntimeEventKind,
    pub at: Option<Timestamp>,
    /// The status of the sandbox, or of the container's sandbox.
    pub sandbox: Option<SandboxStatus>,
}

#[derive(Debug)]
pub(super) enum InitialSync {
    NotListed,
    /// Listed; these pods have not been inspected yet.
    Listed(BTreeSet<PodUid>),
    Done,
}

/// The ids of all sandboxes and containers.
pub(super) fn ids(status: &PodStatus) -> impl Iterator<Item = &str> {
    let sandboxes = status.sandboxes.iter().map(|s| s.id.as_str());
    sandboxes.chain(status.containers.iter().map(|c| c.id.as_str()))
}
