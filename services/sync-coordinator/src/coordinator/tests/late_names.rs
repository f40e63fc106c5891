//! Pods that are known by their UID before their name is.

use super::*;

/// The names of the workers that are found by this name.
fn found_by(coordinator: &Coordinator, name: &str) -> Vec<String> {
    let namespace = if name.is_empty() { "" } else { "default" };
    let reference = PodRef {
        uid: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let found = coordinator.state.workers.with_name(&reference);
    found.map(|worker| worker.reference.name.clone()).collect()
}

/// A state from the runtime without the pod's name.
fn unnamed_state() -> Input {
    let Update::Upsert(uid, mut state) = state("u1", 4) else {
        unreachable!("it is an upsert")
    };
    state.r#ref = None;
    Input::PodState(Update::Upsert(uid, state))
}

/// What is left of the pod on the node: a directory.
fn unnamed_orphan() -> Input {
    Input::OrphansFound(vec![PodRef {
        uid: "u1".to_owned(),
        ..PodRef::default()
    }])
}

#[test]
fn name_of_a_pod_is_taken_from_whoever_knows_it() {
    let by_source = |coordinator: &mut Coordinator| {
        set_desired(coordinator, PodSource::File, desired("u1"), 6);
    };
    let by_runtime = |coordinator: &mut Coordinator| {
        coordinator.handle_input(Input::PodState(state("u1", 6)), at(6));
    };
    let ways: [&dyn Fn(&mut Coordinator); 2] = [&by_source, &by_runtime];
    for known_from in [unnamed_state, unnamed_orphan] {
        for set_name in ways {
            let (mut coordinator, _) = synced(RestoredState::default());
            sync_sources(&mut coordinator);
            coordinator.handle_input(known_from(), at(5));
            coordinator.reconcile(at(5));
            assert_eq!(found_by(&coordinator, ""), [""]);
            set_name(&mut coordinator);
            assert_eq!(found_by(&coordinator, ""), [""; 0]);
            assert_eq!(found_by(&coordinator, "web"), ["web"]);
            // It stays.
            coordinator.handle_input(unnamed_state(), at(7));
            assert_eq!(found_by(&coordinator, "web"), ["web"]);
            coordinator.state.workers.remove(&"u1".into());
            assert_eq!(found_by(&coordinator, "web"), [""; 0]);
        }
    }
}
