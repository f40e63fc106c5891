//! Changes that wait, and what they make due.

use super::*;

/// A client that changes a pod refreshes it next. An event of such a change waits this long for the
/// refresh, whose trace the change belongs to.
pub(super) const REFRESH_GRACE: Duration = Duration::from_millis(500);
/// A client that creates a container starts it next, and refreshes the pod after that. Nobody waits
/// for the status of one that was only created.
pub(super) const START_GRACE: Duration = Duration::from_secs(10);

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

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.0.values().map(|deferred| deferred.due).min()
    }

    /// Adds a change to those that wait. An earlier one of the same id is part of it.
    pub(super) fn add(
        &mut self,
        change: RecordChange,
        sandbox: Option<SandboxStatus>,
        due: Timestamp,
    ) {
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
    pub(super) fn take(&mut self, id: &str) -> Option<SandboxStatus> {
        let taken = self.0.remove(id);
        if self.0.is_empty() {
            // Else room for eleven stays allocated, of each pod at rest.
            self.0.clear();
        }
        taken.and_then(|deferred| deferred.sandbox)
    }

    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<RecordChange> {
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
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        // After an incomplete inspection everything is inspected, not before its backoff.
        let changes = [self.deferred.next_due(), self.exit_poll.next_due()];
        let changes = changes.into_iter().flatten().filter(|_| !self.suspect);
        changes.chain(self.due).min()
    }

    /// The exits whose event has not come and that the runtime is to be asked about.
    pub(super) fn late_exits(&self, now: Timestamp) -> Vec<RecordChange> {
        let exits = self.exit_poll.due(now).filter_map(|id| {
            let containers = self.status.iter().flat_map(|status| &status.containers);
            let container = containers.into_iter().find(|c| c.id == id)?;
            Some(RecordChange {
                id: id.to_owned(),
                sandbox_id: container.sandbox_id.clone(),
                kind: RuntimeEventKind::Stopped,
            })
        });
        exits.collect()
    }

    /// The change that an event reports, if the sandbox that it concerns is known.
    pub(super) fn change_of(&self, event: &RuntimeEvent) -> Option<RecordChange> {
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
