use polylet_model::status::ContainerPhase;
use proptest::prelude::*;

use super::*;
use harness::*;

mod changes;
mod exit_poll;
mod harness;
mod oom_reason;

#[test]
fn synced_after_every_listed_pod_was_inspected() {
    let world = world(&[("p", "a", RUNNING), ("q", "b", EXITED)]);
    let mut harness = Harness::new();
    harness.complete(0, &world);
    assert_eq!(harness.inspections(), ["p", "q"]);
    harness.complete(0, &world);
    assert!(!harness.synced);
    harness.complete(0, &world);
    assert!(harness.synced);
    assert_eq!(harness.published(), world);
    let mut empty = Harness::new();
    empty.complete_all(&World::new());
    assert!(empty.synced, "an empty runtime");
}

#[test]
fn not_synced_while_a_listed_pod_is_being_refreshed() {
    let world = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.cache.refresh(&"p".into(), false, 1);
    harness.run_actions();
    harness.complete(0, &world);
    assert!(!harness.synced);
    harness.complete_all(&world);
    assert!(harness.synced);
    assert_eq!(harness.published(), world);
}

#[test]
fn initial_sync_is_retried_while_the_runtime_is_unavailable() {
    let world = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.fail(0);
    assert!(!harness.synced);
    harness.now = 1000;
    harness.run_actions();
    harness.complete(0, &world);
    harness.fail(0);
    assert!(!harness.synced, "listed, but not inspected");
    harness.advance(2000, &world);
    assert!(harness.synced);
}

#[test]
fn forced_refresh_requests_cached_statuses_again() {
    let world = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.complete_all(&world);
    for (token, force) in [(1, false), (2, true), (3, false)] {
        harness.cache.refresh(&"p".into(), force, token);
        harness.run_actions();
        let all_requested = harness.calls.iter().any(
            |call| matches!(call, Action::Inspect { cached, .. } if *cached == CachedStatuses::default()),
        );
        assert_eq!(all_requested, force, "{token}");
        harness.complete_all(&world);
    }
}

#[test]
fn idle_cache_only_lists() {
    let world = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.complete_all(&world);
    harness.cache.set_event_stream(true, at(0));
    harness.advance(6000, &world);
    for _ in 0..3 {
        let due = harness.cache.next_due().unwrap().as_millisecond();
        assert!(due >= harness.now + 20_000, "{due} {}", harness.now);
        harness.now = due;
        harness.run_actions();
        assert!(harness.inspections().is_empty());
        harness.complete_all(&world);
    }
}

#[test]
fn stop_event_is_inspected_at_once_and_start_event_waits_for_the_refresh() {
    let mut now = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.complete_all(&now);
    harness.now = 500;
    let stopped = event("", "a", RuntimeEventKind::Stopped, 500);
    harness.cache.handle_event(stopped, at(500));
    harness.run_actions();
    assert_eq!(harness.inspections(), ["p"]);
    now.get_mut("p").unwrap().1 = EXITED;
    harness.complete_all(&now);
    assert_eq!(harness.published(), now);
    // Restarted: the refresh that follows also covers the event.
    now.insert("p".to_owned(), ("b".to_owned(), RUNNING));
    let started = event("p", "b", RuntimeEventKind::Started, 500);
    harness.cache.handle_event(started, at(500));
    harness.run_actions();
    assert!(harness.inspections().is_empty());
    harness.now = 510;
    harness.cache.refresh(&"p".into(), false, 1);
    harness.run_actions();
    harness.complete_all(&now);
    assert_eq!(harness.responses.len(), 1);
    assert_eq!(harness.published(), now);
    harness.now = 650;
    harness.run_actions();
    assert!(harness.inspections().is_empty(), "covered by the refresh");
    let late = event("p", "b", RuntimeEventKind::Stopped, 505);
    harness.cache.handle_event(late, at(650));
    harness.run_actions();
    assert!(
        harness.inspections().is_empty(),
        "older than the inspection"
    );
}

#[test]
fn change_found_by_an_event_gets_the_cause_of_the_next_refresh() {
    let mut now = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.complete_all(&now);
    now.get_mut("p").unwrap().1 = EXITED;
    let stopped = event("p", "a", RuntimeEventKind::Stopped, 100);
    harness.cache.handle_event(stopped, at(100));
    harness.now = 100;
    harness.run_actions();
    harness.complete_all(&now);
    for token in [1, 2] {
        harness.cache.refresh(&"p".into(), false, token);
        harness.run_actions();
        harness.complete_all(&now);
        assert_eq!(harness.causes_set, 1, "refresh {token}");
    }
}

#[test]
fn refreshes_during_an_inspection_share_the_next_one() {
    let mut now = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.complete_all(&now);
    harness.cache.refresh(&"p".into(), false, 1);
    harness.run_actions();
    harness.cache.refresh(&"p".into(), false, 2);
    harness.cache.refresh(&"p".into(), false, 3);
    harness.run_actions();
    assert_eq!(harness.inspections(), ["p"], "one at a time");
    harness.complete(0, &now);
    assert_eq!(harness.responses.last().unwrap().1, [1]);
    now.get_mut("p").unwrap().1 = EXITED;
    harness.complete_all(&now);
    assert_eq!(harness.responses.last().unwrap().1, [2, 3]);
    assert_eq!(harness.published(), now);
}

#[test]
fn refresh_of_an_unknown_pod_is_answered_and_not_cached() {
    let mut harness = Harness::new();
    harness.complete_all(&World::new());
    harness.cache.refresh(&"p".into(), false, 1);
    harness.run_actions();
    harness.complete_all(&World::new());
    assert_eq!(harness.responses, [("p".to_owned(), vec![1], Ok(()))]);
    assert!(harness.cache.pods.is_empty());
    harness.cache.refresh(&"p".into(), false, 2);
    harness.run_actions();
    harness.fail(0);
    assert!(harness.responses.last().unwrap().2.is_err());
    assert!(harness.cache.pods.is_empty());
}

#[test]
fn hung_inspections_do_not_block_refreshes() {
    let world: World = (0..MAX_INSPECTIONS + 5)
        .map(|n| (format!("p{n}"), (format!("c{n}"), RUNNING)))
        .collect();
    let mut harness = Harness::new();
    harness.complete(0, &world);
    assert_eq!(harness.calls.len(), MAX_INSPECTIONS);
    harness.cache.refresh(&"other".into(), false, 1);
    harness.run_actions();
    assert_eq!(harness.inspections().last(), Some(&"other"));
}

#[test]
fn clock_set_back_makes_delayed_inspections_due() {
    let now = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.complete_all(&now);
    harness.now = 3_600_000;
    let started = event("p", "b", RuntimeEventKind::Started, harness.now);
    harness.cache.handle_event(started, at(harness.now));
    harness.run_actions();
    harness.complete_all(&now);
    harness.now = 0;
    harness.run_actions();
    assert_eq!(harness.inspections(), ["p"]);
}

#[derive(Debug, Clone)]
enum Step {
    Change {
        pod: u8,
        id: u8,
        phase: ContainerPhase,
    },
    Remove {
        pod: u8,
    },
    Refresh {
        pod: u8,
    },
    /// An event arrives late, or again.
    Replay {
        event: usize,
    },
    ProcessExited {
        pod: u8,
        id: u8,
    },
    Complete {
        call: usize,
        old_state: bool,
    },
    Fail {
        call: usize,
    },
    SetEventStream {
        active: bool,
    },
    Wait {
        millis: i64,
    },
}

/// A step, whether the runtime sends an event for it, and whether its caller refreshes the pod.
fn steps() -> impl Strategy<Value = (Step, bool, bool)> {
    let phase = prop::sample::select(vec![ContainerPhase::Created, RUNNING, EXITED]);
    let step = prop_oneof![
        4 => (0u8..4, 0u8..2, phase).prop_map(|(pod, id, phase)| Step::Change { pod, id, phase }),
        1 => (0u8..4).prop_map(|pod| Step::Remove { pod }),
        2 => (0u8..4).prop_map(|pod| Step::Refresh { pod }),
        1 => (0usize..8).prop_map(|event| Step::Replay { event }),
        2 => (0u8..4, 0u8..2).prop_map(|(pod, id)| Step::ProcessExited { pod, id }),
        6 => (0usize..8, any::<bool>()).prop_map(|(call, old_state)| Step::Complete { call, old_state }),
        1 => (0usize..8).prop_map(|call| Step::Fail { call }),
        1 => any::<bool>().prop_map(|active| Step::SetEventStream { active }),
        3 => (1i64..3000).prop_map(|millis| Step::Wait { millis }),
    ];
    (step, any::<bool>(), any::<bool>())
}

fn order(phase: ContainerPhase) -> u8 {
    match phase {
        ContainerPhase::Created | ContainerPhase::Unknown => 0,
        ContainerPhase::Running => 1,
        ContainerPhase::Exited => 2,
    }
}

proptest! {
    /// Whatever changes, is lost, fails or comes late, in the end the published state is the
    /// runtime's.
    #[test]
    fn published_state_converges(steps in prop::collection::vec(steps(), 0..80)) {
        let mut world = World::new();
        let mut harness = Harness::new();
        let mut tokens = 0;
        let mut events = Vec::new();
        for (step, with_event, refreshed) in steps {
            harness.world = world.clone();
            match step {
                Step::Change { pod, id, phase } => {
                    let (uid, id) = (format!("p{pod}"), format!("c{pod}{id}"));
                    // A container never returns to an earlier phase.
                    let before = world.get(&uid).filter(|(old, _)| *old == id).map(|(_, p)| *p);
                    let phase = before.into_iter().chain([phase]).max_by_key(|p| order(*p)).unwrap();
                    world.insert(uid.clone(), (id.clone(), phase));
                    let kind = match phase {
                        EXITED => RuntimeEventKind::Stopped,
                        RUNNING => RuntimeEventKind::Started,
                        _ => RuntimeEventKind::Created,
                    };
                    let mut event = event(&uid, &id, kind, harness.now);
                    event.sandbox = Some(SandboxStatus::default());
                    events.push(event.clone());
                    if with_event {
                        harness.cache.handle_event(event, at(harness.now));
                    }
                    if refreshed {
                        tokens += 1;
                        let changes = vec![change(&id, kind)];
                        harness.cache.refresh_changes(&identity(&uid), changes, tokens);
                    }
                }
                Step::Remove { pod } => {
                    let uid = format!("p{pod}");
                    let Some((id, _)) = world.remove(&uid) else { continue };
                    let deleted = event("", &id, RuntimeEventKind::Deleted, harness.now);
                    if with_event {
                        harness.cache.handle_event(deleted, at(harness.now));
                    }
                    if refreshed {
                        tokens += 1;
                        let changes = vec![change(&id, RuntimeEventKind::Deleted)];
                        harness.cache.refresh_changes(&identity(&uid), changes, tokens);
                    }
                }
                Step::Refresh { pod } => {
                    tokens += 1;
                    harness.cache.refresh(&format!("p{pod}").into(), false, tokens);
                }
                Step::Replay { event } if !events.is_empty() => {
                    let event = events[event % events.len()].clone();
                    harness.cache.handle_event(event, at(harness.now));
                }
                Step::ProcessExited { pod, id } => {
                    harness.cache.on_process_exited(&format!("c{pod}{id}"), at(harness.now));
                }
                Step::Complete { call, old_state } if !harness.calls.is_empty() => {
                    let call = call % harness.calls.len();
                    if old_state {
                        harness.complete_with_old_state(call);
                    } else {
                        harness.complete(call, &world);
                    }
                }
                Step::Fail { call } if !harness.calls.is_empty() => {
                    harness.fail(call % harness.calls.len());
                }
                Step::SetEventStream { active } => {
                    harness.cache.set_event_stream(active, at(harness.now));
                }
                Step::Wait { millis } => harness.now += millis,
                _ => {}
            }
            harness.world = world.clone();
            harness.run_actions();
            let mut in_flight = harness.inspections();
            in_flight.sort();
            let count = in_flight.len();
            in_flight.dedup();
            prop_assert_eq!(count, in_flight.len(), "two inspections of one pod");
        }
        harness.complete_all(&world);
        harness.advance(61_000, &world);
        prop_assert_eq!(harness.published(), world);
        prop_assert!(harness.synced);
        let answered: usize = harness.responses.iter().map(|(_, tokens, _)| tokens.len()).sum();
        prop_assert_eq!(answered as u64, tokens, "one response per caller");
    }
}
