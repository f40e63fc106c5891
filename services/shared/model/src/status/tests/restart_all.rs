use super::*;
use crate::constants::reason;

fn pod() -> Fixture {
    let rules = json!([{"action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]}}]);
    fixture(
        json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [
        {"name": "a", "restartPolicy": "Never", "restartPolicyRules": rules},
        {"name": "b"}]}),
    )
    .sandbox()
    .with(exited("i", 0, 0))
    .with(running("a", 0))
    .with(running("b", 0))
}

fn restarting(status: &PodStatus) -> (&str, Option<&str>, Option<&str>) {
    let known = condition(status, condition::ALL_CONTAINERS_RESTARTING);
    (
        &known.status,
        known.reason.as_deref(),
        known.message.as_deref(),
    )
}

#[test]
fn the_condition_needs_a_rule() {
    let other = fixture(json!({"containers": [{"name": "a"}]})).status();
    let type_ = condition::ALL_CONTAINERS_RESTARTING;
    assert!(!other.conditions.unwrap().iter().any(|c| c.type_ == type_));
    assert_eq!(restarting(&pod().status()), ("False", None, None));
    for (phase, reason) in [("Failed", "PodFailed"), ("Succeeded", "PodCompleted")] {
        let mut ended = pod();
        ended.containers.clear();
        let mut ended = ended.with(exited("a", 0, 42)).with(exited("b", 0, 0));
        ended.terminal = Some(TerminalDecision {
            phase: phase.into(),
            reason: String::new(),
            message: String::new(),
            decided_at: Some(at(300)),
            disruption_target: false,
        });
        ended.worker_state = PodWorkerState::Terminated;
        assert_eq!(restarting(&ended.status()), ("False", Some(reason), None));
    }
}

#[test]
fn a_restart_of_all_containers() {
    let mut pod = pod();
    pod.defer_terminal_phase = true;
    pod.publish();
    pod.containers = vec![exited("a", 0, 42), running("b", 0), exited("i", 0, 0)];
    let status = pod.publish();
    let message = "container exited with restart policy rule";
    let in_progress = ("True", Some("RestartAllContainersStarted"), Some(message));
    assert_eq!(restarting(&status), in_progress);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    // First i is removed, then b.
    pod.containers.truncate(2);
    pod.publish();
    let mut pod = pod.waiting("i", reason::RESTARTING_ALL_CONTAINERS);
    pod.waiting[0].restarts = 1;
    pod.publish();
    pod.containers.truncate(1);
    let mut pod = pod.waiting("b", reason::RESTARTING_ALL_CONTAINERS);
    pod.waiting[1].restarts = 1;
    for _ in 0..2 {
        let status = pod.publish();
        assert_eq!(restarting(&status), in_progress);
        let waits = state_of(&status, "b");
        assert_eq!(
            waits["waiting"]["reason"],
            reason::RESTARTING_ALL_CONTAINERS
        );
        let b = container_status(&status, "b");
        assert_eq!(
            (
                b.restart_count,
                container_status(&status, "i").restart_count
            ),
            (1, 1)
        );
        let last = b.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!(last.exit_code, 137);
        assert_eq!(
            last.reason.as_deref(),
            Some(reason::RESTARTING_ALL_CONTAINERS)
        );
    }
    // All start again. Once initialized, the pod stays so.
    pod.waiting.clear();
    pod.containers = vec![running("i", 1)];
    let status = pod.publish();
    assert_eq!(condition(&status, condition::INITIALIZED).status, "True");
    pod.containers = vec![running("a", 1), running("b", 1), exited("i", 1, 0)];
    let status = pod.publish();
    assert_eq!(restarting(&status).0, "False");
    for name in ["a", "b", "i"] {
        assert_eq!(container_status(&status, name).restart_count, 1, "{name}");
        assert!(container_status(&status, name).last_state.is_some());
    }
    let b = container_status(&status, "b").last_state.as_ref().unwrap();
    assert_eq!(b.terminated.as_ref().unwrap().exit_code, 137);
}
