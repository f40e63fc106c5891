use polylet_wire::prober::v1::{Outcome, ProbeKind, ProbeStatus};
use proptest::prelude::*;

use super::*;

#[test]
fn only_startup_success_and_failures_change_a_pod() {
    let mut pod = PodSyncStatus::default();
    let mut apply = |kind: ProbeKind, outcome: Outcome| {
        let mut status = ProbeStatus::default();
        status.set_outcome(outcome);
        let result = probe_update(kind.into(), &status)?;
        let is_failure = result.is_failure();
        result.apply_to(&mut pod, "c1");
        Some(is_failure)
    };
    assert_eq!(apply(ProbeKind::Readiness, Outcome::Failure), None);
    assert_eq!(apply(ProbeKind::Startup, Outcome::Success), Some(false));
    assert_eq!(apply(ProbeKind::Liveness, Outcome::Failure), Some(true));
    assert!(pod.startup_succeeded.contains("c1") && !pod.probe_failures["c1"].startup);
}

/// Numbers that no enum of this build has.
fn new_number() -> impl Strategy<Value = i32> {
    prop_oneof![i32::MIN..0, 50..i32::MAX]
}

proptest! {
    /// None of them may end, stop or restart anything: what a newer peer means by them is not known.
    #[test]
    fn numbers_of_newer_peers_decide_nothing(number in new_number(), known in 0..3i32) {
        let container = pleg::v1::Container {
            name: "web".to_owned(),
            phase: number,
            ..Default::default()
        };
        let state = pleg::v1::PodState {
            containers: vec![container],
            ..Default::default()
        };
        prop_assert!(runtime_pod(&state).is_partial());

        for (kind, outcome) in [(number, known), (known, number)] {
            let status = ProbeStatus { outcome, ..Default::default() };
            prop_assert!(probe_update(kind, &status).is_none());
        }

        let volume = volume::v1::Volume { phase: number, imminent: true, ..Default::default() };
        let volumes = volume::v1::PodVolumes { volumes: vec![volume], ..Default::default() };
        for volume in observed_volumes(&volumes) {
            prop_assert!(!volume.mounted && !volume.gone && !volume.imminent);
        }

        let pod = podconfig::v1::Pod { terminal_phase: number, ..Default::default() };
        prop_assert!(reported_termination(&pod, Timestamp::UNIX_EPOCH).is_none());
    }
}

#[test]
fn an_unknown_state_of_the_node_is_not_its_absence() {
    use podconfig::v1::watch_node_response::State;
    let object = |state| {
        let response = podconfig::v1::WatchNodeResponse {
            state,
            ..Default::default()
        };
        node_object(&response).unwrap().0
    };
    assert_eq!(object(None), NodeObject::NotSynced);
    let absent = State::Absent(podconfig::v1::Absent {});
    assert_eq!(object(Some(absent)), NodeObject::Absent);
}

#[test]
fn a_phase_of_the_runtime_is_an_observation_even_if_it_is_unknown() {
    let mut container = pleg::v1::Container::default();
    container.set_phase(pleg::v1::ContainerPhase::Unknown);
    let state = pleg::v1::PodState {
        containers: vec![container],
        ..Default::default()
    };
    let pod = runtime_pod(&state);
    assert!(!pod.is_partial());
    assert_eq!(pod.containers[0].state, ContainerState::Unknown);
}
