use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use polylet_cri::Runtime;
use polylet_kit::{CancellationToken, cause};
use polylet_watch::Store;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::pleg::v1::{ContainerPhase, PodState, RefreshPodResponse, WatchRuntimeResponse};
use polylet_wire::time;
use tokio::sync::{mpsc, oneshot, watch};

use crate::core::{Desk, Health, Hint, Listing, Polled, Step};
use crate::events::Wake;
use crate::exits::Exits;
use crate::look::{self, Look};

/// All that can happen to this service.
pub(crate) enum Input {
    /// A caller wants to know a pod as it is now.
    Refresh(Refresh),
    /// The runtime told that something happened.
    Hint(Hint),
    /// Events flow from now on, or no longer.
    Events(bool),
    /// A full list ended.
    Relisted(u64, Result<Listing, String>),
    /// A look at one pod ended.
    Looked(String, Result<Look, String>),
    /// The first process of a container ended.
    ProcessEnded(String),
    /// The runtime was asked about itself.
    Polled(Result<Polled, String>),
    /// Something is due.
    Due,
}

/// One call of `RefreshPod`.
pub(crate) struct Refresh {
    pub(crate) uid: String,
    pub(crate) cause: Cause,
    pub(crate) answer: oneshot::Sender<Result<RefreshPodResponse, String>>,
}

/// The owner of everything that is known of the runtime.
pub(crate) struct Run {
    runtime: Runtime,
    store: Store<String, PodState>,
    reports: watch::Sender<WatchRuntimeResponse>,
    wake: Wake,
    desk: Desk,
    health: Health,
    /// Callers by the tokens that the desk knows them by.
    callers: HashMap<u64, Refresh>,
    next_token: u64,
    calls: FuturesUnordered<LocalBoxFuture<'static, Input>>,
    exits: Exits,
}

impl Run {
    pub(crate) fn new(
        runtime: Runtime,
        store: Store<String, PodState>,
        reports: watch::Sender<WatchRuntimeResponse>,
        wake: Wake,
        exits: Exits,
    ) -> Self {
        let now = Timestamp::now();
        let health = Health::new(now);
        reports.send_replace(health.report().clone());
        Self {
            runtime,
            store,
            reports,
            wake,
            desk: Desk::new(now),
            health,
            callers: HashMap::new(),
            next_token: 0,
            calls: FuturesUnordered::new(),
            exits,
        }
    }

    /// Runs until the drain. Calls under way are dropped then: none of them changes anything.
    pub(crate) async fn until(
        mut self,
        drain: CancellationToken,
        mut inbox: mpsc::UnboundedReceiver<Input>,
    ) {
        loop {
            self.act();
            let due = self.due();
            let input = tokio::select! {
                () = drain.cancelled() => return,
                Some(ended) = self.calls.next() => ended,
                Some(input) = inbox.recv() => input,
                id = self.exits.next() => Input::ProcessEnded(id),
                () = sleep_until(due) => Input::Due,
            };
            self.take(input);
        }
    }

    fn due(&self) -> Option<Timestamp> {
        self.desk.due().into_iter().chain(self.health.due()).min()
    }

    fn take(&mut self, input: Input) {
        let now = Timestamp::now();
        match input {
            Input::Refresh(refresh) => {
                self.next_token += 1;
                self.desk.refresh(&refresh.uid, self.next_token);
                self.callers.insert(self.next_token, refresh);
            }
            Input::Hint(hint) => self.desk.hint(hint, now),
            Input::Events(flow) => {
                tracing::debug!(flow, "runtime events");
                self.desk.events(flow, now);
                self.health.events(flow);
                if !flow {
                    self.health.failed(now);
                }
            }
            Input::Relisted(turn, result) => {
                self.health.listed(result.as_ref().err().cloned(), now);
                self.desk.relisted(turn, result, now);
            }
            Input::Looked(uid, Ok(look)) => {
                self.desk.looked(&uid, Ok(look.seen), now);
                for (id, pid) in look.pids {
                    if self.exits.follow(&uid, &id, pid) {
                        self.desk.process_ended(&id, now);
                    }
                }
            }
            Input::Looked(uid, Err(error)) => {
                self.health.failed(now);
                self.desk.looked(&uid, Err(error), now);
            }
            Input::ProcessEnded(id) => self.desk.process_ended(&id, now),
            Input::Polled(answer) => {
                if self.health.polled(answer, now) {
                    self.wake.notify_one();
                }
            }
            Input::Due => {}
        }
    }

    fn act(&mut self) {
        let now = Timestamp::now();
        if self.health.due().is_some_and(|due| due <= now) {
            self.health.polling();
            let runtime = self.runtime.clone();
            self.calls.push(Box::pin(async move {
                Input::Polled(look::poll(&runtime).await)
            }));
        }
        for step in self.desk.steps(now) {
            self.step(step);
        }
        self.report();
    }

    fn step(&mut self, step: Step) {
        let runtime = self.runtime.clone();
        match step {
            Step::Relist { turn } => self.calls.push(Box::pin(async move {
                Input::Relisted(turn, look::list(&runtime).await)
            })),
            Step::Look { uid, view, known } => self.calls.push(Box::pin(async move {
                let seen = look::inspect(&runtime, &uid, view, &known).await;
                Input::Looked(uid, seen)
            })),
            Step::Publish { uid, state, tokens } => self.publish(uid, state, &tokens),
            Step::Adopt { uid, tokens } => self.adopt(uid, &tokens),
            Step::Answer {
                uid,
                tokens,
                result,
            } => self.answer(&uid, tokens, &result),
            Step::Whole => self.store.mark_whole(),
        }
    }

    fn publish(&mut self, uid: String, state: Option<Box<PodState>>, tokens: &[u64]) {
        self.exits.keep(&uid, state.as_deref());
        let Some(mut state) = state else {
            self.store.remove(&uid);
            return;
        };
        state.cause = match self.cause_of(tokens) {
            Some(cause) => Some(cause),
            // What was there before this process is no news.
            None if !self.store.is_whole() => None,
            None => {
                let before = self.store.get(&uid).and_then(|known| known.cause);
                Some(found_unasked(&state, before))
            }
        };
        state.observed_at = Some(time::now());
        self.store.upsert(uid, *state);
    }

    // An event was quicker than the refresh of whoever did it: the change is theirs all the same.
    fn adopt(&self, uid: String, tokens: &[u64]) {
        let (Some(mut state), Some(mut cause)) = (self.store.get(&uid), self.cause_of(tokens))
        else {
            return;
        };
        // A caller without a trace has none to lend.
        if cause.traceparent.is_empty() {
            return;
        }
        if let Some(own) = &state.cause {
            cause::fold(&mut cause, own);
        }
        state.cause = Some(cause);
        self.store.upsert(uid, state);
    }

    fn cause_of(&self, tokens: &[u64]) -> Option<Cause> {
        let mut causes = tokens.iter().filter_map(|token| self.callers.get(token));
        let mut cause = causes.next()?.cause.clone();
        for other in causes {
            cause::fold(&mut cause, &other.cause);
        }
        Some(cause)
    }

    fn answer(&mut self, uid: &str, tokens: Vec<u64>, result: &Result<(), String>) {
        let answer = result.clone().map(|()| {
            let held = self.store.get(&uid.to_owned());
            let mut state = held.unwrap_or_else(|| nothing_of(uid));
            state.observed_at = Some(time::now());
            RefreshPodResponse {
                state: Some(state),
                position: Some(self.store.position()),
            }
        });
        for token in tokens {
            if let Some(caller) = self.callers.remove(&token) {
                // Who no longer waits is not told.
                let _ = caller.answer.send(answer.clone());
            }
        }
    }

    fn report(&self) {
        let report = self.health.report();
        self.reports.send_if_modified(|told| {
            // The time of the last list goes along, and is no reason to speak.
            let silent = WatchRuntimeResponse {
                last_relist_at: report.last_relist_at,
                ..told.clone()
            };
            let changed = silent != *report;
            if changed && !report.ready {
                tracing::warn!(reason = report.reason, "the runtime is not ready");
            } else if changed {
                tracing::info!(
                    ready = report.ready,
                    network_ready = report.network_ready,
                    events = report.events,
                    version = report.runtime_version,
                    "the runtime"
                );
            }
            told.clone_from(report);
            changed
        });
    }
}

fn nothing_of(uid: &str) -> PodState {
    PodState {
        r#ref: Some(PodRef {
            uid: uid.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// So long what happens to a pod by itself still belongs to the act before it.
const CONSEQUENCE: Duration = Duration::from_secs(120);

// A change that nobody waited for begins a trace of its own, unless it follows from an act: an init
// container that came to its end is part of the pod's start. A failure is a story of its own.
fn found_unasked(state: &PodState, before: Option<Cause>) -> Cause {
    let pod = state.r#ref.clone().unwrap_or_default();
    let span = tracing::info_span!(parent: None, "pleg.observe", k8s.pod.uid = pod.uid,
        k8s.pod.name = pod.name, k8s.namespace.name = pod.namespace,
        containers = state.containers.len());
    let failed = state
        .containers
        .iter()
        .any(|c| c.phase() == ContainerPhase::Exited && c.exit_code != 0);
    let Some(act) = before.filter(|act| !failed && is_recent(act)) else {
        cause::new_trace(&span);
        return cause::of_span(&span);
    };
    cause::set_parent(&span, Some(&act));
    Cause {
        // The act's time, so that one consequence of another does not go on for ever.
        observed_at: act.observed_at,
        ..cause::of_span(&span)
    }
}

fn is_recent(act: &Cause) -> bool {
    let at = time::from_wire_opt(act.observed_at.as_ref());
    let age = at.map(|at| Timestamp::now().duration_since(at));
    !act.traceparent.is_empty()
        && age.is_some_and(|age| Duration::try_from(age).unwrap_or_default() < CONSEQUENCE)
}

async fn sleep_until(due: Option<Timestamp>) {
    let Some(due) = due else {
        return std::future::pending().await;
    };
    let wait = Timestamp::now().duration_until(due);
    // At most a minute, because the clock may be set meanwhile.
    let wait = Duration::try_from(wait)
        .unwrap_or_default()
        .min(Duration::from_secs(60));
    tokio::time::sleep(wait).await;
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
