//! When a removed pod is forgotten.

use super::*;

fn finished(uid: String, step: &Step) -> Input {
    Input::StepFinished {
        uid: uid.into(),
        key: step.key(),
        outcome: Box::new(StepOutcome::Done),
        state: None,
    }
}

/// Finishes all steps until none follows; the runtime has nothing of the pod after each.
fn finish_all_steps(coordinator: &mut Coordinator, effects: &RecordedEffects, seconds: i64) {
    loop {
        let steps = effects.steps.take();
        if steps.is_empty() {
            return;
        }
        for (uid, step) in steps {
            coordinator.handle_input(finished(uid, &step), at(seconds));
        }
        for uid in effects.refreshed.take() {
            let state = PodState {
                observed_at: Some(to_wire(at(seconds))),
                ..Default::default()
            };
            let refreshed = Input::PodRefreshed {
                effect_count: worker(coordinator, &uid).pod.effect_count,
                uid: uid.into(),
                state: Some(state),
            };
            coordinator.handle_input(refreshed, at(seconds));
        }
        coordinator.reconcile(at(seconds));
    }
}

#[test]
fn late_state_of_a_removed_pod_is_not_removed_again() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    sync_sources(&mut coordinator);
    coordinator.handle_input(Input::Volumes(Update::Synced), at(0));
    coordinator.handle_input(Input::PodState(state("u1", 4)), at(5));
    coordinator.reconcile(at(5));
    finish_all_steps(&mut coordinator, &effects, 6);
    // The stream is seconds behind the responses to refreshes.
    coordinator.handle_input(Input::Timer, at(9));
    coordinator.reconcile(at(9));
    coordinator.handle_input(Input::PodState(state("u1", 5)), at(9));
    coordinator.reconcile(at(9));
    assert_eq!(*effects.steps.borrow(), []);
    coordinator.handle_input(Input::PodState(Update::Remove("u1".into())), at(10));
    coordinator.reconcile(at(10));
    assert!(coordinator.state.workers.get("u1").is_none());
    assert_eq!(*effects.refreshed.borrow(), [""; 0]);
}

#[test]
fn removal_seen_before_its_refresh_is_answered_is_not_refreshed_again() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    sync_sources(&mut coordinator);
    coordinator.handle_input(Input::Volumes(Update::Synced), at(0));
    coordinator.handle_input(Input::PodState(state("u1", 4)), at(5));
    coordinator.reconcile(at(5));
    let mut finish_next = || {
        let (uid, step) = effects.steps.borrow_mut().pop().expect("a step");
        coordinator.handle_input(finished(uid, &step), at(6));
        coordinator.reconcile(at(6));
        step
    };
    while !matches!(finish_next(), Step::RemoveSandbox { .. }) {}
    assert_eq!(effects.refreshed.take(), ["u1"]);
    coordinator.handle_input(Input::PodState(Update::Remove("u1".into())), at(6));
    let refreshed = Input::PodRefreshed {
        effect_count: worker(&coordinator, "u1").pod.effect_count,
        uid: "u1".into(),
        state: Some(PodState {
            observed_at: Some(to_wire(at(6))),
            ..Default::default()
        }),
    };
    coordinator.handle_input(refreshed, at(6));
    assert_eq!(effects.refreshed.take(), [""; 0]);
}
