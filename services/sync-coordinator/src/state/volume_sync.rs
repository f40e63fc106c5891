//! Declarations of desired volumes to volume-manager, and their completion: only after it may
//! volume-manager unmount volumes that no pod declares.
//!
//! volume-manager believes the client that declared last. A late call of a previous process instance
//! makes it believe that one; this instance then takes a client ID that was never used, with the next
//! epoch, and declares everything again.

use jiff::{SignedDuration, Timestamp};

use super::node_context::NodeContext;
use super::pod_worker::PodWorker;
use super::pod_workers::PodWorkers;
use crate::core::apply_result;
use crate::core::plan::SyncPhase;
use crate::core::step::StepFailure;

/// The delay before a failed completion is retried.
const RETRY_DELAY: SignedDuration = SignedDuration::from_secs(2);

/// The call that completes the declarations of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completion {
    Pending,
    InFlight,
    Done,
    /// Failed; not retried before this time.
    RetryAt(Timestamp),
}

/// The state of this process as a client of volume-manager.
#[derive(Debug)]
pub(crate) struct VolumeSync {
    sequence: u64,
    client_epoch: u32,
    completion: Completion,
}

impl VolumeSync {
    /// The first epoch of a process instance that starts at `now`.
    pub(crate) fn new(now: Timestamp) -> Self {
        VolumeSync {
            // Also increases over process instances.
            sequence: u64::try_from(now.as_nanosecond()).unwrap_or(0),
            client_epoch: 0,
            completion: Completion::Pending,
        }
    }

    /// The next sequence number.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// The epoch of the client ID in use.
    pub(crate) fn client_epoch(&self) -> u32 {
        self.client_epoch
    }

    /// Whether volume-manager has all declarations of this epoch.
    #[cfg(test)]
    pub(crate) fn is_completed(&self) -> bool {
        self.completion == Completion::Done
    }

    /// When a failed completion is due again.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        match self.completion {
            Completion::RetryAt(at) => Some(at),
            _ => None,
        }
    }

    /// Ends the delay after a failed completion if it is over.
    pub(crate) fn handle_timer(&mut self, now: Timestamp) {
        if self.next_due().is_some_and(|at| at <= now) {
            self.clear_retry();
        }
    }

    /// Ends the delay after a failed completion.
    pub(crate) fn clear_retry(&mut self) {
        if let Completion::RetryAt(_) = self.completion {
            self.completion = Completion::Pending;
        }
    }

    /// Starts a new epoch: all pods are declared again, and results of the previous one are ignored.
    pub(crate) fn start_epoch(&mut self, workers: &mut PodWorkers) {
        self.client_epoch = self.client_epoch.wrapping_add(1);
        // A delay after a failure goes on.
        if !matches!(self.completion, Completion::RetryAt(_)) {
            self.completion = Completion::Pending;
        }
        for worker in workers.iter_mut() {
            apply_result::redeclare_volumes(&mut worker.pod);
        }
        workers.requeue_all();
    }

    /// Starts the completion once every pod with volumes is declared and no container runs whose pod
    /// is not: returns the number of declared pods.
    pub(crate) fn start_completion(
        &mut self,
        workers: &PodWorkers,
        node: &NodeContext,
    ) -> Option<u32> {
        let synced = node.state.all_synced && node.state.volumes_synced;
        if self.completion != Completion::Pending || !synced || !workers.iter().all(is_settled) {
            return None;
        }
        let declared = |worker: &&PodWorker| {
            let volumes = &worker.pod.volumes;
            volumes.declared_digest.is_some() && !volumes.released
        };
        self.completion = Completion::InFlight;
        let count = workers.iter().filter(declared).count();
        Some(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Handles the result of the completion; true if another client was declared since, so that all
    /// volumes must be declared again.
    #[must_use]
    pub(crate) fn on_completed(
        &mut self,
        epoch: u32,
        result: Result<(), StepFailure>,
        now: Timestamp,
    ) -> bool {
        if epoch != self.client_epoch {
            return false;
        }
        self.completion = Completion::Pending;
        match result {
            Ok(()) => self.completion = Completion::Done,
            Err(failure) if failure.superseded => return true,
            Err(failure) => {
                let error = failure.message;
                tracing::warn!(
                    error,
                    retry_in = %RETRY_DELAY,
                    "failed to complete volume declarations; retrying"
                );
                if let Ok(at) = now.checked_add(RETRY_DELAY) {
                    self.completion = Completion::RetryAt(at);
                }
            }
        }
        false
    }
}

/// Whether a pod has declared its volumes, or needs none.
fn is_settled(worker: &PodWorker) -> bool {
    let declared = worker.pod.volumes.declared_digest.is_some();
    match worker.plan.phase {
        SyncPhase::CleanedUp | SyncPhase::Terminated => true,
        SyncPhase::Syncing => {
            worker.pod.spec.as_ref().is_some_and(|spec| {
                !spec.has_volumes || worker.pod.blocked_by.is_some() || declared
            })
        }
        SyncPhase::Pending | SyncPhase::Terminating => declared,
    }
}
