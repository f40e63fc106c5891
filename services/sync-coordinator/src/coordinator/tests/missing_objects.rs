//! Steps that fail for the lack of an object, and the watches for it.

use super::*;

fn key() -> StepKey {
    StepKey::PullImage("a".into())
}

/// Fails the pod's pull for the lack of an object.
fn fail_pull(coordinator: &mut Coordinator, seconds: i64) {
    let failure = StepFailure {
        missing: Some(Box::default()),
        ..StepFailure::default()
    };
    let finished = Input::StepFinished {
        uid: "u1".into(),
        key: key(),
        outcome: Box::new(StepOutcome::Failed(failure)),
        state: None,
    };
    coordinator.handle_input(finished, at(seconds));
}

/// A coordinator with a pod whose pull lacks an object.
fn with_missing_object() -> (Coordinator, Rc<RecordedEffects>) {
    let (mut coordinator, effects) = synced(RestoredState::default());
    set_desired(&mut coordinator, POD_SOURCES[0], desired("u1"), 1);
    coordinator.reconcile(at(1));
    fail_pull(&mut coordinator, 2);
    (coordinator, effects)
}

/// Whether each watch so far has been ended.
fn ended(effects: &RecordedEffects) -> Vec<bool> {
    let tokens = effects.watch_tokens.borrow();
    tokens.iter().map(CancellationToken::is_cancelled).collect()
}

#[test]
fn step_is_retried_when_its_missing_object_is_available() {
    let (mut coordinator, effects) = with_missing_object();
    let attempts = || {
        let steps = effects.steps.borrow();
        steps.iter().filter(|(_, step)| step.key() == key()).count()
    };
    let before = attempts();
    coordinator.reconcile(at(3));
    assert_eq!(attempts(), before);
    let uid = "u1".into();
    coordinator.handle_input(Input::ObjectAvailable { uid, key: key() }, at(4));
    coordinator.reconcile(at(4));
    assert_eq!(attempts(), before + 1);
}

#[test]
fn watch_lasts_until_the_next_attempt_has_ended() {
    let (mut coordinator, effects) = with_missing_object();
    coordinator.reconcile(at(2));
    assert_eq!(ended(&effects), [false]);
    fail_pull(&mut coordinator, 30);
    coordinator.reconcile(at(30));
    assert_eq!(ended(&effects), [true, false], "it fails again");
}

#[test]
fn watch_ends_with_its_pod() {
    let (mut coordinator, effects) = with_missing_object();
    coordinator.reconcile(at(2));
    let forgotten = coordinator.state.workers.remove(&"u1".into());
    assert_eq!(ended(&effects), [false]);
    drop(forgotten);
    assert_eq!(ended(&effects), [true]);
}

#[test]
fn watch_ends_when_its_pod_is_to_be_removed() {
    let (mut coordinator, effects) = with_missing_object();
    coordinator.reconcile(at(2));
    let removed = Update::Remove("u1".into());
    set_desired(&mut coordinator, POD_SOURCES[0], removed, 3);
    coordinator.reconcile(at(3));
    assert_eq!(ended(&effects), [true]);
    // A step that was in flight.
    fail_pull(&mut coordinator, 4);
    coordinator.reconcile(at(4));
    assert!(ended(&effects).into_iter().all(|ended| ended));
}
