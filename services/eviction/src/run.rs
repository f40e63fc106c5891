//! The one task: pods and states come in, rounds go by a timer, pressure and orders come out.

mod local_storage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::select_all;
use jiff::Timestamp;
use local_storage::LocalStorage;
use polylet_kit::{BoxError, Ctx, cause, kept};
use polylet_model::pod::Manifest;
use polylet_watch::{PressureKeyOwned, Store, Update};
use polylet_wire::eviction::v1::Pressure;
use polylet_wire::imagegc::v1::ReclaimRequest;
use polylet_wire::imagegc::v1::image_gc_service_client::ImageGcServiceClient;
use polylet_wire::notice::v1::Severity;
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::Pod;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::core::pressure::{Condition, Pressure as Pressed};
use crate::core::round::Act;
use crate::core::signal::Levels;
use crate::core::threshold::Threshold;
use crate::desk::Desk;
use crate::orders::Orders;
use crate::settings::Settings;
use crate::sources;
use crate::usage::{Counted, Sampler};

/// How often the node is looked at: upstream's monitoring interval.
const ROUND: Duration = Duration::from_secs(10);
const KEPT_VERSION: u32 = 1;
/// How long image-gc may take to free room.
const RECLAIM_DEADLINE: Duration = Duration::from_secs(120);

/// Somebody wants the summary.
pub(crate) struct Question {
    pub(crate) not_older_than: Option<Timestamp>,
    pub(crate) only_cpu_and_memory: bool,
    pub(crate) answer: oneshot::Sender<(Timestamp, Value)>,
}

/// All that can happen to this service.
pub(crate) enum Input {
    Pod(Update<String, Pod>),
    State(Update<String, PodState>),
    Question(Question),
    /// What pods use of the disk, as far as they limit it.
    Counted(Vec<Counted>),
    Round,
}

/// The task's state.
pub(crate) struct Run {
    ctx: Ctx,
    settings: Settings,
    desk: Desk,
    /// Where the conditions are kept: a restart must not end a transition period.
    pressure: PathBuf,
    sampler: Sampler,
    store: Store<PressureKeyOwned, Pressure>,
    questions: mpsc::Receiver<Question>,
    local: LocalStorage,
}

impl Run {
    /// Opens the kept orders.
    pub(crate) fn new(
        ctx: Ctx,
        settings: Settings,
        questions: mpsc::Receiver<Question>,
    ) -> Result<Self, BoxError> {
        let orders = Orders::open(ctx.run_dir().join("orders.json"));
        let sampler = Sampler::new(&settings, ctx.peer("volume-manager").channel());
        let pressure = ctx.run_dir().join("pressure.json");
        let store = Store::new(ctx.incarnation());
        let desk = Desk::new(settings.rules.clone(), orders, store.clone())
            .configured(&settings.cgroup_root, settings.evict_static)
            .standing(kept_conditions(&pressure));
        Ok(Self {
            store,
            ctx,
            settings,
            desk,
            pressure,
            sampler,
            questions,
            local: LocalStorage::default(),
        })
    }

    /// What the server serves.
    pub(crate) fn store(&self) -> Store<PressureKeyOwned, Pressure> {
        self.store.clone()
    }

    /// Runs until the process drains.
    pub(crate) async fn run(mut self) {
        let drain = self.ctx.drain();
        let mut updates = select_all(sources::all(&self.ctx));
        let mut rounds = tokio::time::interval(ROUND);
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let input = tokio::select! {
                () = drain.cancelled() => return,
                Some(update) = updates.next() => update,
                Some(question) = self.questions.recv() => Input::Question(question),
                counted = self.local.counted() => Input::Counted(counted),
                _ = rounds.tick() => Input::Round,
            };
            match input {
                Input::Pod(update) => self.take_pod(update),
                Input::State(update) => self.desk.state(update),
                Input::Question(question) => self.answer(question).await,
                Input::Counted(counted) => self.hold_to_limits(counted),
                Input::Round => {
                    if self.round().await {
                        rounds.reset_after(Duration::from_secs(1));
                    }
                    self.count_local_storage();
                }
            }
        }
    }

    fn take_pod(&mut self, update: Update<String, Pod>) {
        let pod = match &update {
            Update::Upsert(_, pod) => Some(pod.clone()),
            _ => None,
        };
        if let Some((manifest, pod)) = self.desk.pod(update).zip(pod) {
            note_taken_up(&manifest, &pod);
        }
    }

    /// Looks at the node; says whether to look again soon.
    async fn round(&mut self) -> bool {
        let levels = self.sample().await;
        let act = self.observe(&levels, false);
        self.tell(&act);
        let (levels, act) = match act {
            Act::Reclaim { bytes, .. } => {
                self.reclaim(bytes).await;
                let levels = self.sample().await;
                let act = self.observe(&levels, true);
                (levels, act)
            }
            act => (levels, act),
        };
        match act {
            Act::Evict { threshold } => self.evict(&threshold, &levels).await,
            Act::Nothing | Act::Reclaim { .. } => false,
        }
    }

    /// Tells people that the node is short of something, and that room is made.
    fn tell(&self, act: &Act) {
        let signal = match act {
            Act::Nothing => return,
            Act::Reclaim { signal, .. } => *signal,
            Act::Evict { threshold } => threshold.signal,
        };
        let message = format!("Attempting to reclaim {}", signal.starved());
        let notices = self.ctx.notices();
        notices.of_node(Severity::Warning, "EvictionThresholdMet", message);
    }

    async fn sample(&mut self) -> Levels {
        let (levels, one_filesystem) = self.sampler.levels().await;
        self.desk.rules.one_filesystem = one_filesystem;
        levels
    }

    /// Judges a sample; keeps conditions that have changed.
    fn observe(&mut self, levels: &Levels, reclaimed: bool) -> Act {
        let before = self.desk.conditions().clone();
        let act = self.desk.observe(levels, reclaimed, Timestamp::now());
        if *self.desk.conditions() != before {
            let kept: Vec<_> = self.desk.conditions().iter().collect();
            if let Err(error) = kept::save(&self.pressure, KEPT_VERSION, &kept) {
                tracing::warn!(
                    error = polylet_kit::report(&error),
                    "conditions are not kept"
                );
            }
        }
        act
    }

    async fn reclaim(&self, bytes_wanted: u64) {
        let mut client = ImageGcServiceClient::new(self.ctx.peer("image-gc").channel());
        let mut request = tonic::Request::new(ReclaimRequest {
            bytes_wanted,
            ignore_minimum_age: false,
            cause: None,
        });
        request.set_timeout(RECLAIM_DEADLINE);
        match client.reclaim(request).await {
            Ok(response) => {
                let freed = response.into_inner();
                tracing::info!(
                    bytes = freed.bytes_freed,
                    images = freed.images_removed,
                    "room was made"
                );
            }
            Err(status) => {
                tracing::warn!(code = %status.code(), message = status.message(), "image-gc made no room")
            }
        }
    }

    /// Orders one pod off the node, unless the last one is still leaving or pleg is away.
    async fn evict(&mut self, threshold: &Threshold, levels: &Levels) -> bool {
        if !self.desk.may_evict(Timestamp::now()) {
            return false;
        }
        let pods = &self.desk.pods;
        let Some(candidates) = self.sampler.candidates(pods, threshold.signal).await else {
            tracing::warn!(signal = ?threshold.signal, "what pods use could not be read in time");
            return true;
        };
        self.desk
            .evict(threshold, levels, candidates, Timestamp::now())
    }

    async fn answer(&mut self, question: Question) {
        let (at, summary) = self
            .sampler
            .summary(
                self.ctx.node_name(),
                &self.desk.pods,
                question.not_older_than,
                question.only_cpu_and_memory,
            )
            .await;
        // Whoever asked may have given up.
        let _ = question.answer.send((at, summary));
    }
}

/// The conditions as they stood; a broken file is set aside, since samples make them anew.
fn kept_conditions(path: &Path) -> BTreeMap<Condition, Pressed> {
    let kept: Option<Vec<(Condition, Pressed)>> =
        kept::load_or_set_aside(path, KEPT_VERSION, "conditions start anew");
    kept.unwrap_or_default().into_iter().collect()
}

/// From here on the pod counts when the node is short: part of its start.
fn note_taken_up(manifest: &Manifest, pod: &Pod) {
    let span = tracing::info_span!(
        "eviction.watch",
        k8s.pod.uid = manifest.uid().as_str(),
        k8s.pod.name = manifest.name(),
        k8s.namespace.name = manifest.namespace(),
    );
    cause::set_parent(&span, pod.cause.as_ref());
}
