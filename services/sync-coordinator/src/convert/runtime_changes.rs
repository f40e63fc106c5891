//! The changes that pleg has to inspect for a refresh.

use polylet_wire::pleg::v1::{RuntimeChange, RuntimeChangeKind};

use crate::core::runtime_state::{PendingEffect, PodRuntimeState};
use crate::core::view::PodSyncStatus;

/// The effects that the reported state may not show yet. None, that is everything, while the pod has not
/// been inspected completely, or if the outcome of a creation was unknown.
pub(crate) fn pending_changes(pod: &PodSyncStatus) -> Vec<RuntimeChange> {
    let observed = pod.observed.as_deref().filter(|o| !o.is_partial());
    let unknown_sandbox = pod.min_sandbox_attempt > 0;
    let Some(observed) = observed.filter(|_| !pod.awaits_inspection && !unknown_sandbox) else {
        return Vec::new();
    };
    let effects = pod.pending_effects.iter();
    let changes: Option<Vec<_>> = effects
        .map(|(_, effect)| pending_change(observed, effect))
        .collect();
    changes.unwrap_or_default()
}

fn pending_change(observed: &PodRuntimeState, effect: &PendingEffect) -> Option<RuntimeChange> {
    let (id, sandbox_id, kind) = match effect {
        PendingEffect::SandboxCreated(s) => (&s.id, &s.id, RuntimeChangeKind::Created),
        PendingEffect::SandboxStopped(id) => (id, id, RuntimeChangeKind::Stopped),
        PendingEffect::SandboxRemoved(id) => (id, id, RuntimeChangeKind::Removed),
        PendingEffect::ContainerCreated(c) => (&c.id, &c.sandbox_id, RuntimeChangeKind::Created),
        PendingEffect::ContainerStarted(id, _) => {
            let container = observed.container(id)?;
            (id, &container.sandbox_id, RuntimeChangeKind::Started)
        }
        // Its sandbox does not matter any more.
        PendingEffect::ContainerRemoved(id) => (id, id, RuntimeChangeKind::Removed),
    };
    Some(change(id, sandbox_id, kind))
}

/// The stop of a container; none, that is everything, if it is not known.
pub(crate) fn stopped_container(observed: &PodRuntimeState, id: &str) -> Vec<RuntimeChange> {
    let container = observed.container(id).into_iter();
    container
        .map(|container| change(id, &container.sandbox_id, RuntimeChangeKind::Stopped))
        .collect()
}

/// The creation of a sandbox.
pub(crate) fn created_sandbox(id: &str) -> Vec<RuntimeChange> {
    vec![change(id, id, RuntimeChangeKind::Created)]
}

fn change(id: &str, sandbox_id: &str, kind: RuntimeChangeKind) -> RuntimeChange {
    RuntimeChange {
        id: id.to_owned(),
        sandbox_id: sandbox_id.to_owned(),
        kind: kind.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use jiff::Timestamp;

    use super::*;
    use crate::core::runtime_state::SandboxRecord;

    fn sandbox() -> SandboxRecord {
        SandboxRecord {
            id: "s".to_owned(),
            attempt: 0,
            ready: true,
            ips: Vec::new(),
            host_network: false,
            created_at: None,
        }
    }

    fn pod(effects: Vec<PendingEffect>) -> PodSyncStatus {
        PodSyncStatus {
            observed: Some(Rc::new(PodRuntimeState::default())),
            pending_effects: (1..).zip(effects).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn pending_effects_are_the_changes() {
        let pod = pod(vec![
            PendingEffect::SandboxCreated(sandbox()),
            PendingEffect::ContainerRemoved("c".to_owned()),
            PendingEffect::SandboxStopped("s".to_owned()),
            PendingEffect::SandboxRemoved("s".to_owned()),
        ]);
        let changes = pending_changes(&pod);
        let kinds: Vec<_> = changes.iter().map(|c| (c.id.as_str(), c.kind())).collect();
        let expected = [
            ("s", RuntimeChangeKind::Created),
            ("c", RuntimeChangeKind::Removed),
            ("s", RuntimeChangeKind::Stopped),
            ("s", RuntimeChangeKind::Removed),
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn everything_is_inspected_unless_all_changes_are_known() {
        let removed = || vec![PendingEffect::SandboxRemoved("s".to_owned())];
        assert_eq!(pending_changes(&pod(removed())).len(), 1);
        let awaiting = PodSyncStatus {
            awaits_inspection: true,
            ..pod(removed())
        };
        let unknown_sandbox = PodSyncStatus {
            min_sandbox_attempt: 1,
            ..pod(removed())
        };
        let partial = PodSyncStatus {
            observed: Some(Rc::new(PodRuntimeState {
                inspect_error: "timed out".to_owned(),
                ..Default::default()
            })),
            ..pod(removed())
        };
        let unobserved = PodSyncStatus {
            observed: None,
            ..pod(removed())
        };
        // A container of which nothing is known but its start.
        let started = PendingEffect::ContainerStarted("c".to_owned(), Timestamp::UNIX_EPOCH);
        let unknown_container = pod(vec![started]);
        for pod in [
            awaiting,
            unknown_sandbox,
            partial,
            unobserved,
            unknown_container,
        ] {
            assert_eq!(pending_changes(&pod), [], "{pod:?}");
        }
    }
}
