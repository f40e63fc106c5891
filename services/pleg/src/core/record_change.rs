use std::collections::{BTreeMap, BTreeSet};

use polylet_model::status::ContainerPhase;

use super::inspection::{self, CachedStatuses, FreshStatuses, Inspected};
use super::listing::{ListedContainer, ListedPod, ListedSandbox};
use super::status::{PodIdentity, PodStatus, SandboxStatus};

/// What has happened to a sandbox or container, in the order in which it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuntimeEventKind {
    /// Created, which one of our services did.
    Created,
    /// Started, which one of our services did.
    Started,
    /// The process has ended.
    Stopped,
    /// The record is gone.
    Deleted,
}

/// A change of one sandbox or container, as its caller or an event of the runtime reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    /// The id of the sandbox or container.
    pub id: String,
    /// The id of the container's sandbox, or of the sandbox itself.
    pub sandbox_id: String,
    pub kind: RuntimeEventKind,
}

impl RecordChange {
    /// Whether the status shows the change. None of them is ever reversed: an id returns to no
    /// earlier state, so that a status that shows a change once need not be requested for it again.
    pub(super) fn is_shown_by(&self, status: Option<&PodStatus>) -> bool {
        let sandbox = status.and_then(|s| s.sandboxes.iter().find(|s| s.id == self.id));
        let container = status.and_then(|s| s.containers.iter().find(|c| c.id == self.id));
        let phase = container.map(|container| container.phase);
        match self.kind {
            RuntimeEventKind::Deleted => sandbox.is_none() && container.is_none(),
            RuntimeEventKind::Created | RuntimeEventKind::Started if self.is_sandbox() => {
                sandbox.is_some_and(inspection::is_final)
            }
            RuntimeEventKind::Stopped if self.is_sandbox() => sandbox.is_some_and(|s| !s.ready),
            RuntimeEventKind::Created => container.is_some(),
            RuntimeEventKind::Started => {
                matches!(
                    phase,
                    Some(ContainerPhase::Running | ContainerPhase::Exited)
                )
            }
            RuntimeEventKind::Stopped => phase == Some(ContainerPhase::Exited),
        }
    }

    fn is_sandbox(&self) -> bool {
        self.id == self.sandbox_id
    }

    /// The phase to expect of the container, which only decides what is requested.
    fn phase(&self) -> ContainerPhase {
        match self.kind {
            RuntimeEventKind::Created | RuntimeEventKind::Started => ContainerPhase::Running,
            RuntimeEventKind::Stopped | RuntimeEventKind::Deleted => ContainerPhase::Exited,
        }
    }

    /// Whether the status of an event makes a request for it unnecessary.
    fn is_answered_by(&self, status: &SandboxStatus) -> bool {
        match self.kind {
            RuntimeEventKind::Created | RuntimeEventKind::Started => inspection::is_final(status),
            RuntimeEventKind::Stopped => !status.ready,
            RuntimeEventKind::Deleted => false,
        }
    }
}

/// Changes of one pod that its status may not show yet, one for each id: the last one includes all
/// earlier ones.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordChanges(BTreeMap<String, (RecordChange, Option<SandboxStatus>)>);

/// What has to be requested because of changes, and what is known without a request.
#[derive(Debug)]
pub(super) struct ChangeInspection {
    pub(super) inspected: Inspected,
    pub(super) cached: CachedStatuses,
    /// The ids whose status has to be requested.
    pub(super) requested: BTreeSet<String>,
}

impl RecordChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a change, with the sandbox's status that its event had.
    pub(super) fn add(&mut self, change: RecordChange, status: Option<SandboxStatus>) {
        let present = self.0.get(&change.id);
        if present.is_none_or(|(present, _)| present.kind <= change.kind) {
            let status = status.filter(|status| {
                change.is_sandbox() && status.id == change.id && change.is_answered_by(status)
            });
            let id = change.id.clone();
            let earlier = self.0.remove(&id).and_then(|(_, status)| status);
            let earlier = earlier.filter(|status| change.is_answered_by(status));
            self.0.insert(id, (change, status.or(earlier)));
        }
    }

    /// Drops the changes that the status shows.
    pub(super) fn retain_unseen(&mut self, status: Option<&PodStatus>) {
        self.0.retain(|_, (change, _)| !change.is_shown_by(status));
    }

    /// The inspection of a pod, of which `status` is known, for these changes alone. What events
    /// have said is used only if it makes all requests unnecessary.
    pub(super) fn into_inspection(
        self,
        pod: &PodIdentity,
        status: Option<&PodStatus>,
    ) -> ChangeInspection {
        let mut listed = status.map(ListedPod::from).unwrap_or_default();
        if status.is_none() {
            listed.pod = pod.clone();
        }
        let mut cached = CachedStatuses::from(&listed);
        let mut fresh = FreshStatuses::default();
        let mut requested = BTreeSet::new();
        let is_known = |(change, sandbox): &(RecordChange, Option<SandboxStatus>)| {
            change.kind == RuntimeEventKind::Deleted || sandbox.is_some()
        };
        let all_known = self.0.values().all(is_known);
        for (id, (change, sandbox)) in self.0 {
            let sandbox = sandbox.filter(|_| all_known);
            cached.remove(&id);
            if change.kind == RuntimeEventKind::Deleted {
                listed.sandboxes.remove(&id);
                listed.containers.remove(&id);
            } else if let Some(sandbox) = sandbox {
                let entry = ListedSandbox {
                    ready: sandbox.ready,
                    attempt: sandbox.attempt,
                    created_at: sandbox.created_at,
                };
                listed.sandboxes.insert(id.clone(), entry);
                fresh.sandboxes.insert(id, Ok(sandbox));
            } else if change.is_sandbox() {
                let ready = change.kind != RuntimeEventKind::Stopped;
                let entry = ListedSandbox {
                    ready,
                    attempt: 0,
                    created_at: None,
                };
                let entry = listed.sandboxes.entry(id.clone()).or_insert(entry);
                entry.ready = ready;
                requested.insert(id);
            } else {
                let phase = change.phase();
                let entry = ListedContainer {
                    phase,
                    sandbox_id: change.sandbox_id,
                    name: String::new(),
                    attempt: 0,
                    created_at: None,
                };
                let entry = listed.containers.entry(id.clone()).or_insert(entry);
                entry.phase = phase;
                requested.insert(id);
            }
        }
        ChangeInspection {
            inspected: Inspected { listed, fresh },
            cached,
            requested,
        }
    }
}

#[cfg(test)]
#[path = "record_change_tests.rs"]
mod tests;
