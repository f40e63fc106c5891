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
use crate::core::tally::Tallies;
use crate::core::types::{Job, Judged, Observation};
use crate::judge::{Judge, Verdicts};
use crate::kept;
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
    judge: Judge,
    clock: Clock,
    prober: Prober,
    watched: SelectAll<LocalBoxStream<'static, Input>>,
    attempts: JoinSet<Input>,
    /// What set each pod's present state off.
    causes: BTreeMap<PodUid, Cause>,
    saves: JoinSet<Input>,
    path: PathBuf,
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
        Task {
            judge: Judge::new(kept::load(&path), told),
            clock: Clock::new(),
            prober,
            watched: sources::all(ctx),
            attempts: JoinSet::new(),
            causes: BTreeMap::new(),
            saves: JoinSet::new(),
            path,
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
        let due = self.judge.next_due().map(|at| self.clock.instant(at));
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
            Input::Pod(source, update) => self.judge.pod(source, update, self.clock.now()),
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
                self.judge.saved(verdicts);
            }
            Input::Due => {}
        }
        for job in self.judge.jobs(self.clock.now()) {
            self.start(job);
        }
    }

    fn state(&mut self, update: Update<String, PodState>) {
        match &update {
            Update::Upsert(uid, state) => {
                let cause = state.cause.clone().unwrap_or_default();
                self.causes.insert(PodUid::from(uid.as_str()), cause);
            }
            Update::Remove(uid) => {
                let uid = PodUid::from(uid.as_str());
                self.causes.remove(&uid);
                self.tallies.forget(&uid);
            }
            Update::Synced | Update::Stale(_) => {}
        }
        let node = || node_address(&self.ctx);
        let own = |moment| self.clock.own(moment);
        self.judge.seen(update, node, own, self.clock.now());
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
        let now = self.clock.now();
        self.judge
            .finished(job, said, now, |judged| judged_because(job, judged, span));
    }

    /// Writes what is not on disk yet; one write at a time carries all changes so far.
    fn save(&mut self) {
        if !self.saves.is_empty() {
            return;
        }
        let Some(verdicts) = self.judge.to_save() else {
            return;
        };
        let path = self.path.clone();
        self.saves.spawn_blocking(move || {
            let result = kept::save(&path, &verdicts);
            Input::Saved(verdicts, result)
        });
    }
}

/// The address of the host's network as it is now; its own while it has none for others.
fn node_address(ctx: &Ctx) -> String {
    let ip = address::of_node(ctx.config());
    ip.unwrap_or_else(|| [127, 0, 0, 1].into()).to_string()
}

/// Says a new verdict; what set it off is the attempt, or a trace of its own.
fn judged_because(job: &Job, judged: &Judged, span: &Span) -> Cause {
    tracing::info!(
        k8s.pod.name = &*job.pod, k8s.namespace.name = &*job.namespace, k8s.container.name = &*job.container,
        probe = job.id.kind.as_str(), outcome = ?judged.outcome, results = judged.run_length,
        "verdict"
    );
    if span.is_none() {
        // Nobody's start: a trace of its own begins with what was found.
        cause::of_span(&spans::of_verdict(job))
    } else {
        cause::of_span(span)
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
