//! The worker of one pod: its decision state, and what belongs to steps in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_kit::CancellationToken;
use polylet_model::constants::reason;
use polylet_model::{Manifest, PodAllocation, PodUid};
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::podconfig::v1::PodSource;
use polylet_wire::sync::v1::PodSync;

use crate::convert;
use crate::core::apply_result::{self, ReportOutcome};
use crate::core::checkpoint::LastRemoval;
use crate::core::plan::{Plan, SyncPhase};
use crate::core::pod_spec::PodSpecView;
use crate::core::pod_syncs::SyncMeter;
use crate::core::runtime_state::{ContainerRecord, PodRuntimeState};
use crate::core::step::StepKey;
use crate::core::view::{PodLifecycle, PodSyncStatus, free_if_empty};

/// One pod.
pub(crate) struct PodWorker {
    /// Name, namespace and UID. `PodWorkers` finds it by them, and alone changes them: of a pod that is
    /// known by its UID only, when its name becomes known.
    pub(crate) reference: PodRef,
    /// The order in which pods became known, which decides among pods of one name.
    pub(crate) arrival: u64,
    /// Everything that decisions are made from.
    pub(crate) pod: PodSyncStatus,
    /// The source that serves the pod; zero while it is known from the runtime only.
    pub(crate) source: i32,
    /// The desired manifest.
    pub(crate) manifest: Option<Manifest>,
    /// When the manifest was last removed, as its source has served it.
    pub(crate) removed_at: Option<Timestamp>,
    /// The span that causes the next steps.
    pub(crate) cause: Option<Cause>,
    /// The span of the last step.
    pub(crate) last_step: Option<Cause>,
    /// The pod was in sync once, so that later steps have causes of their own.
    pub(crate) was_in_sync: bool,
    /// Digest of the last manifest that was in sync.
    pub(crate) digest_synced: String,
    /// The last plan.
    pub(crate) plan: Plan,
    /// Since when the status differs from the published one.
    pub(crate) unpublished_since: Option<Timestamp>,
    /// Tokens that cancel steps in flight.
    pub(crate) cancel_tokens: BTreeMap<StepKey, CancellationToken>,
    /// Watches of objects whose absence failed a step.
    pub(crate) object_watches: BTreeMap<StepKey, ObjectWatchGuard>,
    /// Stops and hooks in progress, as they are on disk.
    pub(crate) saved_lifecycle: PodLifecycle,
    /// The request for the runtime's state of this pod.
    pub(crate) refresh: RefreshState,
    /// The span of the wait for a start permit.
    pub(crate) permit_wait: Option<tracing::Span>,
    /// When it is busy.
    pub(crate) syncs: SyncMeter,
    /// Known only from data on the node.
    pub(crate) is_orphan: bool,
    /// Features that the last update requires and the node does not have, until they are reported.
    pub(crate) missing_features: Option<String>,
}

/// A watch of an object, which ends when this is dropped: its token does nothing when it is dropped.
#[derive(Debug)]
pub(crate) struct ObjectWatchGuard(CancellationToken);

impl ObjectWatchGuard {
    /// Of the watch that the token ends.
    pub(crate) fn new(token: CancellationToken) -> Self {
        ObjectWatchGuard(token)
    }
}

impl Drop for ObjectWatchGuard {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// What pleg has to inspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RefreshScope {
    /// What this service's steps have changed since the last reported state.
    PendingEffects,
    /// Everything of the pod.
    Everything,
}

/// A request to pleg to refresh the pod.
#[derive(Debug, Default)]
pub(crate) struct RefreshState {
    /// A request is in flight.
    pub(crate) in_flight: bool,
    /// Another request has to follow it.
    pub(crate) again: Option<RefreshScope>,
    /// The time of the pod's last reported state when the request was sent.
    pub(crate) sent_at: Option<Timestamp>,
}

impl PodWorker {
    /// A pod about which nothing is known yet.
    pub(crate) fn new(uid: PodUid, reference: PodRef, arrival: u64) -> Self {
        PodWorker {
            pod: PodSyncStatus {
                uid,
                ..PodSyncStatus::default()
            },
            reference,
            arrival,
            source: 0,
            manifest: None,
            removed_at: None,
            cause: None,
            last_step: None,
            was_in_sync: false,
            digest_synced: String::new(),
            plan: Plan::default(),
            unpublished_since: None,
            cancel_tokens: BTreeMap::new(),
            object_watches: BTreeMap::new(),
            saved_lifecycle: PodLifecycle::default(),
            refresh: RefreshState::default(),
            permit_wait: None,
            syncs: SyncMeter::default(),
            is_orphan: false,
            missing_features: None,
        }
    }

    /// Applies a report from pleg. True when pleg is to be asked about the pod.
    #[must_use]
    pub(crate) fn on_observed(&mut self, reported: PodRuntimeState, now: Timestamp) -> bool {
        match apply_result::on_observed(&mut self.pod, reported, now) {
            ReportOutcome::Applied | ReportOutcome::Overtaken => false,
            // The response in flight may be of a state in between.
            ReportOutcome::Repeated => self.refresh.in_flight,
            ReportOutcome::Conflicting => true,
        }
    }

    /// Sets the source that serves the pod. `PodWorkers` calls it, which counts the pods of sources.
    pub(super) fn set_source(&mut self, source: i32) {
        self.source = source;
        self.pod.has_source = true;
    }

    /// The source that serves the pod now, if any does.
    pub(super) fn served_by(&self) -> Option<i32> {
        self.pod.has_source.then_some(self.source)
    }

    /// Takes from its source when the manifest was last removed. True if that was after this worker's
    /// pod was accepted: it is removed, and then starts over.
    pub(crate) fn set_removed_at(&mut self, served: Option<Timestamp>) -> bool {
        self.removed_at = served.max(self.removed_at);
        let known = &mut self.pod.checkpoint.last_removal;
        if *known == LastRemoval::Unknown {
            *known = served.into();
            let is_static = self.source != i32::from(PodSource::Api);
            // Of a former version. The next process instance has to know, too.
            self.pod.checkpointed &= !is_static;
        }
        let is_removed = known.is_before(served);
        self.pod.removal_requested |= is_removed;
        is_removed
    }

    /// Sets the manifest that the source serves, and what decisions need of it.
    pub(crate) fn set_manifest(
        &mut self,
        manifest: Manifest,
        spec: PodSpecView,
        cause: Option<Cause>,
    ) {
        let known = self.manifest.as_ref();
        if known.is_none_or(|known| known.digest() != manifest.digest()) {
            if known.is_some() {
                self.syncs.on_update();
            }
            self.cause = cause;
            // Changed containers are tried without delay; changed labels and the like are not.
            let before = self.pod.spec.as_ref();
            if before.is_none_or(|before| before.containers != spec.containers) {
                self.pod.failures.retain(|key, _| {
                    !matches!(
                        key,
                        StepKey::PullImage(_)
                            | StepKey::FindImage(_)
                            | StepKey::PrepareDevices(_)
                            | StepKey::PrepareSubPaths(_)
                            | StepKey::CreateContainer(_)
                            | StepKey::StartContainer(_)
                    )
                });
            }
            self.pod.removal_requested |= spec.deletion_grace_period.is_some();
            self.pod.spec = Some(Arc::new(spec));
        }
        self.manifest = Some(manifest);
    }

    /// Frees what a pod at rest does not need: the manifest is JSON alone, until it is read again.
    pub(crate) fn free_spare(&mut self) {
        self.pod.free_empty_maps();
        free_if_empty(&mut self.cancel_tokens);
        free_if_empty(&mut self.object_watches);
        self.pod.pending_effects.shrink_to_fit();
        self.drop_parsed();
    }

    /// Keeps the manifest as JSON alone.
    fn drop_parsed(&mut self) {
        let Some(manifest) = &mut self.manifest else {
            return;
        };
        *manifest = manifest.unparsed();
        if let Some(spec) = &mut self.pod.spec {
            // Of an earlier one, if only labels and the like have changed since.
            let unparsed = match spec.manifest == *manifest {
                true => manifest.clone(),
                false => spec.manifest.unparsed(),
            };
            Arc::make_mut(spec).set_manifest(unparsed);
        }
    }

    /// The manifest with the allocated resources, which differ from the spec's while a resize is
    /// pending.
    pub(crate) fn allocated_manifest(&self) -> Option<Manifest> {
        let manifest = self.manifest.as_ref()?;
        let allocated = self.pod.checkpoint.allocated.as_ref();
        let requested = || PodAllocation::from_spec(manifest.spec());
        let allocated = allocated.filter(|allocated| allocated.differs_from(&requested()));
        Some(allocated.map_or_else(
            || manifest.clone(),
            |allocated| allocated.apply_to(manifest),
        ))
    }

    /// The manifest with the resources of the pod's cgroup, which are older than the allocated ones
    /// while a resize is in progress.
    pub(crate) fn cgroup_manifest(&self) -> Option<Manifest> {
        match &self.pod.checkpoint.cgroup_resources {
            Some(resources) => Some(resources.apply_to(self.manifest.as_ref()?)),
            None => self.allocated_manifest(),
        }
    }

    /// Cancels the steps in flight that match.
    pub(crate) fn cancel_steps(&mut self, matches: impl Fn(&StepKey) -> bool) {
        self.cancel_tokens.retain(|key, token| {
            let cancel = matches(key);
            if cancel {
                token.cancel();
            }
            !cancel
        });
    }

    /// Whether the pod is known from a previous process instance or the runtime alone, so that it may be gone
    /// from its source.
    pub(crate) fn is_unserved(&self) -> bool {
        !self.pod.has_source && self.pod.spec.is_none()
    }

    /// Whether anything of the pod runs, or is being created or removed.
    pub(crate) fn is_active(&self) -> bool {
        let observed = self.pod.observed.iter();
        let mut containers = observed.flat_map(|observed| &observed.containers);
        !self.pod.in_flight.is_empty() || containers.any(ContainerRecord::may_run)
    }

    /// Whether anything of the pod exists on the node or is being created.
    pub(crate) fn has_started(&self) -> bool {
        !self.pod.in_flight.is_empty() || self.pod.observed.as_ref().is_some_and(|o| !o.is_empty())
    }

    /// Whether the pod is in sync and at rest, so that an event is the cause of what follows.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.was_in_sync && self.pod.in_flight.is_empty()
    }

    /// Stores a new plan, and whether the pod is in sync with it.
    pub(crate) fn set_plan(&mut self, plan: Plan) {
        // A replacement in progress has steps; a completed one stays published.
        let complete = plan.steps.is_empty()
            && plan.waiting_for.is_empty()
            && plan
                .waiting_containers
                .iter()
                .all(|it| it.reason == reason::REPLACEMENT);
        if plan.phase == SyncPhase::Syncing && complete && self.pod.in_flight.is_empty() {
            self.was_in_sync = true;
            if let Some(spec) = &self.pod.spec {
                self.digest_synced.clone_from(&spec.digest);
            }
        }
        self.plan = plan;
    }

    /// The status to publish; none before the pod may be judged.
    pub(crate) fn pod_sync(&self) -> Option<PodSync> {
        if self.plan.phase == SyncPhase::Pending {
            return None;
        }
        let last_manifest = self.manifest.as_ref().filter(|_| !self.pod.has_source);
        let context = convert::PodSyncContext {
            pod: &self.reference,
            digest_synced: &self.digest_synced,
            last_manifest: last_manifest.map(Manifest::raw),
            cause: self.last_step.as_ref(),
        };
        Some(convert::pod_sync(&context, &self.pod, &self.plan))
    }
}
