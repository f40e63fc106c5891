//! States of the runtime after the clock was set back, and those that another one has overtaken.

use jiff::SignedDuration;

use super::*;

/// The state of the pod, with a sandbox that is ready or not.
fn pod_state(is_ready: bool, observed_at: i64) -> PodState {
    let Update::Upsert(_, mut state) = state("u1", observed_at) else {
        unreachable!("it is an upsert")
    };
    state.sandboxes[0].ready = is_ready;
    state
}

fn report(coordinator: &mut Coordinator, state: PodState, seconds: i64) {
    let update = Update::Upsert("u1".into(), state);
    coordinator.handle_input(Input::PodState(update), at(seconds));
}

fn respond(coordinator: &mut Coordinator, state: PodState, seconds: i64) {
    let refreshed = Input::PodRefreshed {
        uid: "u1".into(),
        effect_count: 0,
        state: Some(state),
    };
    coordinator.handle_input(refreshed, at(seconds));
}

/// Whether the sandbox is believed to be ready.
fn is_ready(coordinator: &Coordinator) -> bool {
    let observed = worker(coordinator, "u1").pod.observed.as_ref();
    observed.expect("it was reported").sandboxes[0].ready
}

#[test]
fn change_after_a_small_backward_clock_step_is_not_missed() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    report(&mut coordinator, pod_state(true, 100), 100);
    let step = SignedDuration::from_secs(-3);
    coordinator.handle_input(Input::ClockStepped(step), at(97));
    report(&mut coordinator, pod_state(false, 98), 98);
    assert!(is_ready(&coordinator), "only pleg knows");
    assert_eq!(effects.refreshed.take(), ["u1"]);
    respond(&mut coordinator, pod_state(false, 98), 98);
    assert!(!is_ready(&coordinator));
    // Compared with the response from now on.
    report(&mut coordinator, pod_state(true, 99), 99);
    assert!(is_ready(&coordinator));
    assert_eq!(effects.refreshed.take(), [""; 0]);
}

#[test]
fn overtaken_states_are_not_refreshed() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    report(&mut coordinator, pod_state(true, 100), 100);
    report(&mut coordinator, pod_state(false, 99), 100);
    assert_eq!(effects.refreshed.take(), [""; 0]);
    assert!(is_ready(&coordinator));
}

#[test]
fn states_of_unknown_order_cause_one_refresh_at_a_time() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    report(&mut coordinator, pod_state(true, 100), 100);
    for observed_at in 96..99 {
        report(&mut coordinator, pod_state(false, observed_at), 98);
    }
    assert_eq!(effects.refreshed.take(), ["u1"]);
    respond(&mut coordinator, pod_state(true, 101), 101);
    assert_eq!(effects.refreshed.take(), ["u1"], "for those meanwhile");
    respond(&mut coordinator, pod_state(true, 102), 102);
    assert_eq!(effects.refreshed.take(), [""; 0]);
}

#[test]
fn state_that_is_sent_again_is_not_refreshed() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    report(&mut coordinator, pod_state(true, 100), 100);
    for observed_at in [99, 10] {
        report(&mut coordinator, pod_state(true, observed_at), 99);
        assert_eq!(effects.refreshed.take(), [""; 0], "{observed_at}");
    }
    // The response may be of the time between the two.
    report(&mut coordinator, pod_state(false, 97), 98);
    report(&mut coordinator, pod_state(true, 98), 98);
    assert_eq!(effects.refreshed.take(), ["u1"]);
    respond(&mut coordinator, pod_state(false, 97), 98);
    assert_eq!(effects.refreshed.take(), ["u1"]);
    respond(&mut coordinator, pod_state(true, 98), 98);
    assert!(is_ready(&coordinator));
    assert_eq!(effects.refreshed.take(), [""; 0]);
}
