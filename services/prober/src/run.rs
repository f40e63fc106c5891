//! The event loop: makes the attempts that the manager decides on, saves and publishes the results.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use polylet_kit::state_file::StateFileError;
use polylet_kit::{CancellationToken, Ctx, address, cause, report};
use polylet_model::ids::PodUid;
use polylet_watch::Update;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::pleg::v1::PodState;
use polylet_wire::prober::v1::ListProbeCountsResponse;
use polylet_wire::time;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, Span};

use crate::clock::ProbeClock;
use crate::core::types::{
    OutcomeChange, ProbeAttempt, ProbeOutput, ResolvedHandler, ResultChanges,
};
use crate::input::Input;
use crate::manager::ProbeManager;
use crate::probe::Prober;
use crate::publisher::{ProbeStatusStore, Publisher};
use crate::state_file::ResultsFile;
use crate::{convert, sources, spans};

/// The health conditions of a probe that nothing answers and of one whose command does not end, and how
/// long they last without another attempt.
const NOT_ANSWERED: &str = "ProbeNotAnswered";
const COMMAND_TIMEOUT: &str = "ExecProbeTimeout";
const CONDITION_TIME: Duration = Duration::from_secs(30);

/// The state of the event loop.
pub(crate) struct EventLoop {
    manager: ProbeManager,
    publisher: Publisher,
    clock: ProbeClock,
    prober: Prober,
    sources: SelectAll<LocalBoxStream<'static, Input>>,
    attempts: JoinSet<Input>,
    /// What caused the present state of each pod in the runtime.
    causes: BTreeMap<PodUid, Cause>,
    /// The write in progress, if any.
    saves: JoinSet<Input>,
    /// `None` while it is written.
    file: Option<ResultsFile>,
    counts_requests: mpsc::Receiver<oneshot::Sender<ListProbeCountsResponse>>,
    ctx: Ctx,
    drain: CancellationToken,
}

impl EventLoop {
    pub(crate) fn new(
        ctx: &Ctx,
        prober: Prober,
        store: ProbeStatusStore,
        counts_requests: mpsc::Receiver<oneshot::Sender<ListProbeCountsResponse>>,
    ) -> Result<Self, StateFileError> {
        let file = ResultsFile::open(ctx.run_dir())?;
        Ok(EventLoop {
            publisher: Publisher::new(store, file.results()),
            manager: ProbeManager::new(file.results()),
            clock: ProbeClock::new(),
            prober,
            sources: sources::all(ctx),
            attempts: JoinSet::new(),
            causes: BTreeMap::new(),
            saves: JoinSet::new(),
            file: Some(file),
            counts_requests,
            ctx: ctx.clone(),
            drain: ctx.drain(),
        })
    }

    /// Runs until the drain; `finished` is dropped once all results are saved. Attempts in flight are
    /// dropped then and repeated by the next process instance.
    pub(crate) async fn run(mut self, finished: oneshot::Sender<()>) {
        while let Some(input) = self.next().await {
            self.handle_input(input);
            self.save_if_due();
        }
        // The write in progress, and what has changed since it started.
        self.complete_save().await;
        self.save();
        self.complete_save().await;
        drop(finished);
    }

    async fn next(&mut self) -> Option<Input> {
        let due = self.next_due();
        let timer = async move {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = self.drain.cancelled() => None,
            Some(input) = self.sources.next() => Some(input),
            Some(input) = self.attempts.join_next() => Some(joined(input)),
            Some(input) = self.saves.join_next() => Some(joined(input)),
            Some(response) = self.counts_requests.recv() => Some(Input::ListCounts(response)),
            () = timer => Some(Input::Timer),
        }
    }

    /// When an attempt is due, or a write of changed results may start.
    fn next_due(&self) -> Option<Instant> {
        let attempt = self.manager.next_due().map(|at| self.clock.instant(at));
        let has_changes = !self.manager.unsaved().is_empty();
        let file = self.file.as_ref().filter(|_| has_changes);
        let write = file.map(ResultsFile::next_write);
        attempt.into_iter().chain(write).min()
    }

    fn handle_input(&mut self, input: Input) {
        match input {
            Input::Pod(source, update) => {
                if let Some(change) = convert::pod_change(source, update) {
                    self.manager.handle_pod(change, self.clock.now());
                }
            }
            Input::PodState(update) => self.handle_pod_state(update),
            Input::Attempt {
                attempt,
                output,
                duration,
                span,
            } => {
                self.record_health(&attempt, &output, duration);
                self.manager.count(&attempt, &output, duration);
                self.handle_attempt(&attempt, output, &span);
            }
            // The caller may have cancelled.
            Input::ListCounts(response) => {
                drop(response.send(convert::counts(self.manager.metrics())))
            }
            Input::Saved {
                file,
                changes,
                result,
            } => self.handle_saved(file, &changes, result),
            Input::Timer => {}
        }
        for attempt in self.manager.start_due(self.clock.now()) {
            self.start(attempt);
        }
    }

    fn handle_pod_state(&mut self, update: Update<PodUid, PodState>) {
        match &update {
            Update::Upsert(uid, state) => {
                let cause = state.cause.clone().unwrap_or_default();
                self.causes.insert(PodUid::from(uid.as_str()), cause);
            }
            Update::Remove(uid) => {
                let uid = PodUid::from(uid.as_str());
                self.causes.remove(&uid);
            }
            Update::Synced | Update::Stale(_) => {}
        }
        let node_address = || node_address(&self.ctx);
        let to_probe_clock = |at| self.clock.wall_clock_to_probe_time(at);
        let Some(change) = convert::observed_change(update, node_address, to_probe_clock) else {
            return;
        };
        if self.manager.handle_observed(change, self.clock.now()) {
            self.publisher.publish_synced(self.manager.unsaved());
        }
    }

    fn start(&mut self, attempt: ProbeAttempt) {
        let span = spans::attempt(&attempt, self.causes.get(&attempt.id.pod));
        let prober = self.prober.clone();
        self.attempts.spawn_local(async move {
            let (output, duration) = prober.probe(&attempt).instrument(span.clone()).await;
            spans::record(&span, &attempt, &output);
            Input::Attempt {
                attempt,
                output,
                duration,
                span,
            }
        });
    }

    /// Names a probe that nothing answers in the health of the service, until it is answered.
    fn record_health(&self, attempt: &ProbeAttempt, output: &ProbeOutput, duration: Duration) {
        let (namespace, pod, container) = (&attempt.namespace, &attempt.pod, &attempt.container);
        let kind = attempt.id.kind.as_str();
        let reason = match attempt.probe.handler {
            ResolvedHandler::Exec { .. } => COMMAND_TIMEOUT,
            _ => NOT_ANSWERED,
        };
        let conditions = self.ctx.conditions();
        if !attempt.is_unanswered(output, duration) {
            conditions.clear(reason, format_args!("{namespace}/{pod}/{container}/{kind}"));
            return;
        }
        let object = format!("{namespace}/{pod}/{container}/{kind}");
        let message = output.message().unwrap_or_default();
        // The pod may be removed before the next attempt.
        let next = attempt.probe.timing.period + attempt.probe.timeout;
        conditions.set_for(reason, object, message, next + CONDITION_TIME);
    }

    fn handle_attempt(&mut self, attempt: &ProbeAttempt, output: ProbeOutput, span: &Span) {
        if let Some(message) = output.message() {
            tracing::debug!(
                k8s.pod.name = &*attempt.pod,
                k8s.namespace.name = &*attempt.namespace,
                k8s.container.name = &*attempt.container,
                probe = attempt.id.kind.as_str(),
                result = output.as_str(),
                message,
                "probe attempt did not succeed"
            );
        }
        if let Some((reason, message)) = output.event(attempt.id.kind)
            && attempt.is_reported(&output)
        {
            let pod = PodRef {
                uid: attempt.id.pod.to_string(),
                namespace: attempt.namespace.to_string(),
                name: attempt.pod.to_string(),
            };
            let field_path = &attempt.probe.field_path;
            let notices = self.ctx.notices();
            notices.warning(&pod, field_path, reason, message);
        }
        let now = self.clock.now();
        self.manager.complete(attempt, output, now, |change| {
            let cause = outcome_cause(attempt, change, span);
            let since = time::from_wire_opt(cause.observed_at.as_ref());
            (cause.traceparent, since)
        });
    }

    /// Saves changed results, unless they wait for later ones to be written with them.
    fn save_if_due(&mut self) {
        let file = self.file.as_ref();
        if file.is_some_and(|file| file.next_write() <= Instant::now()) {
            self.save();
        }
    }

    /// Saves changed results. One write at a time carries all changes so far.
    fn save(&mut self) {
        let Some(mut file) = self.file.take() else {
            return;
        };
        let Some(changes) = self.manager.take_unsaved() else {
            self.file = Some(file);
            return;
        };
        self.saves.spawn_blocking(move || {
            let result = file.save(&changes);
            Input::Saved {
                file,
                changes,
                result,
            }
        });
    }

    /// Publishes changes that were saved.
    fn handle_saved(
        &mut self,
        file: ResultsFile,
        changes: &ResultChanges,
        result: Result<(), StateFileError>,
    ) {
        self.file = Some(file);
        if let Err(error) = result {
            tracing::warn!(
                error = report(&error),
                "failed to save probe results; a restart may change them"
            );
        }
        self.publisher.publish(changes);
    }

    /// Waits for the write in progress, if any.
    async fn complete_save(&mut self) {
        if let Some(completed) = self.saves.join_next().await
            && let Input::Saved {
                file,
                changes,
                result,
            } = joined(completed)
        {
            self.handle_saved(file, &changes, result);
        }
    }
}

/// The node's present address; the loopback address while it has none.
fn node_address(ctx: &Ctx) -> String {
    let ip = address::node_address(ctx.config());
    ip.unwrap_or_else(|| [127, 0, 0, 1].into()).to_string()
}

/// Logs a change of an outcome. Its cause is the attempt; a new trace where that has no span.
fn outcome_cause(attempt: &ProbeAttempt, change: &OutcomeChange, span: &Span) -> Cause {
    tracing::info!(
        k8s.pod.name = &*attempt.pod,
        k8s.namespace.name = &*attempt.namespace,
        k8s.container.name = &*attempt.container,
        probe = attempt.id.kind.as_str(),
        outcome = ?change.outcome,
        results = change.run_length,
        "probe outcome changed"
    );
    if span.is_none() {
        cause::from_span(&spans::outcome(attempt))
    } else {
        cause::from_span(span)
    }
}

/// The result of a task of this loop. A panic in it is one of this loop, which ends the process.
fn joined(input: Result<Input, JoinError>) -> Input {
    match input {
        Ok(input) => input,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Tasks are only cancelled with this loop.
            Err(_) => Input::Timer,
        },
    }
}
