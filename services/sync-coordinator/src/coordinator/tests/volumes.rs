//! Declarations of volumes under the client ID of this process instance.

use super::*;

#[test]
fn superseded_client_takes_a_new_epoch_and_declares_all_volumes_again() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    coordinator.handle_input(Input::Volumes(Update::Synced), at(0));
    for uid in ["u1", "u2"] {
        let volumes = json!([{"name": "data", "emptyDir": {}}]);
        let pod = desired_with(uid, uid, volumes);
        set_desired(&mut coordinator, POD_SOURCES[0], pod, 1);
    }
    sync_sources(&mut coordinator);
    coordinator.reconcile(at(1));
    let first = effects.declared.take();
    let epoch = first.first().expect("volumes are declared").0;
    assert_eq!(first, [(epoch, "u1".to_owned()), (epoch, "u2".to_owned())]);
    let finish = |coordinator: &mut Coordinator, uid: &str, outcome: StepOutcome| {
        let finished = Input::StepFinished {
            uid: uid.into(),
            key: StepKey::ApplyVolumes,
            outcome: Box::new(outcome),
            state: None,
        };
        coordinator.handle_input(finished, at(2));
        coordinator.reconcile(at(2));
    };
    let declared = |coordinator: &Coordinator, uid: &str| {
        let spec = worker(coordinator, uid).pod.spec.clone().unwrap();
        StepOutcome::VolumesDeclared {
            digest: spec.digest.clone(),
            sequence: 1,
            volumes: Vec::new(),
        }
    };
    let superseded = || StepFailure {
        superseded: true,
        ..StepFailure::default()
    };
    // The first declaration arrived; before the second came a call of a previous instance.
    let accepted = declared(&coordinator, "u1");
    finish(&mut coordinator, "u1", accepted);
    finish(&mut coordinator, "u2", StepOutcome::Failed(superseded()));
    let second = effects.declared.take();
    let next = second.first().expect("volumes are declared again").0;
    assert_ne!(epoch, next);
    assert_eq!(second, [(next, "u1".to_owned()), (next, "u2".to_owned())]);
    let accepted = declared(&coordinator, "u1");
    finish(&mut coordinator, "u1", accepted);
    assert!(effects.completed.borrow().is_empty());
    let accepted = declared(&coordinator, "u2");
    finish(&mut coordinator, "u2", accepted);
    assert_eq!(effects.completed.take(), [(next, 2)]);
    // The completion may be superseded as well; a late result of a previous epoch has no effect.
    coordinator.handle_input(Input::DesiredCompleted(epoch, Ok(())), at(3));
    assert!(!coordinator.state.volumes.is_completed());
    let failed = Input::DesiredCompleted(next, Err(superseded()));
    coordinator.handle_input(failed, at(3));
    coordinator.reconcile(at(3));
    assert_eq!(effects.declared.take().len(), 2);
}
