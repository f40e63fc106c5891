//! Checkpoints of pods: commitments under the state directory, and sandbox attempts in progress
//! under the run directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_kit::state_dir::StateDir;
use polylet_kit::state_file::StateFileError;
use polylet_model::{PodAllocation, ResizableResources};
use serde::{Deserialize, Serialize};

use crate::core::checkpoint::{LastRemoval, PodCheckpoint, PodTermination};
use crate::core::node_resources::PodRequest;

/// Version of the format of a file.
pub(crate) const VERSION: u32 = 1;

/// Directory of checkpoints, below the state directory.
pub(crate) const CHECKPOINTS: &str = "checkpoints";
/// Directory of sandbox attempts in progress, below the run directory.
pub(crate) const SANDBOX_ATTEMPTS: &str = "sandbox_attempts";

#[derive(Debug, Serialize, Deserialize)]
struct CheckpointRecord {
    acknowledged_at: Option<Timestamp>,
    /// Former versions have none.
    #[serde(default)]
    last_removal: Option<RemovalRecord>,
    request: Option<PodRequest>,
    allocated: Option<PodAllocation>,
    cgroup_resources: Option<PodAllocation>,
    actual_resources: BTreeMap<String, ResizableResources>,
    resize_generation: i64,
    termination: Option<TerminationRecord>,
    terminated: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct RemovalRecord {
    /// `None` for a pod that was never removed.
    at: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
struct TerminationRecord {
    reason: String,
    message: String,
    phase: String,
    disruption_target: bool,
    decided_at: Timestamp,
    grace_period: Option<u32>,
}

/// The directories of all checkpoints. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    pods: StateDir<CheckpointRecord>,
    attempts: StateDir<u32>,
}

/// Everything in a [`CheckpointStore`], by pod UID.
#[derive(Debug, Default)]
pub struct StoredCheckpoints {
    /// Checkpoints of pods.
    pub pods: BTreeMap<String, PodCheckpoint>,
    /// Attempt numbers of sandboxes whose creation had no known result.
    pub attempts: BTreeMap<String, u32>,
}

impl CheckpointStore {
    /// Opens the store and reads everything in it. A pod whose checkpoint is corrupt is admitted
    /// again.
    pub fn open(
        state_dir: &Path,
        run_dir: &Path,
    ) -> Result<(Self, StoredCheckpoints), StateFileError> {
        let store = CheckpointStore {
            pods: StateDir::new(state_dir.join(CHECKPOINTS), VERSION),
            // A call in flight does not outlive the node, so its number need not either.
            attempts: StateDir::new(run_dir.join(SANDBOX_ATTEMPTS), VERSION).without_sync(),
        };
        let pods = store.pods.open("admitting the pod again")?;
        let stored = StoredCheckpoints {
            pods: pods.into_iter().map(|(uid, r)| (uid, r.into())).collect(),
            attempts: store.attempts.open("reusing the sandbox attempt")?,
        };
        Ok((store, stored))
    }

    /// Saves a pod's checkpoint; it survives a crash of the node. Blocks.
    pub fn save(&self, uid: &str, checkpoint: PodCheckpoint) -> Result<(), StateFileError> {
        self.pods.put(uid, &checkpoint.into())
    }

    /// Removes everything about a pod.
    pub fn remove(&self, uid: &str) {
        for removed in [self.pods.remove(uid), self.attempts.remove(uid)] {
            log_failure(uid, removed, "remove");
        }
    }

    /// Saves the attempt number of a sandbox before its creation is requested. Without it the next
    /// process instance would request the same one again. Blocks.
    pub fn begin_sandbox(&self, uid: &str, attempt: u32) -> Result<(), StateFileError> {
        self.attempts.put(uid, &attempt)
    }

    /// Removes the attempt number: the creation has a known result.
    pub fn finish_sandbox(&self, uid: &str) {
        let removed = self.attempts.remove(uid);
        log_failure(uid, removed, "remove sandbox attempt");
    }
}

fn log_failure(uid: &str, result: Result<(), StateFileError>, operation: &str) {
    if let Err(error) = result {
        let error = polylet_kit::report(&error);
        tracing::warn!(
            pod_uid = uid,
            operation,
            error,
            "checkpoint operation failed"
        );
    }
}

impl From<PodCheckpoint> for CheckpointRecord {
    fn from(checkpoint: PodCheckpoint) -> Self {
        let termination = checkpoint.termination.map(|t| TerminationRecord {
            reason: t.reason,
            message: t.message,
            phase: t.phase,
            disruption_target: t.disruption_target,
            decided_at: t.decided_at,
            grace_period: t.grace_period,
        });
        CheckpointRecord {
            acknowledged_at: checkpoint.acknowledged_at,
            last_removal: match checkpoint.last_removal {
                LastRemoval::Unknown => None,
                LastRemoval::Never => Some(RemovalRecord { at: None }),
                LastRemoval::At(at) => Some(RemovalRecord { at: Some(at) }),
            },
            request: checkpoint.request.map(Arc::unwrap_or_clone),
            allocated: checkpoint.allocated.map(Arc::unwrap_or_clone),
            cgroup_resources: checkpoint.cgroup_resources.map(Arc::unwrap_or_clone),
            actual_resources: checkpoint.actual_resources,
            resize_generation: checkpoint.resize_generation,
            termination,
            terminated: checkpoint.terminated,
        }
    }
}

impl From<CheckpointRecord> for PodCheckpoint {
    fn from(record: CheckpointRecord) -> Self {
        let termination = record.termination.map(|t| PodTermination {
            reason: t.reason,
            message: t.message,
            phase: t.phase,
            disruption_target: t.disruption_target,
            decided_at: t.decided_at,
            grace_period: t.grace_period,
        });
        PodCheckpoint {
            acknowledged_at: record.acknowledged_at,
            last_removal: record
                .last_removal
                .map_or(LastRemoval::Unknown, |removal| removal.at.into()),
            request: record.request.map(Arc::new),
            allocated: record.allocated.map(Arc::new),
            cgroup_resources: record.cgroup_resources.map(Arc::new),
            actual_resources: record.actual_resources,
            resize_generation: record.resize_generation,
            termination,
            terminated: record.terminated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_and_attempts_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let open = || CheckpointStore::open(&dir.path().join("state"), &dir.path().join("run"));
        let (store, stored) = open().unwrap();
        assert!(stored.pods.is_empty() && stored.attempts.is_empty());
        let checkpoint = PodCheckpoint {
            acknowledged_at: Some(Timestamp::from_second(1_800_000_000).unwrap()),
            last_removal: LastRemoval::At(Timestamp::from_second(1_700_000_000).unwrap()),
            terminated: true,
            ..PodCheckpoint::default()
        };
        store.save("u1", checkpoint.clone()).unwrap();
        store.begin_sandbox("u1", 3).unwrap();
        store.begin_sandbox("u2", 1).unwrap();
        store.finish_sandbox("u2");
        let (store, stored) = open().unwrap();
        assert_eq!(stored.pods, [("u1".to_owned(), checkpoint)].into());
        assert_eq!(stored.attempts, [("u1".to_owned(), 3)].into());
        store.remove("u1");
        let (_, stored) = open().unwrap();
        assert!(stored.pods.is_empty() && stored.attempts.is_empty());
    }

    #[test]
    fn removals_are_unknown_in_checkpoints_of_former_versions() {
        use LastRemoval::{Never, Unknown};
        for last_removal in [Unknown, Never, LastRemoval::At(Timestamp::MAX)] {
            let checkpoint = PodCheckpoint {
                last_removal,
                ..PodCheckpoint::default()
            };
            let stored = serde_json::to_string(&CheckpointRecord::from(checkpoint)).unwrap();
            let record: CheckpointRecord = serde_json::from_str(&stored).unwrap();
            let restored = PodCheckpoint::from(record).last_removal;
            assert_eq!(restored, last_removal, "{stored}");
        }
        let former = include_str!("../../testdata/formats/checkpoints.v1.json");
        let former: serde_json::Value = serde_json::from_str(former).unwrap();
        let former: CheckpointRecord = serde_json::from_value(former["data"].clone()).unwrap();
        assert_eq!(PodCheckpoint::from(former).last_removal, Unknown);
    }

    #[test]
    fn an_attempt_that_cannot_be_saved_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = CheckpointStore::open(&dir.path().join("state"), dir.path()).unwrap();
        let attempts = dir.path().join(SANDBOX_ATTEMPTS);
        std::fs::remove_dir(&attempts).unwrap();
        std::fs::write(&attempts, "").unwrap();
        let saved = store.begin_sandbox("u1", 3);
        assert!(matches!(saved, Err(StateFileError::Write { .. })));
    }
}
