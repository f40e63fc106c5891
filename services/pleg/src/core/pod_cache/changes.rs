//! Changes that callers and events report: only what they concern is inspected.

use super::*;

/// A client that changes a pod refreshes it next. An event of such a change waits this long for the
/// refresh, whose trace the change belongs to.
const REFRESH_GRACE: Duration = Duration::from_millis(500);
/// A client that creates a container starts it next, and refreshes the pod after that. Nobody waits
/// for the status of one that was only created.
const START_GRACE: Duration = Duration::from_secs(10);

/// Changes that were reported by events, and when they are inspected without a refresh.
#[derive(Debug, Default)]
pub(super) struct DeferredChanges(BTreeMap<String, DeferredChange>);

#[derive(Debug)]
struct DeferredChange {
    change: RecordChange,
    /// The status that the event had: enough for the client that has just made the change, which
    /// knows that nothing else has happened to the sandbox since. Events may be old.
    sandbox: Option<SandboxStatus>,
    due: Timestamp,
}

impl DeferredChanges {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.0.values().map(|deferred| deferred.due).min()
    }

    /// Adds a change to those that wait. An earlier one of the same id is part of it.
    fn add(&mut self, change: RecordChange, sandbox: Option<SandboxStatus>, due: Timestamp) {
        let present = self.0.get(&change.id);
        if present.is_none_or(|present| present.change.kind <= change.kind) {
            let deferred = DeferredChange {
                change: change.clone(),
                sandbox,
                due,
            };
            self.0.insert(change.id, deferred);
        }
    }

    /// Removes what waits for an id, and returns the status that its event had.
    fn take(&mut self, id: &str) -> Option<SandboxStatus> {
        self.0.remove(id).and_then(|deferred| deferred.sandbox)
    }

    fn take_due(&mut self, now: Timestamp) -> Vec<RecordChange> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (due, later): (BTreeMap<_, _>, _) = all.partition(|(_, one)| one.due <= now);
        self.0 = later;
        due.into_values().map(|deferred| deferred.change).collect()
    }
}

impl PendingInspect {
    /// Whether nothing is requested.
    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_none() && !self.fresh && self.tokens.is_empty() && self.changes.is_empty()
    }
}

impl Entry {
    /// Whether the pending changes are all that has to be inspected.
    pub(super) fn can_inspect_changes(&self, pending: &PendingInspect) -> bool {
        let only_changes = !pending.fresh && !pending.force && pending.listed.is_none();
        let is_named = self.status.is_some() || !pending.pod.uid.is_empty();
        only_changes && is_named && !self.suspect
    }

    /// When something is due without an input.
    fn next_due(&self) -> Option<Timestamp> {
        // After an incomplete inspection everything is inspected, not before its backoff.
        let changes = [self.deferred.next_due(), self.exit_poll.next_due()];
        let changes = changes.into_iter().flatten().filter(|_| !self.suspect);
        changes.chain(self.due).min()
    }

    /// The change that an event reports, if the sandbox that it concerns is known.
    fn change_of(&self, event: &RuntimeEvent) -> Option<RecordChange> {
        let cached = || {
            let status = self.status.as_ref()?;
            let container = status.containers.iter().find(|c| c.id == event.id);
            let sandbox = status.sandboxes.iter().find(|s| s.id == event.id);
            container
                .map(|container| container.sandbox_id.clone())
                .or(sandbox.map(|sandbox| sandbox.id.clone()))
        };
        let sandbox_id = match event.kind {
            RuntimeEventKind::Deleted => String::new(),
            _ => event
                .sandbox
                .as_ref()
                .map(|sandbox| sandbox.id.clone())
                .or_else(cached)?,
        };
        Some(RecordChange {
            id: event.id.clone(),
            sandbox_id,
            kind: event.kind,
        })
    }
}

impl PodCache {
    /// A caller requests the pod's status after changes that it has made. What else is cached is not
    /// inspected, unless the cache is incomplete.
    pub fn refresh_changes(&mut self, pod: &PodIdentity, changes: Vec<RecordChange>, token: u64) {
        let entry = self.pods.entry(pod.uid.clone()).or_default();
        let pending = &mut entry.pending;
        pending.tokens.push(token);
        pending.pod.clone_from(pod);
        for change in changes {
            let sandbox = entry.deferred.take(&change.id);
            pending.changes.add(change, sandbox);
        }
        self.enqueue(&pod.uid, true);
    }

    /// Takes an event of the runtime.
    pub fn handle_event(&mut self, event: RuntimeEvent, now: Timestamp) {
        let owner = || self.owners.get(&event.id).cloned();
        let uid = event.pod.as_ref().map(|pod| pod.uid.clone());
        let Some(uid) = uid.or_else(owner) else {
            // Only the end of an unknown sandbox or container can be ignored.
            if event.kind <= RuntimeEventKind::Started {
                self.request_relist(now);
            }
            return;
        };
        self.without_event.remove(&uid);
        let synced = self.is_synced();
        let entry = self.pods.entry(uid.clone()).or_default();
        let complete = entry.in_flight.as_ref().filter(|i| i.requested.is_none());
        let began = complete.map(|inspection| inspection.began);
        let began = began.max(entry.last_inspection.map(|(_, began)| began));
        // An inspection that began after the event has seen the change.
        if event.at.is_some_and(|at| began.is_some_and(|b| b > at)) {
            return;
        }
        match entry.change_of(&event) {
            Some(change) if synced && !entry.suspect => {
                self.on_change_event(&uid, change, event.sandbox, now);
            }
            _ if event.kind <= RuntimeEventKind::Started => {
                self.inspect_at(&uid, now.plus(REFRESH_GRACE));
            }
            _ => self.request_fresh(&uid, true),
        }
    }

    fn on_change_event(
        &mut self,
        uid: &str,
        change: RecordChange,
        sandbox: Option<SandboxStatus>,
        now: Timestamp,
    ) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let idle = entry.in_flight.is_none() && !entry.pending.queued;
        if idle && change.is_shown_by(entry.status.as_ref()) {
            entry.deferred.take(&change.id);
            self.rearm(uid);
            self.forget_if_unknown(uid);
            return;
        }
        let is_container = change.id != change.sandbox_id;
        match change.kind {
            RuntimeEventKind::Created if is_container => {
                entry.deferred.add(change, None, now.plus(START_GRACE));
                self.rearm(uid);
            }
            RuntimeEventKind::Created | RuntimeEventKind::Started => {
                entry.deferred.add(change, sandbox, now.plus(REFRESH_GRACE));
                self.rearm(uid);
            }
            RuntimeEventKind::Stopped | RuntimeEventKind::Deleted => {
                entry.deferred.take(&change.id);
                // The status of a sandbox that is not cached may be older than its removal.
                let status = entry.status.as_ref();
                let is_cached = |s: &SandboxStatus| {
                    status.is_some_and(|status| status.sandboxes.iter().any(|c| c.id == s.id))
                };
                let sandbox = sandbox.filter(is_cached);
                entry.pending.changes.add(change, sandbox);
                self.enqueue(uid, true);
            }
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
    pub(super) fn on_due(&mut self, uid: &str, now: Timestamp) {
        let synced = self.is_synced();
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let is_due = entry.due.is_some_and(|due| due <= now);
        let mut changes = entry.deferred.take_due(now);
        let polled = entry.exit_poll.due(now).filter_map(|id| {
            let containers = entry.status.iter().flat_map(|status| &status.containers);
            let container = containers.into_iter().find(|c| c.id == id)?;
            Some(RecordChange {
                id: id.to_owned(),
                sandbox_id: container.sandbox_id.clone(),
                kind: RuntimeEventKind::Stopped,
            })
        });
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
    pub(super) fn rearm(&mut self, uid: &str) {
        if let Some(entry) = self.pods.get(uid).filter(|e| !e.pending.queued) {
            self.delayed.set_opt(uid.to_owned(), entry.next_due());
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
        if self.pods.get(uid).is_some_and(unknown) {
            self.pods.remove(uid);
        }
    }

    /// Inspects changes: those that the status does not show yet and no event has described.
    pub(super) fn start_change_inspection(
        &mut self,
        uid: &str,
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
        self.delayed.cancel(&uid.to_owned());
        self.actions.push(Action::Inspect {
            uid: uid.to_owned(),
            listed: Some(changes.inspected.listed),
            cached: changes.cached,
        });
    }
}
