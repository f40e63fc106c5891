//! The event loop: observes the node periodically, frees space and evicts pods. It decides and never
//! waits: what takes time runs beside it and comes back as an input, so that a disk that does not
//! answer delays no decision about memory.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::{FuturesUnordered, select_all};
use jiff::Timestamp;
use polylet_kit::state_file::{RetriedFile, StateFile, StateFileError};
use polylet_kit::{Ctx, cause, report};
use polylet_model::PodUid;
use polylet_watch::{PressureItemKey, Store, Update};
use polylet_wire::eviction::v1::Pressure;
use polylet_wire::notice::v1::Severity;
use polylet_wire::podconfig::v1::Pod;
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::core::pods::NodePods;
use crate::core::pressure::{ConditionState, NodeCondition};
use crate::core::signal::Observations;
use crate::core::synchronize::Action;
use crate::core::threshold::Threshold;
use crate::evictions::Evictions;
use crate::input::{Input, MeasuredCandidates, NodeObservation};
use crate::local_storage::LocalStorageMonitor;
use crate::manager::{EvictionManager, StartedEviction};
use crate::metrics;
use crate::reclaim::{self, Reclaim, ReclaimStage};
use crate::sources;
use crate::usage::{
    FIRST_VOLUME_CHECK, LocalStorageSample, SampledPod, Sampler, VOLUME_CHECK_PERIOD, sampled_pod,
};

/// Upstream's monitoring interval.
const PERIOD: Duration = Duration::from_secs(10);
/// The delay before the next iteration after an eviction.
const PERIOD_AFTER_EVICTION: Duration = Duration::from_secs(1);
/// Version of the format of `pressure.json`.
pub(crate) const CONDITIONS_VERSION: u32 = 1;

/// Stored so that a restart does not end a transition period.
pub(crate) type ConditionsFile = StateFile<Vec<(NodeCondition, ConditionState)>>;

/// The state of the event loop.
pub(crate) struct EventLoop {
    ctx: Ctx,
    manager: EvictionManager,
    conditions_file: RetriedFile<Vec<(NodeCondition, ConditionState)>>,
    sampler: Sampler,
    pod_requests: mpsc::Receiver<oneshot::Sender<NodePods>>,
    /// `None` when `localStorageCapacityIsolation` is disabled.
    local_storage: Option<LocalStorageMonitor>,
    /// What runs beside the loop.
    work: FuturesUnordered<LocalBoxFuture<'static, Input>>,
    is_observing: bool,
    is_measuring: bool,
    /// Dead containers and images are being removed.
    reclaim: Option<Reclaim>,
    /// No check of volumes is in progress, and the last one was a while ago.
    may_check_volumes: bool,
    /// The next sync iteration follows soon.
    is_hurried: bool,
}

impl EventLoop {
    /// Loads the stored evictions and conditions.
    pub(crate) fn new(
        ctx: Ctx,
        config: Config,
        store: Store<PressureItemKey, Pressure>,
        sampler: Sampler,
        pod_requests: mpsc::Receiver<oneshot::Sender<NodePods>>,
    ) -> Result<Self, StateFileError> {
        let evictions = Evictions::load(ctx.run_dir().join("evictions.json"))?;
        let path = ctx.run_dir().join("pressure.json");
        let conditions_file = ConditionsFile::new(path, CONDITIONS_VERSION);
        let conditions: BTreeMap<_, _> = conditions_file
            .restore("pressure transition periods start over")?
            .unwrap_or_default()
            .into_iter()
            .collect();
        let manager = EvictionManager::new(config.eviction, evictions, store)
            .with_pod_settings(&config.cgroup_root, config.evict_static_pods)
            .with_conditions(conditions);
        let local_storage = config.local_storage_limits.then(Default::default);
        let work: FuturesUnordered<LocalBoxFuture<'static, Input>> = FuturesUnordered::new();
        work.push(Box::pin(async {
            tokio::time::sleep(FIRST_VOLUME_CHECK).await;
            Input::VolumesChecked
        }));
        Ok(Self {
            ctx,
            manager,
            conditions_file: RetriedFile::new(conditions_file),
            sampler,
            pod_requests,
            local_storage,
            work,
            is_observing: false,
            is_measuring: false,
            reclaim: None,
            may_check_volumes: false,
            is_hurried: false,
        })
    }

    /// Runs until the process drains.
    pub(crate) async fn run(mut self) {
        let drain = self.ctx.drain();
        let mut updates = select_all(sources::all(&self.ctx));
        let mut timer = tokio::time::interval(PERIOD);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let input = tokio::select! {
                () = drain.cancelled() => return,
                Some(update) = updates.next() => update,
                Some(response) = self.pod_requests.recv() => Input::Pods(response),
                samples = next_samples(&mut self.local_storage) => Input::LocalStorage(samples),
                Some(result) = self.work.next() => result,
                _ = timer.tick() => Input::Timer,
            };
            self.handle_input(input);
            if std::mem::take(&mut self.is_hurried) {
                timer.reset_after(PERIOD_AFTER_EVICTION);
            }
        }
    }

    fn handle_input(&mut self, input: Input) {
        match input {
            Input::Pod(update) => self.handle_pod(update),
            Input::PodState(update) => {
                let removed = matches!(update, Update::Remove(_));
                self.manager.handle_pod_state(update);
                if removed {
                    self.sampler.retain_pods(self.manager.pods());
                }
                self.continue_reclaim(false);
            }
            Input::Pods(response) => {
                // The summary may have been given up.
                let _ = response.send(self.manager.pods().clone());
            }
            Input::LocalStorage(samples) => self.enforce_storage_limits(samples),
            Input::VolumesChecked => self.may_check_volumes = true,
            Input::Timer => {
                self.observe();
                self.check_volumes();
                if let Some(monitor) = &mut self.local_storage {
                    monitor.start(&self.ctx, &self.manager, &self.sampler);
                }
            }
            Input::Observed(observation) => {
                self.is_observing = false;
                self.synchronize(observation);
            }
            Input::ContainersOverdue => self.continue_reclaim(true),
            Input::ImagesReclaimed => self.observe_after_reclaim(),
            Input::ObservedAfterReclaim(observation) => self.finish_reclaim(&observation),
            Input::Candidates(measured) => {
                self.is_measuring = false;
                self.evict(measured);
            }
        }
    }

    fn handle_pod(&mut self, update: Update<PodUid, Pod>) {
        let trace = match &update {
            Update::Upsert(_, pod) => {
                Some((pod.r#ref.clone().unwrap_or_default(), pod.cause.clone()))
            }
            _ => None,
        };
        let is_new = self.manager.handle_pod(update);
        if let Some((pod, cause)) = trace.filter(|_| is_new) {
            // Part of the pod's start.
            let span = tracing::info_span!(
                "eviction.watch",
                k8s.pod.uid = pod.uid,
                k8s.pod.name = pod.name,
                k8s.namespace.name = pod.namespace,
            );
            cause::follow(&span, cause.as_ref());
        }
    }

    fn run_beside(&self, work: impl Future<Output = Input> + 'static) {
        self.work.push(Box::pin(work));
    }

    fn observe(&mut self) {
        if std::mem::replace(&mut self.is_observing, true) {
            return;
        }
        let observing = observe(self.sampler.clone());
        self.run_beside(async { Input::Observed(observing.await) });
    }

    /// Checks the volumes, with a pause after each check.
    fn check_volumes(&mut self) {
        if !std::mem::take(&mut self.may_check_volumes) {
            return;
        }
        let check = self
            .sampler
            .clone()
            .check_volumes(self.manager.pods().clone());
        self.run_beside(async {
            check.await;
            tokio::time::sleep(VOLUME_CHECK_PERIOD).await;
            Input::VolumesChecked
        });
    }

    /// One sync iteration.
    fn synchronize(&mut self, observation: NodeObservation) {
        if let Some(one_filesystem) = observation.one_filesystem {
            self.manager.set_one_filesystem(one_filesystem);
        }
        let observations = observation.observations;
        let action = self.update(&observations);
        self.report_threshold_met(&action);
        match action {
            Action::None => {}
            Action::Reclaim { threshold } => self.begin_reclaim(threshold, observations),
            Action::Evict { threshold } => self.measure_candidates(threshold, observations),
        }
    }

    /// Emits upstream's event for a threshold that is met.
    fn report_threshold_met(&self, action: &Action) {
        let signal = match action {
            Action::None => return,
            Action::Reclaim { threshold } | Action::Evict { threshold } => threshold.signal,
        };
        let message = format!("Attempting to reclaim {}", signal.resource());
        let notices = self.ctx.notices();
        notices.node(Severity::Warning, "EvictionThresholdMet", message);
    }

    /// Passes observations to the manager and stores changed conditions.
    fn update(&mut self, observations: &Observations) -> Action {
        let previous = self.manager.conditions().clone();
        let reclaiming = self.reclaim.is_some();
        let action = self
            .manager
            .synchronize(observations, reclaiming, Timestamp::now());
        let conditions = self.manager.conditions();
        let stored = conditions.iter().map(|(c, state)| (*c, *state)).collect();
        let changed = *conditions != previous;
        if let Err(error) = self.conditions_file.save_changed(changed, &stored) {
            tracing::warn!(error = report(&error), "failed to save node conditions");
        }
        action
    }

    /// Asks for the removal of dead containers, as upstream before images.
    fn begin_reclaim(&mut self, threshold: Threshold, observations: Observations) {
        self.manager.request_container_reclaim(Timestamp::now());
        self.reclaim = Some(Reclaim {
            threshold,
            observations,
            stage: ReclaimStage::Containers,
        });
        self.run_beside(async {
            tokio::time::sleep(reclaim::CONTAINERS_TIMEOUT).await;
            Input::ContainersOverdue
        });
        self.continue_reclaim(false);
    }

    /// Removes images as soon as dead containers are gone, or should have been.
    fn continue_reclaim(&mut self, is_overdue: bool) {
        let Some(reclaim) = &mut self.reclaim else {
            return;
        };
        let is_waiting = reclaim.stage == ReclaimStage::Containers;
        if !is_waiting || !(is_overdue || self.manager.are_containers_reclaimed()) {
            return;
        }
        reclaim.stage = ReclaimStage::Images;
        let call = reclaim::images(&self.ctx, self.manager.finished_pods());
        self.run_beside(async {
            call.await;
            Input::ImagesReclaimed
        });
    }

    fn observe_after_reclaim(&mut self) {
        let observing = observe(self.sampler.clone());
        self.run_beside(async { Input::ObservedAfterReclaim(observing.await) });
    }

    /// Evicts a pod if reclaiming was not enough. Without knowledge, the next iteration decides.
    fn finish_reclaim(&mut self, observation: &NodeObservation) {
        let Some(reclaim) = self.reclaim.take() else {
            return;
        };
        let Reclaim {
            threshold,
            observations,
            ..
        } = reclaim;
        let resolved = self
            .manager
            .is_resolved(&threshold, &observation.observations);
        if resolved == Some(false) {
            self.measure_candidates(threshold, observations);
        }
    }

    /// Measures the candidates, unless the previous evicted pod is still terminating or pleg is
    /// unavailable.
    fn measure_candidates(&mut self, threshold: Threshold, observations: Observations) {
        if self.is_measuring || !self.manager.may_evict(Timestamp::now()) {
            return;
        }
        self.is_measuring = true;
        let running = self.manager.pods().running_with_spec();
        let running: Vec<SampledPod> = running.map(sampled_pod).collect();
        let sampler = self.sampler.clone();
        let one_filesystem = self.manager.one_filesystem();
        self.run_beside(async move {
            let candidates = sampler
                .candidates(running, threshold.signal, one_filesystem)
                .await;
            Input::Candidates(MeasuredCandidates {
                threshold,
                observations,
                candidates,
            })
        });
    }

    /// Evicts one pod.
    fn evict(&mut self, measured: MeasuredCandidates) {
        let now = Timestamp::now();
        self.is_hurried = true;
        let Some(candidates) = measured.candidates else {
            return;
        };
        // A pod may have been evicted for its limits meanwhile.
        if !self.manager.may_evict(now) {
            return;
        }
        let started =
            self.manager
                .evict(&measured.threshold, &measured.observations, candidates, now);
        self.is_hurried = started.is_some();
        self.report_eviction(started);
    }

    /// Counts an eviction and emits upstream's event of the pod.
    fn report_eviction(&self, started: Option<StartedEviction>) {
        let Some(started) = started else { return };
        let StartedEviction {
            pod,
            message,
            event_annotations,
            signal,
        } = started;
        metrics::count_eviction(signal);
        let notices = self.ctx.notices();
        notices.annotated_warning(&pod, "Evicted", message, event_annotations);
    }

    fn enforce_storage_limits(&mut self, samples: Vec<LocalStorageSample>) {
        for sample in samples {
            if let Some(monitor) = &mut self.local_storage {
                monitor.delay_next(&sample, PERIOD);
            }
            let LocalStorageSample { uid, usage, .. } = sample;
            let started = self
                .manager
                .enforce_storage_limits(uid, &usage, Timestamp::now());
            self.report_eviction(started);
        }
    }
}

async fn observe(sampler: Sampler) -> NodeObservation {
    let (observations, filesystems) = sampler.observe().await;
    NodeObservation {
        observations,
        one_filesystem: filesystems.is_one(),
    }
}

async fn next_samples(monitor: &mut Option<LocalStorageMonitor>) -> Vec<LocalStorageSample> {
    match monitor {
        Some(monitor) => monitor.next().await,
        None => std::future::pending().await,
    }
}
