use super::*;
use crate::core::ContainerStatus;
use RuntimeEventKind::{Created, Deleted, Started, Stopped};

fn change(id: &str, sandbox_id: &str, kind: RuntimeEventKind) -> RecordChange {
    RecordChange {
        id: id.to_owned(),
        sandbox_id: sandbox_id.to_owned(),
        kind,
    }
}

fn sandbox(ready: bool, ips: &[&str]) -> SandboxStatus {
    SandboxStatus {
        id: "s".to_owned(),
        ready,
        ips: ips.iter().map(|ip| (*ip).to_owned()).collect(),
        ..Default::default()
    }
}

fn status(sandboxes: &[SandboxStatus], containers: &[(&str, ContainerPhase)]) -> PodStatus {
    let containers = containers.iter();
    PodStatus {
        sandboxes: sandboxes.to_vec(),
        containers: containers
            .map(|(id, phase)| ContainerStatus::new(id, *phase))
            .collect(),
        ..Default::default()
    }
}

#[test]
fn a_container_shows_its_own_state_and_earlier_ones() {
    use ContainerPhase::{Created as InCreated, Exited, Running, Unknown};
    let cases = [
        (None, [false, false, false, true]),
        (Some(InCreated), [true, false, false, false]),
        (Some(Running), [true, true, false, false]),
        (Some(Exited), [true, true, true, false]),
        (Some(Unknown), [true, false, false, false]),
    ];
    for (phase, expected) in cases {
        let containers: Vec<_> = phase.map(|phase| ("c", phase)).into_iter().collect();
        let status = status(&[], &containers);
        let shown = [Created, Started, Stopped, Deleted]
            .map(|kind| change("c", "s", kind).is_shown_by(Some(&status)));
        assert_eq!(shown, expected, "{phase:?}");
    }
    assert!(change("c", "s", Deleted).is_shown_by(None));
    assert!(!change("c", "s", Created).is_shown_by(None));
}

#[test]
fn a_ready_sandbox_shows_its_creation_once_it_has_an_address() {
    let cases = [
        (vec![], [false, false, false, true]),
        (vec![sandbox(true, &[])], [false, false, false, false]),
        (
            vec![sandbox(true, &["10.0.0.1"])],
            [true, true, false, false],
        ),
        (vec![sandbox(false, &[])], [true, true, true, false]),
    ];
    for (sandboxes, expected) in cases {
        let status = status(&sandboxes, &[]);
        let shown = [Created, Started, Stopped, Deleted]
            .map(|kind| change("s", "s", kind).is_shown_by(Some(&status)));
        assert_eq!(shown, expected, "{sandboxes:?}");
    }
}

#[test]
fn only_changed_ids_are_requested() {
    let status = status(
        &[sandbox(true, &["10.0.0.1"])],
        &[
            ("a", ContainerPhase::Running),
            ("b", ContainerPhase::Running),
        ],
    );
    let mut changes = RecordChanges::default();
    changes.add(change("a", "s", Stopped), None);
    changes.add(change("b", "s", Deleted), None);
    changes.add(change("c", "s", Started), None);
    changes.add(change("c", "s", Created), None);
    let inspection = changes.into_inspection(&PodIdentity::default(), Some(&status));
    let targets = inspection::inspect_targets(&inspection.inspected.listed, &inspection.cached);
    assert!(targets.sandboxes.is_empty(), "{targets:?}");
    assert_eq!(targets.containers, ["a", "c"]);
    let requested: Vec<_> = inspection.requested.iter().map(String::as_str).collect();
    assert_eq!(requested, ["a", "c"]);
    let listed = inspection.inspected.listed.containers;
    assert_eq!(listed.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(listed["c"].sandbox_id, "s");
}

#[test]
fn the_status_of_an_event_is_used_only_if_it_answers_everything() {
    let event = sandbox(true, &["10.0.0.1"]);
    for (other, requested) in [(None, vec![]), (Some("c"), vec!["c", "s"])] {
        let mut changes = RecordChanges::default();
        changes.add(change("s", "s", Created), Some(event.clone()));
        if let Some(other) = other {
            changes.add(change(other, "s", Started), None);
        }
        let inspection = changes.into_inspection(&PodIdentity::default(), None);
        let known = inspection.inspected.fresh.sandboxes.contains_key("s");
        assert_eq!(known, requested.is_empty());
        assert_eq!(Vec::from_iter(inspection.requested), requested);
    }
    // Without an address, and one that says that the sandbox still runs.
    for (kind, event) in [(Created, sandbox(true, &[])), (Stopped, event)] {
        let mut changes = RecordChanges::default();
        changes.add(change("s", "s", kind), Some(event));
        let inspection = changes.into_inspection(&PodIdentity::default(), None);
        assert_eq!(Vec::from_iter(inspection.requested), ["s"], "{kind:?}");
    }
}
