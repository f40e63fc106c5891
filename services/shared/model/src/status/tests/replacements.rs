use crate::constants::reason;

use super::*;

fn pod(policy: &str) -> Fixture {
    fixture(
        json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "x:1",
        "readinessProbe": {"exec": {"command": ["true"]}}}]}),
    )
}

/// With a reason that names the first container.
fn waiting(fixture: Fixture, reason: &str) -> Fixture {
    let mut fixture = fixture.waiting("a", reason);
    for waiting in &mut fixture.waiting {
        waiting.message = "a0".to_owned();
    }
    fixture
}

/// A ready pod whose container exits while it is stopped to be replaced.
fn replaced(policy: &str, reason: &str) -> (Fixture, PodStatus) {
    let mut fixture = pod(policy).sandbox().with(running("a", 0)).probe_result(
        "a0",
        ProbeKind::Readiness,
        true,
        20,
    );
    let before = fixture.publish();
    fixture.containers = vec![exited("a", 0, 0)];
    (waiting(fixture, reason), before)
}

#[test]
fn a_replaced_container_runs_until_its_successor_does() {
    for policy in ["Never", "OnFailure", "Always"] {
        let (mut fixture, before) = replaced(policy, reason::REPLACEMENT);
        assert_eq!(
            fixture.publish(),
            before,
            "{policy}: while its image is pulled"
        );
        let created = super::container_in_phase("a", 1, ContainerPhase::Created);
        fixture = fixture.with(created);
        assert_eq!(
            fixture.publish(),
            before,
            "{policy}: its successor is created"
        );
        fixture.containers[0] = running("a", 1);
        fixture.waiting.clear();
        let after = fixture.publish();
        let after = container_status(&after, "a");
        assert_eq!(after.restart_count, 1, "{policy}");
        assert!(!after.ready, "{policy}: not probed yet");
        let last = after.last_state.as_ref().unwrap().terminated.as_ref();
        assert_eq!(last.unwrap().exit_code, 0, "{policy}");
    }
}

#[test]
fn the_post_start_hook_of_the_successor_is_part_of_its_start() {
    let (mut fixture, before) = replaced("Never", reason::REPLACEMENT);
    assert_eq!(fixture.publish(), before);
    fixture.waiting.clear();
    let mut fixture = fixture
        .with(running("a", 1))
        .waiting("a", reason::POST_START_HOOK);
    assert_eq!(fixture.publish(), before);
    fixture.waiting.clear();
    assert_eq!(container_status(&fixture.publish(), "a").restart_count, 1);
}

#[test]
fn readiness_of_a_replaced_container_is_that_of_its_own_probe() {
    let (fixture, _) = replaced("Never", reason::REPLACEMENT);
    let failed = fixture.probe_result("a0", ProbeKind::Readiness, false, 70);
    let status = failed.status();
    assert!(state_of(&status, "a")["running"].is_object());
    assert!(!container_status(&status, "a").ready);
}

#[test]
fn an_exit_counts_without_a_successor() {
    let (mut fixture, _) = replaced("Never", reason::ERR_IMAGE_PULL);
    assert!(state_of(&fixture.status(), "a")["terminated"].is_object());
    fixture.waiting[0].reason = reason::REPLACEMENT.to_owned();
    fixture.worker_state = PodWorkerState::Terminating;
    assert!(state_of(&fixture.status(), "a")["terminated"].is_object());
    // After a failed start it was published as waiting.
    let (mut fixture, _) = replaced("Always", reason::ERR_IMAGE_PULL);
    fixture.worker_state = PodWorkerState::Syncing;
    let published = fixture.publish();
    assert!(state_of(&published, "a")["waiting"].is_object());
    fixture.waiting.clear();
    let fixture = waiting(fixture, reason::REPLACEMENT);
    assert!(state_of(&fixture.status(), "a")["terminated"].is_object());
}

#[test]
fn the_reports_of_the_exit_and_of_its_reason_have_no_order() {
    let (mut fixture, before) = replaced("Never", reason::REPLACEMENT);
    let reasons = std::mem::take(&mut fixture.waiting);
    assert!(state_of(&fixture.publish(), "a")["terminated"].is_object());
    fixture.waiting = reasons;
    let after = fixture.publish();
    assert_eq!(state_of(&after, "a"), state_of(&before, "a"));
    // An exit of the successor is its own.
    fixture = fixture.with(running("a", 1));
    fixture.publish();
    fixture.containers[0] = exited("a", 1, 0);
    assert!(state_of(&fixture.status(), "a")["terminated"].is_object());
}
