//! The one task: inputs in, attempts and verdicts out.

use std::collections::BTreeMap;
use std::future::pending;
use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use polylet_kit::kept::KeptError;
use polylet_kit::{CancellationToken, Ctx, address, cause, report};
use polylet_model::ids::PodUid;
use polylet_watch::Update;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::{Pod, PodSource};
use polylet_wire::prober::v1::ListProbeCountsResponse;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep_until;
use tracing::{Instrument, Span};

use crate::clock::Clock;
use crate::core::engine::Engine;
use crate::core::tally::Tallies;
use crate::core::types::{Job, Judged, Observation, PodProbes};
use crate::kept::{self, Verdicts};
use crate::probe::Prober;
use crate::{convert, server, sources, spans};

/// Everything that can happen to the prober.
pub(crate) enum Input {
    /// A source of pods told something.
    Pod(PodSource, Update<String, Pod>),
    /// Pleg told something.
    State(Update<String, PodState>),
    /// An attempt ended, after so long.
    Attempted(Job, Observation, Duration, Span),
    /// Somebody asks for the counts.
    Asked(oneshot::Sender<ListProbeCountsResponse>),
    /// The verdicts were written, or not.
    Saved(Verdicts, Result<(), KeptError>),
    /// The timer says that something is due.
    Due,
}

/// The state of the task.
pub(crate) struct Task {
    engine: Engine,
    clock: Clock,
    prober: Prober,
    watched: SelectAll<LocalBoxStream<'static, Input>>,
    attempts: JoinSet<Input>,
    /// Which source a pod came from: only that one can take it away.
    sources: BTreeMap<String, PodSource>,
    /// What set each pod's present state off.
    causes: BTreeMap<PodUid, Cause>,
    /// The verdicts as they stand; told once they are on disk.
    standing: Verdicts,
    unsaved: bool,
    saves: JoinSet<Input>,
    path: PathBuf,
    told: server::Verdicts,
    tallies: Tallies,
    asked: mpsc::Receiver<oneshot::Sender<ListProbeCountsResponse>>,
    /// Knows the address of pods on the host's network.
    ctx: Ctx,
    drain: CancellationToken,
}

impl Task {
    pub(crate) fn new(
        ctx: &Ctx,
        prober: Prober,
        told: server::Verdicts,
        asked: mpsc::Receiver<oneshot::Sender<ListProbeCountsResponse>>,
    ) -> Self {
        let path = ctx.run_dir().join("verdicts.json");
        let standing = kept::load(&path);
        told.replace(standing.clone());
        Task {
            engine: Engine::new(kept::outcomes(&standing)),
            clock: Clock::new(),
            prober,
            watched: sources::all(ctx),
            attempts: JoinSet::new(),
            sources: BTreeMap::new(),
            causes: BTreeMap::new(),
            standing,
            unsaved: false,
            saves: JoinSet::new(),
            path,
            told,
            tallies: Tallies::default(),
            asked,
            ctx: ctx.clone(),
            drain: ctx.drain(),
        }
    }

    /// Until the drain. Attempts under way end with it: what they would have said is asked again.
    pub(crate) async fn run(mut self) {
        while let Some(input) = self.next().await {
            self.take(input);
            self.save();
        }
        if let Some(input) = self.saves.join_next().await {
            self.take(arrived(input));
        }
    }

    async fn next(&mut self) -> Option<Input> {
        let due = self.engine.next_due().map(|at| self.clock.instant(at));
        let timer = async move {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = self.drain.cancelled() => None,
            Some(input) = self.watched.next() => Some(input),
            Some(input) = self.attempts.join_next() => Some(arrived(input)),
            Some(input) = self.saves.join_next() => Some(arrived(input)),
            Some(answer) = self.asked.recv() => Some(Input::Asked(answer)),
            () = timer => Some(Input::Due),
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Pod(source, update) => self.pod(source, update),
            Input::State(update) => self.state(update),
            Input::Attempted(job, said, took, span) => {
                self.tallies.count(&job, &said, took);
                self.attempted(&job, said, &span);
            }
            // One who asked and went away needs no answer.
            Input::Asked(answer) => drop(answer.send(convert::counts(&self.tallies))),
            Input::Saved(verdicts, result) => {
                if let Err(error) = result {
                    tracing::warn!("a restart may flip verdicts: {}", report(&error));
                }
                self.told.replace(verdicts);
            }
            Input::Due => {}
        }
        for job in self.engine.due(self.clock.now()) {
            self.start(job);
        }
    }

    fn pod(&mut self, source: PodSource, update: Update<String, Pod>) {
        let now = self.clock.now();
        match update {
            Update::Upsert(uid, pod) => {
                let probes = convert::pod_probes(&pod.manifest).unwrap_or_else(|error| {
                    tracing::warn!(k8s.pod.uid = %uid, "a pod cannot be probed: {}", report(&error));
                    PodProbes::default()
                });
                self.engine.pod(&uid.as_str().into(), Some(probes), now);
                self.sources.insert(uid, source);
            }
            Update::Remove(uid) => {
                if self.sources.get(&uid) == Some(&source) {
                    self.sources.remove(&uid);
                    self.engine.pod(&uid.into(), None, now);
                }
            }
            Update::Synced | Update::Stale(_) => {}
        }
    }

    fn state(&mut self, update: Update<String, PodState>) {
        let now = self.clock.now();
        let synced = update == Update::Synced;
        let gone = match update {
            Update::Upsert(uid, state) => {
                let uid = PodUid::from(uid);
                let own = |started_at| self.clock.own(started_at);
                let observed = convert::observed(&state, || self.node_address(), own);
                self.causes
                    .insert(uid.clone(), state.cause.unwrap_or_default());
                self.engine.observed(&uid, Some(observed), now)
            }
            Update::Remove(uid) => {
                let uid = PodUid::from(uid);
                self.causes.remove(&uid);
                self.tallies.forget(&uid);
                self.engine.observed(&uid, None, now)
            }
            Update::Synced => self.engine.observed_all(),
            Update::Stale(_) => Vec::new(),
        };
        for id in &gone {
            self.standing.remove(&convert::key_of(id));
            self.unsaved = true;
        }
        if synced && !self.told.is_whole() {
            // Verdicts need no more than the runtime's word that their containers still run: a
            // source of pods that is away must not hold back those of the others.
            self.told.replace(self.standing.clone());
            self.told.mark_whole();
        }
    }

    /// The address of the host's network as it is now; its own while it has none for others.
    fn node_address(&self) -> String {
        let ip = address::of_node(self.ctx.config());
        ip.unwrap_or_else(|| [127, 0, 0, 1].into()).to_string()
    }

    fn start(&mut self, job: Job) {
        let span = spans::of_attempt(&job, self.causes.get(&job.id.pod));
        let prober = self.prober.clone();
        self.attempts.spawn_local(async move {
            let (said, took) = prober.attempt(&job).instrument(span.clone()).await;
            spans::record(&span, &job, &said);
            Input::Attempted(job, said, took, span)
        });
    }

    fn attempted(&mut self, job: &Job, said: Observation, span: &Span) {
        if let Observation::Failure(why) | Observation::Unknown(why) | Observation::Warning(why) =
            &said
        {
            tracing::debug!(
                k8s.pod.name = &*job.pod,
                k8s.namespace.name = &*job.namespace,
                k8s.container.name = &*job.container,
                probe = job.id.kind.as_str(),
                result = said.as_str(),
                why
            );
        }
        if let Some((reason, message)) = said.notice(job.id.kind) {
            let pod = PodRef {
                uid: job.id.pod.to_string(),
                namespace: job.namespace.to_string(),
                name: job.pod.to_string(),
            };
            let part = &job.probe.part;
            self.ctx.notices().warning(&pod, part, reason, message);
        }
        if let Some(judged) = self
            .engine
            .finished(&job.id, job.serial, said, self.clock.now())
        {
            self.judged(job, judged, span);
        }
    }

    fn judged(&mut self, job: &Job, judged: Judged, span: &Span) {
        tracing::info!(
            k8s.pod.name = &*job.pod, k8s.namespace.name = &*job.namespace, k8s.container.name = &*job.container,
            probe = job.id.kind.as_str(), outcome = ?judged.outcome, results = judged.run_length,
            "verdict"
        );
        let cause = if span.is_none() {
            // Nobody's start: a trace of its own begins with what was found.
            let root = spans::of_verdict(job);
            cause::of_span(&root)
        } else {
            cause::of_span(span)
        };
        self.standing.insert(
            convert::key_of(&job.id),
            convert::verdict(&job.id, judged, cause),
        );
        self.unsaved = true;
    }

    /// Writes what is not on disk yet; one write at a time carries all changes so far.
    fn save(&mut self) {
        if !self.unsaved || !self.saves.is_empty() {
            return;
        }
        self.unsaved = false;
        let (path, verdicts) = (self.path.clone(), self.standing.clone());
        self.saves.spawn_blocking(move || {
            let result = kept::save(&path, &verdicts);
            Input::Saved(verdicts, result)
        });
    }
}

/// What work of ours ended with. A panic in it is one of this task, which ends the process.
fn arrived(input: Result<Input, JoinError>) -> Input {
    match input {
        Ok(input) => input,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only this task ends its work.
            Err(_) => Input::Due,
        },
    }
}
