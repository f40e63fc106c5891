//! State of the coordinator: one sub-state per concern, each with methods of its own.
//!
//! Nothing here acts on the node; [`crate::coordinator`] combines the sub-states and requests
//! effects. Updates of the peers' streams arrive in [`stream_handlers`].

pub(crate) mod device_requests;
mod failed_pulls;
pub(crate) mod log_targets;
pub(crate) mod name_conflicts;
pub(crate) mod node_context;
pub(crate) mod orphan_scan;
pub(crate) mod pod_worker;
pub(crate) mod pod_workers;
pub(crate) mod publication;
pub(crate) mod reconcile_queue;
mod report_cache;
pub(crate) mod resource_usage;
mod stream_handlers;
pub(crate) mod stream_sync;
pub(crate) mod volume_sync;

use jiff::{SignedDuration, Timestamp};
use polylet_model::PodUid;
use polylet_wire::podconfig::v1::PodSource;

use crate::checkpoint::RestoredState;
use crate::config::Config;
use crate::core::clock_step;
use crate::core::concurrency_limit::ConcurrencyLimit;
use crate::core::node_resources::AllocatedPod;
use crate::core::plan::{start_call, start_class};
use crate::core::pod_counts::PodCounts;
use crate::core::start_limiter::StartLimiter;
use crate::core::step::StepKey;
use log_targets::LogTargets;
use node_context::NodeContext;
use orphan_scan::OrphanScan;
use pod_workers::PodWorkers;
use stream_sync::StreamSync;
use volume_sync::VolumeSync;

/// The sources of pods.
pub(crate) const POD_SOURCES: [PodSource; 3] = [PodSource::File, PodSource::Http, PodSource::Api];

/// All sub-states of the coordinator.
pub(crate) struct State {
    pub(crate) workers: PodWorkers,
    pub(crate) node: NodeContext,
    pub(crate) streams: StreamSync,
    pub(crate) starts: StartLimiter,
    pub(crate) volumes: VolumeSync,
    pub(crate) orphans: OrphanScan,
    pub(crate) logs: LogTargets,
    pub(crate) counts: PodCounts,
}

impl State {
    /// The state at the start of the process: what was restored from disk, before any update.
    pub(crate) fn new(config: &Config, restored: RestoredState, now: Timestamp) -> Self {
        State {
            node: NodeContext::new(config, &restored.checkpoints),
            workers: PodWorkers::new(restored),
            streams: StreamSync::new(&POD_SOURCES.map(i32::from)),
            starts: StartLimiter::new(match config.parallel_starts {
                Some(parallel_starts) => ConcurrencyLimit::fixed(parallel_starts),
                None => ConcurrencyLimit::measured(),
            }),
            volumes: VolumeSync::new(now),
            orphans: OrphanScan::default(),
            logs: LogTargets::default(),
            counts: PodCounts::default(),
        }
    }

    /// When a reconciliation is due without an input.
    pub(crate) fn next_due(&self, draining: bool) -> Option<Timestamp> {
        let orphans = self.orphans.next_due().filter(|_| self.may_scan(draining));
        [
            self.workers.queue.next_due(),
            self.starts.next_due(),
            self.volumes.next_due(),
            orphans,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether orphans may be searched for: never before all streams have synced.
    pub(crate) fn may_scan(&self, draining: bool) -> bool {
        self.node.state.all_synced && !draining
    }

    /// Updates whether all pod sources and pleg are synced, which orphaned pods wait for.
    pub(crate) fn update_synced(&mut self) {
        let all_synced = self.streams.all_current();
        if all_synced != self.node.state.all_synced {
            self.node.state.all_synced = all_synced;
            self.workers.requeue_all();
        }
    }

    /// Requeues the pods whose due time has come.
    pub(crate) fn handle_timer(&mut self, now: Timestamp) {
        self.workers.queue.requeue_due(now);
        self.pass_permits(now);
        self.volumes.handle_timer(now);
    }

    /// Takes the duration of a step that has succeeded into account, if it needs a start permit.
    pub(crate) fn record_start_call(&mut self, uid: &str, key: &StepKey, now: Timestamp) {
        let pod = self.workers.get(uid).map(|worker| &worker.pod);
        let call = pod.and_then(|pod| Some((pod, pod.in_flight.get(key)?)));
        if let Some((pod, call)) = call
            && let Some(kind) = start_call(pod, &call.step)
        {
            self.starts.record(kind, call.started_at, now);
        }
    }

    /// Updates the age of a pod's start permit, returns it when none of the pod's steps in flight
    /// needs it, and passes free permits on.
    pub(crate) fn update_permit(&mut self, uid: &str, now: Timestamp) {
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        let pod = &mut worker.pod;
        let in_flight = pod.in_flight.values();
        let calls =
            in_flight.filter_map(|call| Some((call.started_at, start_class(pod, &call.step)?)));
        match calls.min() {
            Some((since, class)) => self.starts.hold(uid, class, since),
            None => {
                pod.has_start_permit = false;
                self.starts.release(uid);
                if worker.plan.needs_start_permit.is_none() {
                    self.starts.leave_queue(uid);
                }
            }
        }
        self.pass_permits(now);
    }

    /// Gives free start permits to pods that wait for one.
    fn pass_permits(&mut self, now: Timestamp) {
        for uid in self.starts.grant(now) {
            match self.workers.get_mut(&uid) {
                Some(worker) => worker.pod.has_start_permit = true,
                None => self.starts.release(&uid),
            }
            self.workers.queue.push(&uid.as_str().into());
        }
    }

    /// Moves times that were derived from the wall clock by a step of it.
    pub(crate) fn handle_clock_step(&mut self, step: SignedDuration) {
        tracing::warn!(
            seconds = step.as_secs(),
            "wall clock was set; reconciling all pods"
        );
        for worker in self.workers.iter_mut() {
            clock_step::shift(&mut worker.pod, step);
        }
        self.starts.shift(step);
        self.workers.queue.clear_due();
        self.volumes.clear_retry();
        self.workers.requeue_all();
    }

    /// Sets or clears the node resources allocated to a pod.
    pub(crate) fn set_allocation(&mut self, uid: &PodUid, allocation: Option<AllocatedPod>) {
        if self.node.state.resources.allocated.set(uid, allocation) {
            self.workers.queue.requeue_waiting_for_capacity();
        }
    }

    /// Restarts the declaration of all volumes under a new client epoch.
    pub(crate) fn redeclare_volumes(&mut self) {
        self.volumes.start_epoch(&mut self.workers);
    }
}
