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
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::Pod;
use polylet_wire::{eviction::v1 as wire, time};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::convert;
use crate::core::facts::Pods;
use crate::core::pressure::{Condition, Pressure as Pressed};
use crate::core::round::{self, Act, Standing, Verdict};
use crate::core::signal::Levels;
use crate::core::threshold::Threshold;
use crate::orders::Orders;
use crate::settings::Settings;
use crate::sources;
use crate::usage::{Counted, Sampler};

/// How often the node is looked at: upstream's monitoring interval.
const ROUND: Duration = Duration::from_secs(10);
const KEPT_VERSION: u32 = 1;
/// How long an order may take before another pod is chosen, as upstream waits.
const ORDER_PATIENCE: Duration = Duration::from_secs(30);
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
    pods: Pods,
    heard_states: bool,
    standing: Standing,
    /// Where the conditions are kept: a restart must not end a transition period.
    pressure: PathBuf,
    orders: Orders,
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
        let sampler = Sampler::new(&settings);
        let pressure = ctx.run_dir().join("pressure.json");
        Ok(Self {
            store: Store::new(ctx.incarnation()),
            ctx,
            settings,
            pods: Pods::default(),
            heard_states: false,
            standing: Standing {
                conditions: kept_conditions(&pressure),
                ..Standing::default()
            },
            pressure,
            orders,
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
                Input::State(update) => self.take_state(update),
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
        match update {
            Update::Upsert(uid, pod) => match Manifest::from_json(&pod.manifest) {
                Ok(manifest) => {
                    let known = self.pods.wanted.contains_key(&uid);
                    let wanted = convert::wanted(
                        &manifest,
                        &self.settings.cgroup_root,
                        self.settings.evict_static,
                    );
                    if !known {
                        note_taken_up(&uid, &wanted.name, &wanted.namespace, &pod);
                    }
                    self.pods.wanted.insert(uid, wanted);
                }
                Err(error) => {
                    tracing::warn!(
                        pod = uid,
                        error = polylet_kit::report(&error),
                        "a pod that cannot be read"
                    );
                }
            },
            Update::Remove(uid) => {
                self.pods.wanted.remove(&uid);
            }
            Update::Synced | Update::Stale(_) => {}
        }
    }

    fn take_state(&mut self, update: Update<String, PodState>) {
        match update {
            Update::Upsert(uid, state) => {
                self.pods.held.insert(uid.clone(), convert::held(&state));
                self.withdraw_if_gone(&uid);
            }
            Update::Remove(uid) => {
                self.pods.held.remove(&uid);
                self.withdraw_if_gone(&uid);
            }
            Update::Synced => {
                self.heard_states = true;
                let ordered: Vec<String> = self.orders.iter().map(|(uid, _)| uid.clone()).collect();
                for uid in ordered {
                    self.withdraw_if_gone(&uid);
                }
            }
            Update::Stale(_) => self.heard_states = false,
        }
    }

    /// An order has done its work when nothing of the pod runs any more.
    fn withdraw_if_gone(&mut self, uid: &str) {
        if self.heard_states && !self.pods.is_running(uid) {
            self.orders.withdraw(uid);
            self.store.remove(&PressureKeyOwned::Pod(uid.to_owned()));
        }
    }

    /// Looks at the node; says whether to look again soon.
    async fn round(&mut self) -> bool {
        let levels = self.sample().await;
        let act = self.observe(&levels, false);
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

    async fn sample(&mut self) -> Levels {
        let (levels, one_filesystem) = self.sampler.levels().await;
        self.settings.rules.one_filesystem = one_filesystem;
        levels
    }

    /// Judges a sample and publishes the conditions.
    fn observe(&mut self, levels: &Levels, reclaimed: bool) -> Act {
        let now = Timestamp::now();
        let rules = &self.settings.rules;
        let (standing, act) = round::observe(rules, &self.standing, levels, reclaimed, now);
        for (condition, pressure) in &standing.conditions {
            let key = PressureKeyOwned::Resource(convert::resource(*condition).into());
            let item = convert::condition(*condition, *pressure);
            if self.store.upsert(key, item) && pressure.under {
                tracing::warn!(
                    reason = condition.reason(true),
                    "the node is under pressure"
                );
            }
        }
        if standing.conditions != self.standing.conditions {
            let kept: Vec<_> = standing.conditions.iter().collect();
            if let Err(error) = kept::save(&self.pressure, KEPT_VERSION, &kept) {
                tracing::warn!(
                    error = polylet_kit::report(&error),
                    "conditions are not kept"
                );
            }
        }
        self.standing = standing;
        if !self.store.is_whole() {
            self.publish_kept_orders();
            self.store.mark_whole();
        }
        act
    }

    fn publish_kept_orders(&self) {
        for (uid, order) in self.orders.iter() {
            self.store
                .upsert(PressureKeyOwned::Pod(uid.clone()), fact(order));
        }
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
        let now = Timestamp::now();
        if !self.heard_states || self.last_is_leaving(now) {
            return false;
        }
        let sampled = self.sampler.candidates(&self.pods, threshold.signal).await;
        let Some(candidates) = sampled else {
            tracing::warn!(signal = ?threshold.signal, "what pods use could not be read in time");
            return true;
        };
        let candidates: Vec<_> = candidates
            .into_iter()
            .filter(|pod| !self.orders.iter().any(|(uid, _)| *uid == pod.uid))
            .collect();
        let Some(verdict) = round::evict(&self.settings.rules, threshold, levels, &candidates)
        else {
            tracing::warn!(signal = ?threshold.signal, "the node is short and no pod may be evicted");
            return false;
        };
        self.give(verdict, now)
    }

    /// Gives an order, once it is kept. Says whether it stands.
    fn give(&mut self, verdict: Verdict, now: Timestamp) -> bool {
        let span = tracing::info_span!(
            "eviction.order",
            k8s.pod.uid = verdict.uid,
            k8s.pod.name = verdict.name,
            k8s.namespace.name = verdict.namespace,
        );
        cause::new_trace(&span);
        let order = convert::order(&verdict, now, Some(cause::of_span(&span)));
        if let Err(error) = self.orders.add(&verdict.uid, order.clone()) {
            tracing::error!(
                error = polylet_kit::report(&error),
                "an order that cannot be kept is not given"
            );
            return false;
        }
        tracing::warn!(
            pod = verdict.name,
            namespace = verdict.namespace,
            message = verdict.message,
            "evicting"
        );
        self.store
            .upsert(PressureKeyOwned::Pod(verdict.uid), fact(&order));
        true
    }

    fn last_is_leaving(&self, now: Timestamp) -> bool {
        self.orders.iter().any(|(_, order)| {
            let decided = time::from_wire_opt(order.decided_at.as_ref()).unwrap_or(now);
            let grace = Duration::from_secs(order.grace_seconds.into());
            let waited = Duration::try_from(now.duration_since(decided)).unwrap_or(Duration::ZERO);
            waited < ORDER_PATIENCE.max(grace)
        })
    }

    async fn answer(&mut self, question: Question) {
        let (at, summary) = self
            .sampler
            .summary(
                self.ctx.node_name(),
                &self.pods,
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
    match kept::load::<Vec<(Condition, Pressed)>>(path, KEPT_VERSION) {
        Ok(kept) => kept.unwrap_or_default().into_iter().collect(),
        Err(error) => {
            tracing::warn!(error = polylet_kit::report(&error), "conditions start anew");
            let _ = kept::set_aside(path);
            BTreeMap::new()
        }
    }
}

fn fact(order: &wire::Order) -> Pressure {
    Pressure {
        fact: Some(wire::pressure::Fact::Order(order.clone())),
    }
}

/// From here on the pod counts when the node is short: part of its start.
fn note_taken_up(uid: &str, name: &str, namespace: &str, pod: &Pod) {
    let span = tracing::info_span!(
        "eviction.watch",
        k8s.pod.uid = uid,
        k8s.pod.name = name,
        k8s.namespace.name = namespace,
    );
    cause::set_parent(&span, pod.cause.as_ref());
}
