//! Everything that is known of the runtime, and what is told of it. Calls go out as data; whoever
//! makes them brings the answers back.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::cause;
use polylet_watch::Store;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::pleg::v1::{ContainerPhase, PodState, RefreshPodResponse, WatchRuntimeResponse};
use polylet_wire::time;
use tokio::sync::{oneshot, watch};

use crate::core::{Desk, Health, Hint, Known, Listing, PodView, Polled, Seen, Step};

/// One call of `RefreshPod`.
pub struct Refresh {
    /// The pod.
    pub uid: String,
    /// Known things are asked for again.
    pub anew: bool,
    /// What the caller did.
    pub cause: Cause,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<RefreshPodResponse, String>>,
}

/// A call to the runtime that is to be made now.
#[derive(Debug)]
pub enum Call {
    /// Ask the runtime about itself.
    Poll,
    /// List everything.
    List {
        /// Goes back with the answer.
        turn: u64,
    },
    /// Look at one pod; without a view, list it first.
    Look {
        /// The pod.
        uid: String,
        /// What a full list said of it.
        view: Option<PodView>,
        /// What need not be asked about.
        known: Known,
    },
}

/// The owner of what is known and told.
pub struct Teller {
    store: Store<String, PodState>,
    reports: watch::Sender<WatchRuntimeResponse>,
    desk: Desk,
    health: Health,
    /// Callers by the tokens that the desk knows them by.
    callers: HashMap<u64, Refresh>,
    next_token: u64,
}

impl Teller {
    /// Knows nothing yet.
    pub fn new(
        store: Store<String, PodState>,
        reports: watch::Sender<WatchRuntimeResponse>,
        now: Timestamp,
    ) -> Self {
        let health = Health::new(now);
        reports.send_replace(health.report().clone());
        Teller {
            store,
            reports,
            desk: Desk::new(now),
            health,
            callers: HashMap::new(),
            next_token: 0,
        }
    }

    /// When there is something to do without an input.
    pub fn due(&self) -> Option<Timestamp> {
        self.desk.due().into_iter().chain(self.health.due()).min()
    }

    /// A caller wants to know a pod as it is now.
    pub fn refresh(&mut self, refresh: Refresh) {
        self.next_token += 1;
        self.desk
            .refresh(&refresh.uid, refresh.anew, self.next_token);
        self.callers.insert(self.next_token, refresh);
    }

    /// The runtime told that something happened.
    pub fn hint(&mut self, hint: Hint, now: Timestamp) {
        self.desk.hint(hint, now);
    }

    /// Events flow from now on, or no longer.
    pub fn events(&mut self, flow: bool, now: Timestamp) {
        tracing::debug!(flow, "runtime events");
        self.desk.events(flow, now);
        self.health.events(flow);
        if !flow {
            self.health.failed(now);
        }
    }

    /// A full list ended.
    pub fn relisted(&mut self, turn: u64, result: Result<Listing, String>, now: Timestamp) {
        self.health.listed(result.as_ref().err().cloned(), now);
        self.desk.relisted(turn, result, now);
    }

    /// A look at one pod ended.
    pub fn looked(&mut self, uid: &str, result: Result<Seen, String>, now: Timestamp) {
        if result.is_err() {
            self.health.failed(now);
        }
        self.desk.looked(uid, result, now);
    }

    /// The first process of a container ended.
    pub fn process_ended(&mut self, id: &str, now: Timestamp) {
        self.desk.process_ended(id, now);
    }

    /// The runtime was asked about itself. Says whether it came back with this.
    pub fn polled(&mut self, answer: Result<Polled, String>, now: Timestamp) -> bool {
        self.health.polled(answer, now)
    }

    /// What follows from all inputs so far: tells it, and says what to ask next. `keep` hears each
    /// pod that is told anew, or that it is gone.
    pub fn act(
        &mut self,
        now: Timestamp,
        mut keep: impl FnMut(&str, Option<&PodState>),
    ) -> Vec<Call> {
        let mut calls = Vec::new();
        if self.health.due().is_some_and(|due| due <= now) {
            self.health.polling();
            calls.push(Call::Poll);
        }
        for step in self.desk.steps(now) {
            match step {
                Step::Relist { turn } => calls.push(Call::List { turn }),
                Step::Look { uid, view, known } => calls.push(Call::Look { uid, view, known }),
                Step::Publish { uid, state, tokens } => {
                    keep(&uid, state.as_deref());
                    self.publish(uid, state, &tokens, now);
                }
                Step::Adopt { uid, tokens } => self.adopt(uid, &tokens),
                Step::Answer {
                    uid,
                    tokens,
                    result,
                } => self.answer(&uid, tokens, &result, now),
                Step::Whole => self.store.mark_whole(),
            }
        }
        self.report();
        calls
    }

    fn publish(
        &mut self,
        uid: String,
        state: Option<Box<PodState>>,
        tokens: &[u64],
        now: Timestamp,
    ) {
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
                Some(found_unasked(&state, before, now))
            }
        };
        state.observed_at = Some(time::to_wire(now));
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

    fn answer(&mut self, uid: &str, tokens: Vec<u64>, result: &Result<(), String>, now: Timestamp) {
        let answer = result.clone().map(|()| {
            let held = self.store.get(&uid.to_owned());
            let mut state = held.unwrap_or_else(|| nothing_of(uid));
            state.observed_at = Some(time::to_wire(now));
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
fn found_unasked(state: &PodState, before: Option<Cause>, now: Timestamp) -> Cause {
    let pod = state.r#ref.clone().unwrap_or_default();
    let span = tracing::info_span!(parent: None, "pleg.observe", k8s.pod.uid = pod.uid,
        k8s.pod.name = pod.name, k8s.namespace.name = pod.namespace,
        containers = state.containers.len());
    let failed = state
        .containers
        .iter()
        .any(|c| c.phase() == ContainerPhase::Exited && c.exit_code != 0);
    let Some(act) = before.filter(|act| !failed && is_recent(act, now)) else {
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

fn is_recent(act: &Cause, now: Timestamp) -> bool {
    let at = time::from_wire_opt(act.observed_at.as_ref());
    let age = at.map(|at| now.duration_since(at));
    !act.traceparent.is_empty()
        && age.is_some_and(|age| Duration::try_from(age).unwrap_or_default() < CONSEQUENCE)
}
