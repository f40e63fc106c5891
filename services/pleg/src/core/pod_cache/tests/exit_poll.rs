use super::*;

fn synced(world: &World) -> Harness {
    let mut harness = Harness::new();
    harness.complete_all(world);
    harness.now = 100;
    harness
}

#[test]
fn pod_is_inspected_until_the_runtime_reports_the_exit() {
    let mut now = world(&[("p", "a", RUNNING)]);
    let mut harness = synced(&now);
    harness.cache.on_process_exited("a", at(100));
    harness.run_actions();
    assert_eq!(harness.inspections(), ["p"]);
    harness.complete_all(&now);
    assert_eq!(harness.published(), now);
    assert_eq!(harness.cache.next_due(), Some(at(105)));
    harness.advance(20, &now);
    assert_eq!(harness.cache.next_due(), Some(at(123)));
    now.get_mut("p").unwrap().1 = EXITED;
    harness.advance(5, &now);
    assert_eq!(harness.published(), now);
    assert_eq!(harness.cache.next_due(), Some(at(1000)), "the next list");
}

#[test]
fn polling_ends_when_the_runtime_never_reports_the_exit() {
    let now = world(&[("p", "a", RUNNING)]);
    let mut harness = synced(&now);
    harness.cache.on_process_exited("a", at(100));
    harness.run_actions();
    harness.complete_all(&now);
    harness.advance(3000, &now);
    assert!(harness.cache.delayed.is_empty());
    assert!(harness.inspections().is_empty());
}

#[test]
fn exit_of_an_unknown_or_exited_container_is_ignored() {
    let now = world(&[("p", "a", EXITED)]);
    let mut harness = synced(&now);
    for id in ["a", "b", ""] {
        harness.cache.on_process_exited(id, at(100));
        harness.run_actions();
        assert!(harness.inspections().is_empty(), "{id:?}");
    }
}

#[test]
fn failed_inspection_is_retried_after_its_backoff() {
    let mut now = world(&[("p", "a", RUNNING)]);
    let mut harness = synced(&now);
    harness.cache.on_process_exited("a", at(100));
    harness.run_actions();
    harness.fail(0);
    let due = harness.cache.delayed.due("p".to_owned().as_str());
    assert_eq!(due, Some(at(1100)));
    now.get_mut("p").unwrap().1 = EXITED;
    harness.advance(1000, &now);
    assert_eq!(harness.published(), now);
    assert!(harness.cache.delayed.is_empty());
}
