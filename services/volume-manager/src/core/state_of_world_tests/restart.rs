//! What is reconstructed after a restart.

use super::*;

#[test]
fn host_paths_of_torn_down_volumes_are_not_those_of_the_next() {
    let mut state = state(vec![reconstructed("u")]);
    let host = |state: &StateOfWorld| {
        let all = phases(state, "u").into_iter();
        all.filter(|(name, ..)| name == "host")
            .map(|it| it.1)
            .next()
    };
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    assert_eq!(host(&state), Some(VolumePhase::Mounted));
    state.release("d", 2, name("u")).unwrap();
    for operation in state.start_operations(at(0)) {
        let result = Err("not responding".into());
        state.finish_operation(OperationResult { operation, result }, at(0));
    }
    state.apply("d", 3, name("u"), spec("m")).unwrap();
    assert_eq!(host(&state), Some(VolumePhase::Waiting));
    assert_eq!(state.metadata_to_store(&"u".into()), None);
}

#[test]
fn a_restart_publishes_reconstructed_volumes_and_tears_down_orphans_only_when_complete() {
    let mut state = state(vec![reconstructed("u"), reconstructed("orphan")]);
    let shown = state.take_changes(at(0));
    assert_eq!(shown.len(), 2);
    for (_, status) in shown {
        let status = status.unwrap();
        assert_eq!(status.volumes.len(), 3);
        assert!(
            status
                .volumes
                .iter()
                .all(|v| v.phase == VolumePhase::Mounted && !v.host_path.is_empty())
        );
    }
    assert!(run_all(&mut state, at(0)).is_empty());
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    // Set up again while usable.
    assert_eq!(run_all(&mut state, at(0)).len(), 2);
    assert!(
        phases(&state, "u")
            .iter()
            .all(|(_, phase, _)| *phase == VolumePhase::Mounted)
    );
    assert!(state.complete("d", 7).is_err());
    assert!(run_all(&mut state, at(0)).is_empty());
    state.complete("d", 1).unwrap();
    let operations = run_all(&mut state, at(0));
    assert_eq!(operations.len(), 3);
    assert!(operations.contains(&Operation::RemovePodDir("orphan".into())));
    assert!(
        state.status(&"orphan".into(), at(0)).is_none()
            && state.status(&"u".into(), at(0)).is_some()
    );
}
