use polylet_model::PodUid;

use super::types::ids;
use super::*;

/// Delays after failed inspections in a row.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(10));
/// A change that was published without a cause may turn out to be a caller's within this time.
const CAUSE_WINDOW: Duration = Duration::from_secs(2);

impl PodCache {
    /// Requests an inspection with a new list of the pod.
    pub(super) fn request_fresh(&mut self, uid: &PodUid, first: bool) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.pending.fresh = true;
        }
        self.enqueue(uid, first);
    }

    pub(super) fn enqueue(&mut self, uid: &PodUid, first: bool) {
        self.delayed.cancel(uid);
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        if entry.pending.queued {
            return;
        }
        entry.pending.queued = true;
        // One inspection at a time: the next one is queued when the present one ends.
        if entry.in_flight.is_none() {
            if first {
                self.ready.push_front(uid.clone());
            } else {
                self.ready.push_back(uid.clone());
            }
        }
    }

    /// Has everything of a pod inspected at a time, unless it is queued.
    pub(super) fn inspect_at(&mut self, uid: &PodUid, at: Timestamp) {
        if let Some(entry) = self.pods.get_mut(uid).filter(|e| !e.pending.queued) {
            entry.due = Some(entry.due.map_or(at, |due| due.min(at)));
            self.rearm(uid);
        }
    }

    pub(super) fn start_inspections(&mut self, now: Timestamp) {
        while let Some(uid) = self.ready.pop_front() {
            let awaited = |e: &Entry| !e.pending.tokens.is_empty();
            if self.in_flight >= MAX_INSPECTIONS && !self.pods.get(&uid).is_some_and(|e| awaited(e))
            {
                self.ready.push_front(uid);
                return;
            }
            let synced = self.is_synced();
            let Some(entry) = self.pods.get_mut(&uid) else {
                continue;
            };
            let pending = std::mem::take(&mut entry.pending);
            if synced && entry.can_inspect_changes(&pending) {
                self.start_change_inspection(&uid, pending, now);
            } else {
                self.start_inspection(uid, pending, now);
            }
        }
    }

    fn start_inspection(&mut self, uid: PodUid, pending: PendingInspect, now: Timestamp) {
        let Some(entry) = self.pods.get_mut(&uid) else {
            return;
        };
        let fresh = pending.fresh || !pending.tokens.is_empty() || !pending.changes.is_empty();
        self.sequence += 1;
        // An inspection from an earlier list counts as of that list.
        let listed = pending.listed.filter(|_| !fresh);
        let sequence = listed
            .as_ref()
            .map_or(self.sequence, |(sequence, _)| *sequence);
        let status = entry.status.as_ref().filter(|_| !pending.force);
        let cached = status.map(|status| inspection::cached_statuses(status, &entry.oom_checks));
        entry.in_flight = Some(Inspection {
            sequence,
            began: if listed.is_some() {
                Timestamp::MIN
            } else {
                now
            },
            statuses_at: now,
            requested: None,
            tokens: pending.tokens,
        });
        if listed.is_none() {
            entry.deferred.clear();
        }
        entry.due = None;
        self.in_flight += 1;
        self.delayed.cancel(&uid);
        self.actions.push(Action::Inspect {
            uid,
            listed: listed.map(|(_, listed)| listed),
            cached: cached.unwrap_or_default(),
        });
    }

    /// An inspection has ended. An error means that the runtime could not even list the pod.
    pub fn on_inspected(
        &mut self,
        uid: &PodUid,
        result: Result<Inspected, String>,
        now: Timestamp,
    ) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let Some(inspection) = entry.in_flight.take() else {
            return;
        };
        self.in_flight -= 1;
        match result {
            // What the lists say of a new id was not requested.
            Ok(inspected) if inspection.requested.is_some() && inspected.fresh.has_errors() => {
                entry.pending.fresh = true;
                entry.pending.queued = true;
                entry.pending.tokens.extend(inspection.tokens);
            }
            Ok(inspected) => self.apply(uid, inspection, inspected, now),
            Err(error) => self.on_inspect_failed(uid, inspection, error, now),
        }
        self.check_initial_sync();
        self.requeue_pending(uid);
    }

    fn on_inspect_failed(
        &mut self,
        uid: &PodUid,
        inspection: Inspection,
        error: String,
        now: Timestamp,
    ) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        entry.suspect = true;
        entry.failures += 1;
        // The initial sync starts over: a listed pod could not be inspected.
        if matches!(self.sync, InitialSync::Listed(_)) {
            self.sync = InitialSync::NotListed;
            self.relist_due = self.relist_due.min(now.plus(RETRY.delay(1)));
        }
        if entry.status.is_none() && !entry.pending.queued {
            self.pods.remove(uid);
        } else {
            let at = now.plus(RETRY.delay(entry.failures));
            self.inspect_at(uid, at);
        }
        self.respond(uid, inspection.tokens, Err(error));
    }

    /// Takes what an inspection has found.
    pub(super) fn apply(
        &mut self,
        uid: &PodUid,
        inspection: Inspection,
        inspected: Inspected,
        now: Timestamp,
    ) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        if inspection.requested.is_some() {
            entry.last_change = inspection.sequence;
        } else {
            entry.last_inspection = Some((inspection.sequence, inspection.began));
            if let InitialSync::Listed(left) = &mut self.sync {
                left.remove(uid);
            }
        }
        let checks = std::mem::take(&mut entry.oom_checks);
        entry.oom_checks = inspection::oom_checks(checks, &inspected, inspection.statuses_at);
        let previous = entry.status.take();
        for id in previous.iter().flat_map(ids) {
            self.owners.remove(id);
        }
        if inspected.listed.is_empty() {
            entry.suspect = false;
            entry.failures = 0;
            entry.exit_poll.clear();
            entry.due = None;
            if previous.is_some() {
                self.publish(uid, None, inspection.tokens.clone(), now);
            }
            self.respond(uid, inspection.tokens, Ok(()));
            return;
        }
        let status = inspection::merge(previous.as_ref(), inspected);
        for id in ids(&status) {
            self.owners.insert(id.to_owned(), uid.clone());
        }
        let changed = previous.is_none_or(|previous| previous != status);
        entry.suspect = !status.inspect_error.is_empty();
        entry.failures = if entry.suspect { entry.failures + 1 } else { 0 };
        let retry = entry.suspect.then(|| now.plus(RETRY.delay(entry.failures)));
        // One that has failed waits for the retry.
        let check = entry.oom_checks.values().min().copied();
        let check = check.map(|at| retry.map_or(at, |retry| at.max(retry)));
        let requested = inspection.requested.as_ref();
        let is_requested = |id: &str| requested.is_none_or(|ids| ids.contains(id));
        let began = inspection.began;
        entry
            .exit_poll
            .on_inspected(&status, is_requested, began, now);
        entry.status = Some(status.clone());
        if changed {
            let tokens = inspection.tokens.clone();
            self.publish(uid, Some(Box::new(status)), tokens, now);
        } else {
            self.set_cause(uid, &inspection.tokens, now);
        }
        self.respond(uid, inspection.tokens, Ok(()));
        for at in retry.into_iter().chain(check) {
            self.inspect_at(uid, at);
        }
    }

    /// Attributes a change that was published without a cause to the callers that refresh the pod.
    pub(super) fn set_cause(&mut self, uid: &PodUid, tokens: &[u64], now: Timestamp) {
        let entry = self.pods.get_mut(uid);
        let published = entry.and_then(|entry| entry.published_without_cause.take());
        if published.is_some_and(|at| now <= at.plus(CAUSE_WINDOW)) && !tokens.is_empty() {
            self.actions.push(Action::SetCause {
                uid: uid.clone(),
                tokens: tokens.to_vec(),
            });
        }
    }

    fn publish(
        &mut self,
        uid: &PodUid,
        status: Option<Box<PodStatus>>,
        tokens: Vec<u64>,
        now: Timestamp,
    ) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.published_without_cause = tokens.is_empty().then_some(now);
        }
        self.actions.push(Action::Publish {
            uid: uid.clone(),
            status,
            tokens,
        });
    }

    pub(super) fn respond(&mut self, uid: &PodUid, tokens: Vec<u64>, result: Result<(), String>) {
        if !tokens.is_empty() {
            self.actions.push(Action::Respond {
                uid: uid.clone(),
                tokens,
                result,
            });
        }
    }

    // Queues what was requested while the inspection was in flight.
    fn requeue_pending(&mut self, uid: &PodUid) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let pending = &mut entry.pending;
        let last = entry.last_inspection.map_or(0, |(sequence, _)| sequence);
        let outdated = pending.listed.as_ref().is_some_and(|(sequence, listed)| {
            let same = matches_list(entry.status.as_ref(), listed);
            *sequence < last || (same && !entry.suspect)
        });
        if outdated {
            pending.listed = None;
        }
        // A list that is older than the changes may show others.
        let last_change = entry.last_change;
        if pending
            .listed
            .as_ref()
            .is_some_and(|(s, _)| *s < last_change)
        {
            pending.fresh = true;
        }
        if pending.is_empty() {
            pending.queued = false;
            self.rearm(uid);
            self.forget_if_unknown(uid);
        } else {
            self.ready.push_back(uid.clone());
        }
    }

    /// The kernel reported the exit of a container's process; the runtime will notice soon.
    pub fn on_process_exited(&mut self, id: &str, now: Timestamp) {
        let events = self.period.has_events();
        let Some(uid) = self.owners.get(id).cloned() else {
            return;
        };
        let Some(entry) = self.pods.get_mut(&uid) else {
            return;
        };
        let status = entry.status.as_ref();
        if status.is_some_and(|status| entry.exit_poll.add(status, id, events, now)) {
            self.rearm(&uid);
        }
    }

    /// Requests what is due of a pod.
    pub(super) fn on_due(&mut self, uid: &PodUid, now: Timestamp) {
        let synced = self.is_synced();
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        if let Some(at) = self.late_events.busy_at() {
            entry.exit_poll.delay_due(at, now);
        }
        let is_due = entry.due.is_some_and(|due| due <= now);
        let mut changes = entry.deferred.take_due(now);
        let polled = entry.late_exits(now);
        if !polled.is_empty() && self.period.has_events() {
            self.late_events.on_exit_asked(now);
        }
        changes.extend(polled);
        if is_due || entry.suspect || entry.status.is_none() || !synced {
            self.request_fresh(uid, false);
        } else if changes.is_empty() {
            self.rearm(uid);
        } else {
            for change in changes {
                entry.pending.changes.add(change, None);
            }
            self.enqueue(uid, true);
        }
    }

    /// Sets when the pod is due, from everything that it waits for.
    pub(super) fn rearm(&mut self, uid: &PodUid) {
        if let Some(entry) = self.pods.get(uid).filter(|e| !e.pending.queued) {
            self.delayed.set_opt(uid.clone(), entry.next_due());
        }
    }

    /// Drops the entry of a pod that the runtime does not have, unless something is requested.
    pub(super) fn forget_if_unknown(&mut self, uid: &str) {
        let unknown = |entry: &Entry| {
            entry.status.is_none()
                && entry.in_flight.is_none()
                && entry.pending.is_empty()
                && entry.next_due().is_none()
        };
        if self.pods.get(uid).is_some_and(|entry| unknown(entry)) {
            self.pods.remove(uid);
        }
    }

    /// Inspects changes: those that the status does not show yet and no event has described.
    pub(super) fn start_change_inspection(
        &mut self,
        uid: &PodUid,
        mut pending: PendingInspect,
        now: Timestamp,
    ) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let status = entry.status.as_ref();
        pending.changes.retain_unseen(status);
        if pending.changes.is_empty() {
            self.set_cause(uid, &pending.tokens, now);
            self.respond(uid, pending.tokens, Ok(()));
            self.rearm(uid);
            self.forget_if_unknown(uid);
            return;
        }
        let changes = pending.changes.into_inspection(&pending.pod, status);
        self.sequence += 1;
        let is_known = changes.requested.is_empty();
        let inspection = Inspection {
            sequence: self.sequence,
            began: now,
            statuses_at: now,
            requested: Some(changes.requested),
            tokens: pending.tokens,
        };
        if is_known {
            self.apply(uid, inspection, changes.inspected, now);
            self.rearm(uid);
            self.forget_if_unknown(uid);
            return;
        }
        entry.in_flight = Some(inspection);
        self.in_flight += 1;
        self.delayed.cancel(uid);
        self.actions.push(Action::Inspect {
            uid: uid.clone(),
            listed: Some(changes.inspected.listed),
            cached: changes.cached,
        });
    }
}
