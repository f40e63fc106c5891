use jiff::Timestamp;

use super::{RuntimeContainer, StatusInputs, lookup, readiness};
use crate::pod::{ContainerKind, is_sidecar};
use crate::probe::ProbeKind;

/// The times of the facts that conditions follow from.
pub(super) struct TransitionTimes<'a> {
    facts: &'a StatusInputs<'a>,
    /// When the node first saw the pod.
    pub(super) seen: Option<Timestamp>,
}

impl<'a> TransitionTimes<'a> {
    pub(super) fn new(facts: &'a StatusInputs<'a>) -> Self {
        let manifest = facts.manifest;
        // The manifest's times first, as they are known from the start.
        let seen = manifest
            .seen_at()
            .or_else(|| manifest.creation_timestamp())
            .or(facts.acknowledged_at);
        Self { facts, seen }
    }

    fn newest(&self, name: &str) -> Option<&'a RuntimeContainer> {
        lookup::by_name(self.facts, name).next()
    }

    fn result_since(&self, container: &RuntimeContainer, kind: ProbeKind) -> Option<Timestamp> {
        readiness::probe_result(self.facts, container, kind)?.since
    }

    /// Of `PodReadyToStartContainers`.
    pub(super) fn sandbox(&self, is_true: bool) -> Option<Timestamp> {
        let created_at = self
            .facts
            .sandboxes
            .first()
            .and_then(|sandbox| sandbox.created_at);
        match (is_true, created_at) {
            (true, created_at) => created_at.or(self.seen),
            (false, None) => self.seen,
            // It was ready: its containers stopped with it.
            (false, created_at) => created_at.max(self.last_exit()),
        }
    }

    /// The last exit of any container.
    pub(super) fn last_exit(&self) -> Option<Timestamp> {
        self.facts
            .containers
            .iter()
            .filter_map(|container| container.finished_at)
            .max()
    }

    /// Of `Initialized`.
    pub(super) fn initialized(&self, is_true: bool) -> Option<Timestamp> {
        let completed = self
            .facts
            .manifest
            .init_containers()
            .iter()
            .filter_map(|init| {
                let container = self.newest(&init.name)?;
                if is_sidecar(init) {
                    self.result_since(container, ProbeKind::Startup)
                        .max(container.started_at)
                } else {
                    container.finished_at
                }
            });
        if is_true {
            completed.max().or(self.seen)
        } else {
            self.seen
        }
    }

    /// Of `Ready` and `ContainersReady`.
    pub(super) fn ready(&self, is_true: bool) -> Option<Timestamp> {
        let decided = self.facts.terminal.and_then(|terminal| terminal.decided_at);
        let containers = self.facts.manifest.all_containers();
        let containers = containers
            .filter(|(kind, _)| matches!(kind, ContainerKind::Regular | ContainerKind::Sidecar));
        let changes = containers.filter_map(|(_, spec)| {
            let container = self.newest(&spec.name)?;
            let startup = self.result_since(container, ProbeKind::Startup);
            let readiness = self.result_since(container, ProbeKind::Readiness);
            if is_true {
                container.started_at.max(startup).max(readiness)
            } else {
                // Not ready since its exit, or since a probe failed.
                container
                    .finished_at
                    .or_else(|| self.failing_since(container))
                    .or(container.started_at)
            }
        });
        let changed = changes.max();
        if is_true {
            changed.or(self.seen)
        } else {
            changed.max(decided).or(self.seen)
        }
    }

    /// When a probe of the container failed last.
    fn failing_since(&self, container: &RuntimeContainer) -> Option<Timestamp> {
        let results = self.facts.probe_results.iter();
        results
            .filter(|result| result.container_id == container.id && !result.success)
            .filter_map(|result| result.since)
            .max()
    }
}
