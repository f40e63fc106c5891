//! Stops and hooks in progress, under the run directory: a grace period continues over a restart of
//! this process, and a hook without a known result runs again. Containers do not outlive the node, so
//! these files need not either.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use polylet_kit::state_dir::StateDir;
use polylet_kit::state_file::StateFileError;
use serde::{Deserialize, Serialize};

use crate::core::view::{ContainerStop, PendingRestart, PodLifecycle, PostStartState};

/// Version of the format of a file.
pub(crate) const VERSION: u32 = 1;

/// Directory of the store, below the run directory.
const LIFECYCLES: &str = "lifecycles";

#[derive(Debug, Default, Serialize, Deserialize)]
struct LifecycleRecord {
    stops: BTreeMap<String, StopRecord>,
    /// IDs of containers whose postStart hook has not succeeded.
    post_starts: Vec<String>,
    pending_restarts: BTreeMap<String, RestartRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RestartRecord {
    attempt: u32,
    backoff_step: u32,
    not_before: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StopRecord {
    started_at: Timestamp,
    grace_period: u32,
    deadline: Timestamp,
    pre_stop_done: bool,
    restart: bool,
}

/// The directory of lifecycles. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LifecycleStore {
    pods: StateDir<LifecycleRecord>,
}

impl LifecycleStore {
    /// Opens the store and reads all lifecycles by pod UID. A corrupt one is lost: its stops start
    /// over.
    pub(crate) fn open(
        run_dir: &Path,
    ) -> Result<(Self, BTreeMap<String, PodLifecycle>), StateFileError> {
        let pods = StateDir::new(run_dir.join(LIFECYCLES), VERSION).without_sync();
        let stored: BTreeMap<String, LifecycleRecord> = pods.open("restarting grace periods")?;
        let stored = stored.into_iter().map(|(uid, r)| (uid, r.into()));
        let stored = stored.collect();
        Ok((LifecycleStore { pods }, stored))
    }

    /// Saves a pod's lifecycle: one small file, before its steps start.
    pub(crate) fn save(&self, uid: &str, lifecycle: &PodLifecycle) -> Result<(), StateFileError> {
        if lifecycle.is_empty() {
            self.pods.remove(uid)
        } else {
            self.pods.put(uid, &lifecycle.into())
        }
    }

    /// Removes a pod's lifecycle.
    pub(crate) fn remove(&self, uid: &str) {
        if let Err(error) = self.pods.remove(uid) {
            let error = polylet_kit::report(&error);
            tracing::warn!(
                pod_uid = uid,
                error,
                "failed to remove stops and hooks of a removed pod"
            );
        }
    }
}

impl From<&PodLifecycle> for LifecycleRecord {
    fn from(lifecycle: &PodLifecycle) -> Self {
        let stop = |stop: &ContainerStop| StopRecord {
            started_at: stop.started_at,
            grace_period: stop.grace_period,
            deadline: stop.deadline,
            pre_stop_done: stop.pre_stop_done,
            restart: stop.restart,
        };
        let restart = |restart: &PendingRestart| RestartRecord {
            attempt: restart.attempt,
            backoff_step: restart.backoff_step,
            not_before: restart.not_before,
        };
        LifecycleRecord {
            stops: lifecycle
                .stops
                .iter()
                .map(|(id, s)| (id.clone(), stop(s)))
                .collect(),
            post_starts: lifecycle.post_starts.keys().cloned().collect(),
            pending_restarts: lifecycle
                .pending_restarts
                .iter()
                .map(|(name, r)| (name.clone(), restart(r)))
                .collect(),
        }
    }
}

impl From<LifecycleRecord> for PodLifecycle {
    fn from(record: LifecycleRecord) -> Self {
        let stop = |stop: StopRecord| ContainerStop {
            started_at: stop.started_at,
            grace_period: stop.grace_period,
            deadline: stop.deadline,
            pre_stop_done: stop.pre_stop_done,
            restart: stop.restart,
        };
        let restart = |restart: RestartRecord| PendingRestart {
            attempt: restart.attempt,
            backoff_step: restart.backoff_step,
            not_before: restart.not_before,
        };
        PodLifecycle {
            stops: record
                .stops
                .into_iter()
                .map(|(id, s)| (id, stop(s)))
                .collect(),
            // The result of a failed hook is not stored: it runs again.
            post_starts: record
                .post_starts
                .into_iter()
                .map(|id| (id, PostStartState::Due))
                .collect(),
            pending_restarts: record
                .pending_restarts
                .into_iter()
                .map(|(name, r)| (name, restart(r)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifecycles_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let (store, stored) = LifecycleStore::open(dir.path()).unwrap();
        assert!(stored.is_empty());
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let stop = ContainerStop {
            started_at: at,
            grace_period: 30,
            deadline: at,
            pre_stop_done: true,
            restart: false,
        };
        let mut lifecycle = PodLifecycle::default();
        lifecycle.stops.insert("c1".into(), stop);
        lifecycle
            .post_starts
            .insert("c2".into(), PostStartState::Due);
        let restart = PendingRestart {
            attempt: 3,
            backoff_step: 2,
            not_before: Some(at),
        };
        lifecycle.pending_restarts.insert("a".into(), restart);
        store.save("u1", &lifecycle).unwrap();
        let corrupt = dir.path().join(LIFECYCLES).join("u2.json");
        std::fs::write(corrupt, "{").unwrap();
        let (store, stored) = LifecycleStore::open(dir.path()).unwrap();
        assert_eq!(stored, BTreeMap::from([("u1".to_owned(), lifecycle)]));
        store.remove("u1");
        assert!(LifecycleStore::open(dir.path()).unwrap().1.is_empty());
    }
}
