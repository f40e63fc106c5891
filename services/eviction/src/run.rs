//! The event loop: observes the node periodically, frees space and evicts pods.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::select_all;
use jiff::Timestamp;
use polylet_kit::state_file::StateFile;
use polylet_kit::{Ctx, cause, report};
use polylet_watch::{PressureItemKey, Store, Update};
use polylet_wire::eviction::v1::Pressure;
use polylet_wire::imagegc::v1::ReclaimRequest;
use polylet_wire::imagegc::v1::image_gc_service_client::ImageGcServiceClient;
use polylet_wire::notice::v1::Severity;
use polylet_wire::podconfig::v1::Pod;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::core::pressure::{ConditionState, NodeCondition};
use crate::core::signal::Observations;
use crate::core::synchronize::Action;
use crate::core::threshold::Threshold;
use crate::evictions::Evictions;
use crate::input::{Input, SummaryRequest};
use crate::local_storage::LocalStorageMonitor;
use crate::manager::EvictionManager;
use crate::sources;
use crate::usage::{LocalStorageSample, Sampler};

/// Upstream's monitoring interval.
const PERIOD: Duration = Duration::from_secs(10);
/// The delay before the next iteration after an eviction.
const PERIOD_AFTER_EVICTION: Duration = Duration::from_secs(1);
const CONDITIONS_VERSION: u32 = 1;
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(120);

/// Stored so that a restart does not end a transition period.
type ConditionsFile = StateFile<Vec<(NodeCondition, ConditionState)>>;

/// The state of the event loop.
pub(crate) struct EventLoop {
    ctx: Ctx,
    manager: EvictionManager,
    conditions_file: ConditionsFile,
    sampler: Sampler,
    summary_requests: mpsc::Receiver<SummaryRequest>,
    /// `None` when `localStorageCapacityIsolation` is disabled.
    local_storage: Option<LocalStorageMonitor>,
}

impl EventLoop {
    /// Loads the stored evictions and conditions.
    pub(crate) fn new(
        ctx: Ctx,
        config: Config,
        store: Store<PressureItemKey, Pressure>,
        summary_requests: mpsc::Receiver<SummaryRequest>,
    ) -> Self {
        let evictions = Evictions::load(ctx.run_dir().join("evictions.json"));
        let sampler = Sampler::new(&config, ctx.peer("volume-manager").channel());
        let path = ctx.run_dir().join("pressure.json");
        let conditions_file = ConditionsFile::new(path, CONDITIONS_VERSION);
        let conditions: BTreeMap<_, _> = conditions_file
            .load_or_set_aside("pressure transition periods start over")
            .unwrap_or_default()
            .into_iter()
            .collect();
        let manager = EvictionManager::new(config.eviction, evictions, store)
            .with_pod_settings(&config.cgroup_root, config.evict_static_pods)
            .with_conditions(conditions);
        let local_storage = config.local_storage_limits.then(Default::default);
        Self {
            ctx,
            manager,
            conditions_file,
            sampler,
            summary_requests,
            local_storage,
        }
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
                Some(request) = self.summary_requests.recv() => Input::Summary(request),
                samples = next_samples(&mut self.local_storage) => Input::LocalStorage(samples),
                _ = timer.tick() => Input::Timer,
            };
            match input {
                Input::Pod(update) => self.handle_pod(update),
                Input::PodState(update) => self.manager.handle_pod_state(update),
                Input::Summary(request) => self.respond(request).await,
                Input::LocalStorage(samples) => self.enforce_storage_limits(samples),
                Input::Timer => {
                    if self.synchronize().await {
                        timer.reset_after(PERIOD_AFTER_EVICTION);
                    }
                    if let Some(monitor) = &mut self.local_storage {
                        monitor.start(&self.ctx, &self.manager, &self.sampler);
                    }
                }
            }
        }
    }

    fn handle_pod(&mut self, update: Update<String, Pod>) {
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
            cause::set_parent(&span, cause.as_ref());
        }
    }

    /// One sync iteration. True when the next one should follow soon.
    async fn synchronize(&mut self) -> bool {
        let observations = self.observe().await;
        let action = self.update(&observations, false);
        self.report_threshold_met(&action);
        let (observations, action) = match action {
            Action::Reclaim { bytes, .. } => {
                self.reclaim(bytes).await;
                let observations = self.observe().await;
                let action = self.update(&observations, true);
                (observations, action)
            }
            action => (observations, action),
        };
        match action {
            Action::Evict { threshold } => self.evict(&threshold, &observations).await,
            Action::None | Action::Reclaim { .. } => false,
        }
    }

    /// Emits upstream's event for a threshold that is met.
    fn report_threshold_met(&self, action: &Action) {
        let signal = match action {
            Action::None => return,
            Action::Reclaim { signal, .. } => *signal,
            Action::Evict { threshold } => threshold.signal,
        };
        let message = format!("Attempting to reclaim {}", signal.resource());
        let notices = self.ctx.notices();
        notices.node(Severity::Warning, "EvictionThresholdMet", message);
    }

    async fn observe(&mut self) -> Observations {
        let (observations, one_filesystem) = self.sampler.observe().await;
        self.manager.set_one_filesystem(one_filesystem);
        observations
    }

    /// Passes observations to the manager and stores changed conditions.
    fn update(&mut self, observations: &Observations, reclaimed: bool) -> Action {
        let previous = self.manager.conditions().clone();
        let action = self
            .manager
            .synchronize(observations, reclaimed, Timestamp::now());
        let conditions = self.manager.conditions();
        if *conditions != previous {
            let stored = conditions.iter().map(|(c, state)| (*c, *state)).collect();
            if let Err(error) = self.conditions_file.save(&stored) {
                tracing::warn!(error = report(&error), "failed to save node conditions");
            }
        }
        action
    }

    async fn reclaim(&self, bytes: u64) {
        let mut client = ImageGcServiceClient::new(self.ctx.peer("image-gc").channel());
        let mut request = tonic::Request::new(ReclaimRequest {
            bytes_to_free: bytes,
            ignore_minimum_age: false,
            cause: None,
        });
        request.set_timeout(RECLAIM_TIMEOUT);
        match client.reclaim(request).await {
            Ok(response) => {
                let response = response.into_inner();
                tracing::info!(
                    bytes = response.bytes_freed,
                    images = response.images_removed,
                    "reclaimed image space"
                );
            }
            Err(status) => {
                tracing::warn!(
                    code = %status.code(),
                    error = status.message(),
                    "failed to reclaim image space"
                );
            }
        }
    }

    /// Evicts one pod, unless the previous one is still terminating or pleg is unavailable.
    async fn evict(&mut self, threshold: &Threshold, observations: &Observations) -> bool {
        if !self.manager.may_evict(Timestamp::now()) {
            return false;
        }
        let pods = self.manager.pods();
        let Some(candidates) = self.sampler.candidates(pods, threshold.signal).await else {
            tracing::warn!(signal = ?threshold.signal, "timed out measuring pod usage; retrying");
            return true;
        };
        self.manager
            .evict(threshold, observations, candidates, Timestamp::now())
    }

    fn enforce_storage_limits(&mut self, samples: Vec<LocalStorageSample>) {
        for sample in samples {
            if let Some(monitor) = &mut self.local_storage {
                monitor.delay_next(&sample, PERIOD);
            }
            let LocalStorageSample { uid, usage, .. } = sample;
            self.manager
                .enforce_storage_limits(uid, &usage, Timestamp::now());
        }
    }

    async fn respond(&mut self, request: SummaryRequest) {
        let (at, summary) = self
            .sampler
            .summary(
                self.ctx.node_name(),
                self.manager.pods(),
                request.not_older_than,
                request.only_cpu_and_memory,
            )
            .await;
        // The caller may have cancelled.
        let _ = request.response.send((at, summary));
    }
}

async fn next_samples(monitor: &mut Option<LocalStorageMonitor>) -> Vec<LocalStorageSample> {
    match monitor {
        Some(monitor) => monitor.next().await,
        None => std::future::pending().await,
    }
}
