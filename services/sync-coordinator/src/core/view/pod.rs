use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;

use polylet_model::PodUid;

use super::lifecycle::PodLifecycle;
use crate::core::checkpoint::{PodCheckpoint, PodTermination};
use crate::core::devices::{DeviceAdmission, PreparedDevices};
use crate::core::pod_spec::PodSpecView;
use crate::core::runtime_state::{PendingEffect, PodRuntimeState};
use crate::core::step::{PreparedSubPath, Step, StepKey};
use crate::core::volume_state::PodVolumeState;

/// A step in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct InFlight {
    /// The step.
    pub step: Step,
    /// Time of its start.
    pub started_at: Timestamp,
}

/// Back-off of a step after failures.
#[derive(Clone, Debug, PartialEq)]
pub struct StepBackoff {
    /// Number of failures in a row.
    pub count: u32,
    /// The container's waiting reason, or another one-word reason.
    pub reason: String,
    /// The last error message.
    pub message: String,
    /// The image of a failed pull; empty for other steps.
    pub image: String,
    /// Time of the first failure in the row.
    pub first_failed_at: Timestamp,
    /// Time of the last failure.
    pub last_failed_at: Timestamp,
    /// No retry before this time.
    pub retry_at: Timestamp,
}

impl StepBackoff {
    /// Whether the step must still wait. A failure in the future predates a backward clock step and
    /// no longer counts.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.last_failed_at <= now && now < self.retry_at
    }
}

/// A container's image after its pull step.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedImage {
    /// The image as the manifest named it; a change invalidates the entry.
    pub image: String,
    /// The runtime's reference.
    pub image_ref: Option<String>,
}

/// A probe result that requires killing a container.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeFailure {
    /// The startup probe failed; otherwise the liveness probe.
    pub startup: bool,
    /// The probe's output.
    pub message: String,
}

/// The state of one pod's worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSyncStatus {
    /// The pod's UID.
    pub uid: PodUid,
    /// The pod's spec; `None` when only the runtime knows the pod, or its manifest is invalid.
    pub spec: Option<Arc<PodSpecView>>,
    /// Whether a source serves the pod.
    pub has_source: bool,
    /// The pod is deleted or no longer served, so everything of it is removed. Never reset.
    pub removal_requested: bool,
    /// The runtime's state with pending effects applied, shared with steps in flight; `None` before
    /// the first report.
    pub observed: Option<Rc<PodRuntimeState>>,
    /// The runtime's state as last reported.
    pub last_reported: Rc<PodRuntimeState>,
    /// Pleg's stream has shown something of the pod, and its removal has not arrived yet.
    pub in_stream: bool,
    /// Effects of steps that the last report may not show yet, by their number.
    pub pending_effects: Vec<(u64, PendingEffect)>,
    /// Number of effects so far.
    pub effect_count: u64,
    /// The pod's volumes.
    pub volumes: PodVolumeState,
    /// Images by container name.
    pub images: BTreeMap<String, ResolvedImage>,
    /// When the images of containers whose pull backs off were looked for last, by container name.
    pub image_searches: BTreeMap<String, Timestamp>,
    /// The answer to the pod's request for devices; `None` before it.
    pub devices: Option<DeviceAdmission>,
    /// Prepared devices for the next container, by its name.
    pub prepared_devices: BTreeMap<String, Rc<PreparedDevices>>,
    /// Prepared subPaths for the next container, by its name.
    pub sub_paths: BTreeMap<String, Vec<PreparedSubPath>>,
    /// Steps in flight.
    pub in_flight: BTreeMap<StepKey, InFlight>,
    /// Steps whose last attempt failed.
    pub failures: BTreeMap<StepKey, StepBackoff>,
    /// Ids of containers whose startup probe succeeded.
    pub startup_succeeded: BTreeSet<String>,
    /// Failed probes by container id.
    pub probe_failures: BTreeMap<String, ProbeFailure>,
    /// The decision to evict or preempt the pod.
    pub eviction: Option<PodTermination>,
    /// The stored state.
    pub checkpoint: PodCheckpoint,
    /// Whether the checkpoint is on disk.
    pub checkpointed: bool,
    /// Start of the pending resize.
    pub resize_pending_since: Option<Timestamp>,
    /// Since when the pod is not admitted because of the node's labels alone.
    pub affinity_unmet_since: Option<Timestamp>,
    /// When the last event was emitted of the pod network that the pod waits for.
    pub network_reported_at: Option<Timestamp>,
    /// Start of the resize in progress.
    pub resize_started_at: Option<Timestamp>,
    /// Stops and hooks in progress.
    pub lifecycle: PodLifecycle,
    /// Lower sandbox attempts may be in use.
    pub min_sandbox_attempt: u32,
    /// Lower container attempts may be in use, by container name.
    pub min_container_attempts: BTreeMap<String, u32>,
    /// When the container of the same name before this one exited, by container id: its record may be
    /// removed before the next start is decided on.
    pub previous_exits: BTreeMap<String, Timestamp>,
    /// Ids of sandboxes that this instance has stopped.
    pub stopped_sandboxes: BTreeSet<String>,
    /// This instance has ensured the pod's cgroup.
    pub cgroup_ready: bool,
    /// A previous instance has worked on the pod, and pleg has not inspected it since this one started: what that
    /// one created last may be missing in the reported state.
    pub awaits_inspection: bool,
    /// The pod's cgroup was removed.
    pub cgroup_removed: bool,
    /// The pod's logs and directory were removed.
    pub files_removed: bool,
    /// When nothing of the pod was left.
    pub cleaned_up_at: Option<Timestamp>,
    /// UID of another pod of the same full name that still exists.
    pub blocked_by: Option<String>,
    /// Whether the pod has one of the start permits.
    pub has_start_permit: bool,
}

impl PodSyncStatus {
    /// Whether the pod was removed, or was an orphan, and its source serves it again: it starts over
    /// once it is stopped.
    pub fn starts_over(&self) -> bool {
        // A pod with a deletion timestamp is served until it is gone.
        let mut spec = self.spec.iter();
        let is_served = self.has_source && spec.any(|spec| spec.deletion_grace_period.is_none());
        self.removal_requested && is_served
    }

    /// Frees what maps without entries have allocated: room for eleven, of each pod at rest.
    pub fn free_empty_maps(&mut self) {
        free_if_empty(&mut self.images);
        free_if_empty(&mut self.image_searches);
        free_if_empty(&mut self.prepared_devices);
        free_if_empty(&mut self.sub_paths);
        free_if_empty(&mut self.in_flight);
        free_if_empty(&mut self.failures);
        free_if_empty(&mut self.probe_failures);
        free_if_empty(&mut self.previous_exits);
        free_if_empty(&mut self.lifecycle.stops);
        free_if_empty(&mut self.lifecycle.post_starts);
        free_if_empty(&mut self.lifecycle.pending_restarts);
    }

    /// Takes over what is known of the runtime from the worker that has stopped the pod.
    pub fn take_runtime_state(&mut self, former: PodSyncStatus) {
        self.observed = former.observed;
        self.last_reported = former.last_reported;
        self.in_stream = former.in_stream;
        self.pending_effects = former.pending_effects;
        self.effect_count = former.effect_count;
        self.min_sandbox_attempt = former.min_sandbox_attempt;
        self.min_container_attempts = former.min_container_attempts;
        self.previous_exits = former.previous_exits;
        self.stopped_sandboxes = former.stopped_sandboxes;
        self.awaits_inspection = former.awaits_inspection;
    }
}

/// Frees what a map without entries has allocated.
pub fn free_if_empty<K, V>(map: &mut BTreeMap<K, V>) {
    if map.is_empty() {
        map.clear();
    }
}
