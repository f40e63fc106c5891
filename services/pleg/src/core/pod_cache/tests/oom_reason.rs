use super::*;
use crate::core::ContainerStatus;

fn exited(exit_code: i32, reason: &str) -> ContainerStatus {
    ContainerStatus {
        exit_code,
        reason: reason.to_owned(),
        finished_at: Some(at(10_000)),
        ..ContainerStatus::new("a", EXITED)
    }
}

/// A pod whose container exits at 10 s, which an event reports.
fn after_exit(exit: ContainerStatus) -> (Harness, World) {
    let running = world(&[("p", "a", RUNNING)]);
    let mut harness = Harness::new();
    harness.complete_all(&running);
    harness.cache.set_event_stream(true, at(0));
    harness.advance(10_000, &running);
    assert_eq!(harness.status_calls, 1);
    harness.exits.insert("a".to_owned(), Ok(exit));
    let now = world(&[("p", "a", EXITED)]);
    let stopped = event("p", "a", RuntimeEventKind::Stopped, 10_000);
    harness.cache.handle_event(stopped, at(10_000));
    harness.run_actions();
    harness.complete_all(&now);
    assert_eq!(harness.status_calls, 2);
    (harness, now)
}

fn reason(harness: &Harness) -> &str {
    &harness.published["p"].containers[0].reason
}

#[test]
fn a_reason_that_comes_late_is_published_after_one_more_status_call() {
    let (mut harness, now) = after_exit(exited(137, "Error"));
    assert_eq!(reason(&harness), "Error");
    harness
        .exits
        .insert("a".to_owned(), Ok(exited(137, "OOMKilled")));
    harness.advance(3000, &now);
    assert_eq!(reason(&harness), "OOMKilled");
    assert_eq!(harness.status_calls, 3);
    harness.advance(60_000, &now);
    assert_eq!(harness.status_calls, 3);
}

#[test]
fn a_killed_container_costs_one_more_status_call_and_others_none() {
    for (exit, more) in [
        (exited(137, "Error"), 1),
        (exited(137, "OOMKilled"), 0),
        (exited(1, "Error"), 0),
        (exited(0, "Completed"), 0),
    ] {
        let (mut harness, now) = after_exit(exit.clone());
        harness.advance(60_000, &now);
        assert_eq!(harness.status_calls, 2 + more, "{exit:?}");
        harness.cache.refresh(&"p".into(), false, 1);
        harness.run_actions();
        harness.complete_all(&now);
        assert_eq!(harness.status_calls, 2 + more, "{exit:?}");
    }
}

#[test]
fn an_inspection_that_began_too_early_does_not_count() {
    let (mut harness, now) = after_exit(exited(137, "Error"));
    harness.now = 11_999;
    harness.cache.refresh(&"p".into(), false, 1);
    harness.run_actions();
    harness.now = 12_100;
    harness.complete_all(&now);
    assert_eq!(
        harness.status_calls, 4,
        "the refresh, and one after the delay"
    );
    harness.advance(60_000, &now);
    assert_eq!(harness.status_calls, 4);
}

#[test]
fn a_killed_container_whose_record_is_gone_costs_nothing() {
    let (mut harness, _) = after_exit(exited(137, "Error"));
    let changes = vec![change("a", RuntimeEventKind::Deleted)];
    harness.cache.refresh_changes(&identity("p"), changes, 1);
    harness.run_actions();
    harness.complete_all(&World::new());
    harness.advance(60_000, &World::new());
    assert_eq!(harness.status_calls, 2);
}

#[test]
fn a_status_that_cannot_be_read_is_requested_again_with_back_off() {
    let (mut harness, now) = after_exit(exited(137, "Error"));
    let failed = Err("deadline exceeded".to_owned());
    harness.exits.insert("a".to_owned(), failed);
    harness.advance(60_000, &now);
    assert!(
        (3..15).contains(&harness.status_calls),
        "{} calls",
        harness.status_calls
    );
    let late = Ok(exited(137, "OOMKilled"));
    harness.exits.insert("a".to_owned(), late);
    harness.advance(60_000, &now);
    assert_eq!(reason(&harness), "OOMKilled");
}
