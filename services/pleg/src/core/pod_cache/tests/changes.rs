use RuntimeEventKind::{Created, Deleted, Started, Stopped};

use super::*;
use crate::core::inspect_targets;

/// A synced cache with events, past the time in which lists are fast.
fn synced(world: &World) -> Harness {
    let mut harness = Harness::new();
    harness.complete_all(world);
    harness.cache.set_event_stream(true, at(0));
    harness.advance(10_000, world);
    harness
}

fn sandbox_event(uid: &str, kind: RuntimeEventKind, now: i64) -> RuntimeEvent {
    let sandbox = SandboxStatus {
        id: "s".to_owned(),
        ready: kind != Stopped,
        ips: vec!["10.0.0.1".to_owned()],
        ..Default::default()
    };
    RuntimeEvent {
        sandbox: Some(sandbox),
        ..event(uid, "s", kind, now)
    }
}

impl Harness {
    fn refresh_changes(&mut self, uid: &str, changes: &[(&str, RuntimeEventKind)], token: u64) {
        let changes = changes.iter().map(|(id, kind)| change(id, *kind));
        self.cache
            .refresh_changes(&identity(uid), changes.collect(), token);
        self.run_actions();
    }

    fn handle(&mut self, event: RuntimeEvent) {
        self.cache.handle_event(event, at(self.now));
        self.run_actions();
    }

    /// The ids whose status the only call in flight requests; `None` if it lists the pod.
    fn requested(&self) -> Option<Vec<String>> {
        match self.calls.as_slice() {
            [
                Action::Inspect {
                    listed: Some(listed),
                    cached,
                    ..
                },
            ] => Some(inspect_targets(listed, cached).containers),
            [Action::Inspect { listed: None, .. }] => None,
            other => panic!("not one inspection: {other:?}"),
        }
    }

    fn sandbox(&self, uid: &str) -> Option<&SandboxStatus> {
        self.published.get(uid)?.sandboxes.first()
    }
}

#[test]
fn refresh_after_changes_requests_only_their_status() {
    let mut harness = synced(&world(&[("p", "a", EXITED)]));
    let now = world(&[("p", "b", RUNNING)]);
    harness.refresh_changes("p", &[("a", Deleted), ("b", Started)], 1);
    assert_eq!(harness.requested().unwrap(), ["b"]);
    harness.complete_all(&now);
    assert_eq!(harness.published(), now);
    assert_eq!(harness.responses, [("p".to_owned(), vec![1], Ok(()))]);
}

#[test]
fn changes_that_are_known_cause_no_call() {
    let now = world(&[("p", "a", RUNNING)]);
    let mut harness = synced(&now);
    harness.refresh_changes("p", &[("a", Started), ("b", Deleted)], 1);
    assert!(harness.calls.is_empty());
    assert_eq!(harness.responses.len(), 1);
    for (id, kind) in [("a", Created), ("a", Started), ("b", Deleted)] {
        harness.handle(event("p", id, kind, harness.now));
        assert!(harness.calls.is_empty(), "{kind:?}");
    }
    harness.advance(5_000, &now);
    assert!(harness.cache.delayed.is_empty());
}

#[test]
fn removal_is_published_without_a_call() {
    let mut harness = synced(&world(&[("p", "a", EXITED), ("q", "b", EXITED)]));
    harness.refresh_changes("p", &[("a", Deleted)], 1);
    harness.handle(event("", "b", Deleted, harness.now));
    assert!(harness.calls.is_empty());
    assert_eq!(harness.published(), World::new());
    assert_eq!(harness.responses.len(), 1);
    harness.refresh_changes("p", &[("a", Deleted)], 2);
    assert_eq!(harness.responses.len(), 2, "the event was earlier");
    assert!(harness.cache.pods.is_empty());
}

#[test]
fn late_events_of_a_removed_pod_cause_no_call() {
    let mut harness = synced(&world(&[("p", "a", EXITED)]));
    let stopped = sandbox_event("p", Stopped, harness.now);
    harness.refresh_changes("p", &[("a", Deleted)], 1);
    harness.handle(stopped);
    assert!(harness.calls.is_empty());
    assert!(harness.cache.pods.is_empty());
}

#[test]
fn events_during_an_inspection_are_compared_with_its_result() {
    let mut now = world(&[("p", "a", RUNNING)]);
    let mut harness = synced(&now);
    harness.refresh_changes("p", &[("b", Started)], 1);
    harness.handle(event("p", "b", Started, harness.now));
    harness.handle(event("p", "a", Deleted, harness.now));
    now.insert("p".to_owned(), ("b".to_owned(), RUNNING));
    harness.complete(0, &now);
    assert!(harness.calls.is_empty());
    harness.advance(1_000, &now);
    assert_eq!(harness.published(), now);
}

#[test]
fn new_sandbox_is_known_from_the_event_that_its_creator_refers_to() {
    let mut harness = synced(&World::new());
    harness.handle(sandbox_event("p", Created, harness.now));
    harness.handle(sandbox_event("p", Started, harness.now));
    harness.now += 100;
    harness.cache.refresh_changes(
        &identity("p"),
        vec![RecordChange {
            sandbox_id: "s".to_owned(),
            ..change("s", Created)
        }],
        1,
    );
    harness.run_actions();
    assert!(harness.calls.is_empty());
    assert_eq!(harness.sandbox("p").unwrap().ips, ["10.0.0.1"]);
    assert_eq!(harness.responses.len(), 1);
    harness.handle(sandbox_event("p", Stopped, harness.now));
    assert!(harness.calls.is_empty());
    assert!(!harness.sandbox("p").unwrap().ready);
}

#[test]
fn event_that_nobody_refers_to_has_the_pod_inspected() {
    let mut harness = synced(&World::new());
    // Also one that is older than the sandbox's removal: its status is not used.
    harness.handle(sandbox_event("p", Started, harness.now));
    assert!(harness.calls.is_empty());
    harness.now += 500;
    harness.run_actions();
    assert_eq!(harness.requested(), None);
    harness.complete_all(&World::new());
    assert_eq!(harness.published(), World::new());
    assert!(harness.cache.pods.is_empty());
}

#[test]
fn created_container_waits_for_its_start() {
    let mut now = world(&[("p", "a", EXITED)]);
    let mut harness = synced(&now);
    let created = RuntimeEvent {
        sandbox: Some(SandboxStatus::default()),
        ..event("p", "b", Created, harness.now)
    };
    harness.handle(created.clone());
    harness.advance(5_000, &now);
    assert!(harness.calls.is_empty());
    now.insert("p".to_owned(), ("b".to_owned(), RUNNING));
    harness.refresh_changes("p", &[("b", Started), ("a", Deleted)], 1);
    harness.complete_all(&now);
    assert!(harness.cache.delayed.is_empty(), "part of the refresh");
    harness.handle(RuntimeEvent {
        id: "c".to_owned(),
        ..created
    });
    harness.now += 10_000;
    harness.run_actions();
    assert_eq!(harness.requested().unwrap(), ["c"], "nobody has started it");
}

#[test]
fn failed_status_has_everything_inspected() {
    let now = world(&[("p", "a", RUNNING)]);
    let mut harness = synced(&now);
    harness.refresh_changes("p", &[("b", Started)], 1);
    let mut failed = Inspected::default();
    let error = Err("timed out".to_owned());
    failed.fresh.containers.insert("b".to_owned(), error);
    harness.calls.clear();
    harness
        .cache
        .on_inspected(&"p".into(), Ok(failed), at(harness.now));
    harness.run_actions();
    assert!(harness.responses.is_empty());
    assert_eq!(harness.published(), now);
    assert_eq!(harness.requested(), None);
}

#[test]
fn list_that_is_older_than_a_change_loses_nothing() {
    let mut now = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.complete_all(&now);
    harness.now = 1_000;
    harness.world = now.clone();
    harness.run_actions();
    harness.refresh_changes("p", &[("a", Deleted), ("b", Started)], 1);
    now.insert("p".to_owned(), ("b".to_owned(), RUNNING));
    harness.complete(1, &now);
    harness.complete_with_old_state(0);
    assert_eq!(harness.published(), now);
    assert_eq!(harness.requested(), None, "the list may show other changes");
    harness.complete_all(&now);
    assert_eq!(harness.published(), now);
}

#[test]
fn lists_become_fast_only_if_no_event_follows() {
    for late_event in [true, false] {
        let mut now = world(&[("p", "a", RUNNING)]);
        let mut harness = synced(&now);
        now.get_mut("p").unwrap().1 = EXITED;
        let due = harness.cache.next_due().unwrap().as_millisecond();
        assert!(due > harness.now + 20_000, "{due}");
        harness.now = due;
        harness.run_actions();
        harness.complete_all(&now);
        assert_eq!(harness.published(), now);
        if late_event {
            harness.handle(event("p", "a", Stopped, harness.now));
        }
        harness.advance(1_500, &now);
        let next = harness.cache.next_due().unwrap().as_millisecond();
        assert_eq!(next > harness.now + 20_000, late_event);
    }
}

#[test]
fn exit_is_polled_late_where_the_runtime_sends_events() {
    let mut now = world(&[("p", "a", RUNNING)]);
    let mut harness = synced(&now);
    harness.cache.on_process_exited("a", at(harness.now));
    harness.run_actions();
    assert!(harness.calls.is_empty());
    harness.now += 1_000;
    harness.run_actions();
    assert_eq!(harness.requested().unwrap(), ["a"], "the event is late");
    harness.complete_all(&now);
    now.get_mut("p").unwrap().1 = EXITED;
    harness.handle(event("", "a", Stopped, harness.now));
    assert_eq!(harness.requested().unwrap(), ["a"]);
    harness.complete_all(&now);
    assert!(harness.cache.delayed.is_empty());
    assert_eq!(harness.published(), now);
}

#[test]
fn a_runtime_that_is_late_is_asked_about_one_exit_at_a_time() {
    let pods: Vec<_> = (0..50)
        .map(|n| (format!("p{n}"), format!("a{n}")))
        .collect();
    let mut now = World::new();
    for (pod, id) in &pods {
        now.insert(pod.clone(), (id.clone(), RUNNING));
    }
    let mut harness = synced(&now);
    for (_, id) in &pods {
        harness.cache.on_process_exited(id, at(harness.now));
    }
    let mut asked = 0;
    for _ in 0..5 {
        harness.now += 1_000;
        harness.run_actions();
        asked += harness.calls.len();
        harness.complete_all(&now);
    }
    assert!((3..=5).contains(&asked), "{asked}");
    // Lost events delay nothing for ever.
    for (_, phase) in now.values_mut() {
        *phase = EXITED;
    }
    harness.advance(6_000, &now);
    assert_eq!(harness.published(), now);
}
