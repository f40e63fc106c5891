//! The pod cache and the runtime's health, and what is published of them. Calls to the runtime are
//! returned as data; the caller makes them and passes the results back.

use std::collections::HashMap;

use jiff::Timestamp;
use polylet_kit::cause;
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::pleg::v1::{PodState, RefreshPodResponse, WatchRuntimeResponse};
use polylet_wire::time;
use tokio::sync::{oneshot, watch};

use crate::core::{
    Action, CachedStatuses, HealthCheck, Inspected, ListedPod, PodCache, PodIdentity, PodListing,
    PodStatus, RecordChange, RuntimeEvent, RuntimeHealth,
};
use crate::{convert, trace};

/// A call of `RefreshPod`.
pub struct RefreshRequest {
    /// The pod; its namespace and name are needed with `changes` only.
    pub pod: PodIdentity,
    /// Also request the statuses that are cached.
    pub force: bool,
    /// The caller's changes, which alone are inspected. Empty: everything is.
    pub changes: Vec<RecordChange>,
    /// The trace of the caller's change.
    pub cause: Cause,
    /// Receives the result.
    pub response: oneshot::Sender<Result<RefreshPodResponse, String>>,
}

/// A call to the runtime to make now.
#[derive(Debug)]
pub enum RuntimeCall {
    /// Request the runtime's version and status.
    CheckHealth,
    /// List everything.
    List {
        /// To be passed back with the result.
        sequence: u64,
    },
    /// Inspect one pod. Without list entries, list it first.
    Inspect {
        /// The uid of the pod.
        uid: PodUid,
        /// The pod's entries in a full list.
        listed: Option<ListedPod>,
        /// The statuses that need not be requested.
        cached: CachedStatuses,
    },
}

/// The pod lifecycle event generator: decides which calls to make and publishes the results.
pub struct Pleg {
    store: Store<PodUid, PodState>,
    runtime_status: watch::Sender<WatchRuntimeResponse>,
    cache: PodCache,
    health: RuntimeHealth,
    /// Pending refreshes by their token in the cache.
    refreshes: HashMap<u64, RefreshRequest>,
    next_token: u64,
}

impl Pleg {
    /// An empty cache, to be published in `store`. The runtime's status is published once a check has ended.
    pub fn new(
        store: Store<PodUid, PodState>,
        runtime_status: watch::Sender<WatchRuntimeResponse>,
        now: Timestamp,
    ) -> Self {
        Pleg {
            store,
            runtime_status,
            cache: PodCache::new(now),
            health: RuntimeHealth::new(now),
            refreshes: HashMap::new(),
            next_token: 0,
        }
    }

    /// When something is due without an input.
    pub fn next_due(&self) -> Option<Timestamp> {
        let health = self.health.next_due();
        self.cache.next_due().into_iter().chain(health).min()
    }

    /// Takes a call of `RefreshPod`.
    pub fn refresh(&mut self, mut request: RefreshRequest) {
        self.next_token += 1;
        let changes = std::mem::take(&mut request.changes);
        if request.force || changes.is_empty() {
            self.cache
                .refresh(&request.pod.uid, request.force, self.next_token);
        } else {
            self.cache
                .refresh_changes(&request.pod, changes, self.next_token);
        }
        self.refreshes.insert(self.next_token, request);
    }

    /// Takes an event of the runtime.
    pub fn handle_event(&mut self, event: RuntimeEvent, now: Timestamp) {
        self.cache.handle_event(event, now);
    }

    /// The event stream has started or ended.
    pub fn set_event_stream(&mut self, active: bool, now: Timestamp) {
        tracing::debug!(active, "runtime event stream changed");
        self.cache.set_event_stream(active, now);
        self.health.set_events(active);
        if !active {
            self.health.on_failure(now);
        }
    }

    /// A full list has ended.
    pub fn on_relisted(
        &mut self,
        sequence: u64,
        result: Result<PodListing, String>,
        now: Timestamp,
    ) {
        let error = result.as_ref().err();
        if let Some(error) = error.filter(|_| !self.health.list_fails()) {
            tracing::warn!(error, "cannot list pods in the runtime");
        }
        self.health.on_list(error.cloned(), now);
        self.cache.on_relisted(sequence, result, now);
    }

    /// The inspection of a pod has ended.
    pub fn on_inspected(
        &mut self,
        uid: &PodUid,
        result: Result<Inspected, String>,
        now: Timestamp,
    ) {
        if result.is_err() {
            self.health.on_failure(now);
        }
        self.cache.on_inspected(uid, result, now);
    }

    /// The first process of a container has exited.
    pub fn on_process_exited(&mut self, container_id: &str, now: Timestamp) {
        self.cache.on_process_exited(container_id, now);
    }

    /// A health check has ended. True when the runtime answers again, or for the first time.
    pub fn on_health_check(&mut self, result: Result<HealthCheck, String>, now: Timestamp) -> bool {
        if let Some(error) = result.as_ref().err().filter(|_| !self.health.is_down()) {
            tracing::warn!(error, "runtime health check failed");
        }
        self.health.on_check(result, now)
    }

    /// Publishes what follows from the inputs so far and returns the calls to make. `on_changed` is
    /// called for each pod whose status changed, with `None` for a pod that is gone.
    pub fn reconcile(
        &mut self,
        now: Timestamp,
        mut on_changed: impl FnMut(&str, Option<&PodStatus>),
    ) -> Vec<RuntimeCall> {
        let mut calls = Vec::new();
        if self.health.start_due_check(now) {
            calls.push(RuntimeCall::CheckHealth);
        }
        for action in self.cache.take_actions(now) {
            match action {
                Action::Relist { sequence } => calls.push(RuntimeCall::List { sequence }),
                Action::Inspect {
                    uid,
                    listed,
                    cached,
                } => calls.push(RuntimeCall::Inspect {
                    uid,
                    listed,
                    cached,
                }),
                Action::Publish {
                    uid,
                    status,
                    tokens,
                } => {
                    on_changed(uid.as_str(), status.as_deref());
                    self.publish(uid, status, &tokens, now);
                }
                Action::SetCause { uid, tokens } => self.set_cause(uid, &tokens),
                Action::Respond {
                    uid,
                    tokens,
                    result,
                } => self.respond(&uid, tokens, &result, now),
                Action::Synced => self.store.mark_synced(),
            }
        }
        self.publish_runtime_status();
        calls
    }

    fn publish(
        &mut self,
        uid: PodUid,
        status: Option<Box<PodStatus>>,
        tokens: &[u64],
        now: Timestamp,
    ) {
        let Some(status) = status else {
            self.store.remove(uid.as_str());
            return;
        };
        let mut state = convert::pod_state(*status);
        state.cause = match self.cause_of(tokens) {
            Some(cause) => Some(cause),
            // Found by the initial sync: not a change.
            None if !self.store.has_synced() => None,
            None => {
                let previous = self.store.get(uid.as_str());
                Some(trace::observed_cause(&state, previous.as_ref(), now))
            }
        };
        state.observed_at = Some(time::to_wire(now));
        self.store.upsert(uid, state);
    }

    // An event was quicker than the refresh of the caller that made the change.
    fn set_cause(&self, uid: PodUid, tokens: &[u64]) {
        let (Some(mut state), Some(mut cause)) =
            (self.store.get(uid.as_str()), self.cause_of(tokens))
        else {
            return;
        };
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
        let mut requests = tokens.iter().filter_map(|token| self.refreshes.get(token));
        let mut cause = requests.next()?.cause.clone();
        for other in requests {
            cause::fold(&mut cause, &other.cause);
        }
        Some(cause)
    }

    fn respond(
        &mut self,
        uid: &str,
        tokens: Vec<u64>,
        result: &Result<(), String>,
        now: Timestamp,
    ) {
        let response = result.clone().map(|()| {
            let state = self.store.get(uid);
            let mut state = state.unwrap_or_else(|| empty_state(uid));
            state.observed_at = Some(time::to_wire(now));
            RefreshPodResponse {
                state: Some(state),
                position: Some(self.store.position()),
            }
        });
        for token in tokens {
            if let Some(request) = self.refreshes.remove(&token) {
                // The caller may have cancelled.
                let _ = request.response.send(response.clone());
            }
        }
    }

    fn publish_runtime_status(&self) {
        // After a restart others keep what they know: a node is not NotReady for a moment because nobody has
        // asked its runtime yet.
        if !self.health.is_checked() {
            return;
        }
        let status = self.health.status();
        let new = convert::runtime_status(status);
        self.runtime_status.send_if_modified(|published| {
            // The time of the last list alone is not a change.
            let comparable = WatchRuntimeResponse {
                last_relist_at: new.last_relist_at,
                ..published.clone()
            };
            let changed = comparable != new;
            if changed && !status.ready {
                tracing::warn!(reason = status.reason, "runtime is not ready");
            } else if changed {
                tracing::info!(
                    ready = status.ready,
                    network_ready = status.network_ready,
                    events = status.events,
                    version = status.runtime_version,
                    "runtime status changed"
                );
            }
            *published = new;
            changed
        });
    }
}

fn empty_state(uid: &str) -> PodState {
    PodState {
        r#ref: Some(PodRef {
            uid: uid.to_string(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_the_runtime_is_published_once_a_check_has_ended() {
        let (sender, published) = watch::channel(WatchRuntimeResponse::default());
        let now = Timestamp::UNIX_EPOCH;
        let mut pleg = Pleg::new(Store::new("test"), sender, now);
        pleg.set_event_stream(true, now);
        pleg.reconcile(now, |_, _| {});
        assert_eq!(*published.borrow(), WatchRuntimeResponse::default());
        pleg.on_health_check(Ok(HealthCheck::default()), now);
        pleg.reconcile(now, |_, _| {});
        assert!(published.borrow().ready);
    }
}
