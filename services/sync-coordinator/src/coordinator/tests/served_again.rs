//! Static pods that were removed and added again, where the removal itself may never have been sent.

use super::*;
use crate::core::checkpoint::LastRemoval;

/// The pod `u1` of a file, which was last removed at this second.
fn serve(coordinator: &mut Coordinator, removed_at: Option<i64>, second: i64) {
    let Update::Upsert(uid, mut pod) = desired("u1") else {
        return;
    };
    pod.removed_at = removed_at.map(|removed_at| to_wire(at(removed_at)));
    let update = Update::Upsert(uid, pod);
    set_desired(coordinator, PodSource::File, update, second);
    coordinator.reconcile(at(second));
}

/// The pod's sandbox runs, as pleg's stream reports it.
fn report_running(coordinator: &mut Coordinator) {
    if let Update::Upsert(uid, mut state) = state("u1", 0) {
        state.sandboxes[0].ips = vec!["10.0.0.1".to_owned()];
        coordinator.handle_input(Input::PodState(Update::Upsert(uid, state)), at(1));
    }
}

fn checkpointed(last_removal: LastRemoval) -> RestoredState {
    let checkpoint = PodCheckpoint {
        acknowledged_at: Some(at(-9)),
        last_removal,
        ..Default::default()
    };
    RestoredState {
        checkpoints: BTreeMap::from([("u1".to_owned(), checkpoint)]),
        ..Default::default()
    }
}

/// Whether the pod is stopped, without another step.
fn is_stopped(effects: &RecordedEffects) -> bool {
    let steps = effects.steps.take();
    let is_stop = |(_, step): &(String, Step)| matches!(step, Step::StopSandbox { .. });
    !steps.is_empty() && steps.iter().all(is_stop)
}

#[test]
fn pod_starts_over_if_its_source_knows_of_a_later_removal() {
    use LastRemoval::{At, Never, Unknown};
    for (known, served, starts_over, stored) in [
        (Never, None, false, Never),
        (Never, Some(-5), true, Never),
        (At(at(-5)), Some(-5), false, At(at(-5))),
        (At(at(-5)), Some(-4), true, At(at(-5))),
        // The source has lost its state, or is of a former version.
        (At(at(-5)), None, false, At(at(-5))),
        // It has lost what it stored last.
        (At(at(-5)), Some(-6), false, At(at(-5))),
        // The checkpoint is of a former version, which did not know of removals.
        (Unknown, None, false, Never),
        (Unknown, Some(-5), false, At(at(-5))),
    ] {
        let case = format!("{known:?} {served:?}");
        let (mut coordinator, effects) = synced(checkpointed(known));
        report_running(&mut coordinator);
        serve(&mut coordinator, served, 1);
        assert_eq!(is_stopped(&effects), starts_over, "{case}");
        let pod = &worker(&coordinator, "u1").pod;
        assert_eq!(pod.starts_over(), starts_over, "{case}");
        assert_eq!(pod.checkpoint.last_removal, stored, "{case}");
        let rewritten = known == Unknown;
        assert_eq!(pod.checkpointed, !rewritten, "{case}");
    }
}

#[test]
fn pod_that_this_process_knew_before_starts_over() {
    for (before, served, starts_over) in [
        (None, None, false),
        (None, Some(2), true),
        (Some(1), Some(1), false),
        (Some(1), Some(2), true),
        (Some(1), None, false),
    ] {
        let (mut coordinator, effects) = synced(RestoredState::default());
        report_running(&mut coordinator);
        serve(&mut coordinator, before, 1);
        assert!(!is_stopped(&effects), "{before:?}");
        serve(&mut coordinator, served, 3);
        assert_eq!(is_stopped(&effects), starts_over, "{before:?} {served:?}");
    }
}

/// Finishes all steps in flight; returns them.
fn finish_steps(
    coordinator: &mut Coordinator,
    effects: &RecordedEffects,
    second: i64,
) -> Vec<Step> {
    let steps = effects.steps.take();
    for (uid, step) in &steps {
        let finished = Input::StepFinished {
            uid: uid.clone().into(),
            key: step.key(),
            outcome: Box::new(StepOutcome::Done),
            state: None,
        };
        coordinator.handle_input(finished, at(second));
    }
    coordinator.reconcile(at(second));
    steps.into_iter().map(|(_, step)| step).collect()
}

#[test]
fn records_stay_and_the_pod_restarts_once() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    sync_sources(&mut coordinator);
    report_running(&mut coordinator);
    serve(&mut coordinator, None, 2);
    finish_steps(&mut coordinator, &effects, 2);
    serve(&mut coordinator, Some(2), 3);
    let mut steps = Vec::new();
    for second in 4..10 {
        // The same pod, as it is sent again after a reconnection.
        serve(&mut coordinator, Some(2), second);
        steps.extend(finish_steps(&mut coordinator, &effects, second));
    }
    steps.retain(|step| !matches!(step, Step::PullImage { .. }));
    let expected = [
        Step::StopSandbox { id: "s1".into() },
        Step::RemoveCgroup,
        Step::Checkpoint,
        Step::EnsureCgroup,
        Step::CreateSandbox { attempt: 1 },
    ];
    assert_eq!(steps.get(..5), Some(&expected[..]), "{steps:?}");
    let pod = &worker(&coordinator, "u1").pod;
    assert!(!pod.removal_requested && pod.checkpointed);
    assert_eq!(pod.checkpoint.acknowledged_at, Some(at(5)));
    assert_eq!(coordinator.desired_pods(), (0, 1));
    assert_eq!(pod.checkpoint.last_removal, LastRemoval::At(at(2)));
}

#[test]
fn removal_that_was_sent_is_not_one_more() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    sync_sources(&mut coordinator);
    report_running(&mut coordinator);
    serve(&mut coordinator, None, 2);
    let removed = Update::Remove("u1".into());
    set_desired(&mut coordinator, PodSource::File, removed, 3);
    serve(&mut coordinator, Some(3), 4);
    for second in 5..9 {
        finish_steps(&mut coordinator, &effects, second);
    }
    let pod = &worker(&coordinator, "u1").pod;
    assert!(!pod.removal_requested && pod.checkpointed);
    assert_eq!(pod.checkpoint.last_removal, LastRemoval::At(at(3)));
}
