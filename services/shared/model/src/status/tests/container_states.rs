use super::*;
use crate::constants::reason;

fn one() -> Fixture {
    fixture(
        json!({"containers": [{"name": "a", "image": "x:1", "resources": {"requests": {"cpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}]}]}),
    )
}

#[test]
fn containers_that_do_not_exist_are_being_created() {
    let status = one().status();
    assert_eq!(
        state_of(&status, "a"),
        json!({"waiting": {"reason": "ContainerCreating"}})
    );
    assert_eq!(
        (
            container_status(&status, "a").ready,
            container_status(&status, "a").started,
            container_status(&status, "a").image.as_str()
        ),
        (false, Some(false), "x:1")
    );
    let with_init =
        fixture(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]})).status();
    assert_eq!(
        state_of(&with_init, "a"),
        json!({"waiting": {"reason": "PodInitializing"}})
    );
    assert_eq!(
        state_of(&with_init, "i"),
        json!({"waiting": {"reason": "PodInitializing"}})
    );
}

#[test]
fn all_fields_of_a_running_container() {
    let status = one().sandbox().with(running("a", 2)).status();
    assert_eq!(
        serde_json::to_value(container_status(&status, "a")).unwrap(),
        json!({"name": "a", "image": "docker.io/library/x:1", "imageID": "sha256:1", "containerID": "containerd://a2",
            "restartCount": 2, "ready": true, "started": true, "state": {"running": {"startedAt": "1970-01-12T13:50:11Z"}},
            "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": "Disabled"}]})
    );
}

#[test]
fn the_last_state_is_that_of_the_second_newest_container() {
    let status = one()
        .sandbox()
        .with(exited("a", 0, 3))
        .with(exited("a", 1, 4))
        .with(running("a", 2))
        .status();
    let last = container_status(&status, "a")
        .last_state
        .clone()
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(
        (last.exit_code, last.container_id.as_deref()),
        (4, Some("containerd://a1"))
    );
}

#[test]
fn a_wait_reason_makes_an_exited_container_wait() {
    let status = one()
        .sandbox()
        .with(exited("a", 0, 3))
        .waiting("a", "CrashLoopBackOff")
        .status();
    assert_eq!(
        state_of(&status, "a"),
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "why"}})
    );
    assert_eq!(
        container_status(&status, "a")
            .last_state
            .as_ref()
            .unwrap()
            .terminated
            .as_ref()
            .unwrap()
            .exit_code,
        3
    );
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

#[test]
fn wait_reasons_of_running_or_completed_containers_are_ignored() {
    let noted = one().sandbox().waiting("a", "CrashLoopBackOff");
    assert!(state::is_running(container_status(
        &noted.clone().with(running("a", 0)).status(),
        "a"
    )));
    let mut never = fixture(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]}))
        .waiting("a", "ErrImagePull");
    assert_eq!(
        state_of(&never.status(), "a")["waiting"]["reason"],
        "ErrImagePull"
    );
    never.containers.push(exited("a", 0, 1));
    assert_eq!(state_of(&never.status(), "a")["terminated"]["exitCode"], 1);
    let leaving = Fixture {
        worker_state: PodWorkerState::Terminating,
        ..noted.with(exited("a", 0, 1))
    };
    assert_eq!(
        state_of(&leaving.status(), "a")["terminated"]["exitCode"],
        1
    );
}

#[test]
fn exits_that_were_not_observed() {
    let mut fixture = one().sandbox().with(running("a", 0));
    fixture.publish();
    fixture.containers.clear();
    let status = fixture.publish();
    assert_eq!(
        state_of(&status, "a")["waiting"]["reason"],
        "ContainerCreating"
    );
    let last = container_status(&status, "a")
        .last_state
        .clone()
        .unwrap()
        .terminated
        .unwrap();
    assert_eq!(
        (last.exit_code, last.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
    assert_eq!(
        (
            container_status(&status, "a").restart_count,
            status.phase.as_deref()
        ),
        (1, Some("Running"))
    );
    assert_eq!(fixture.status(), status, "computed twice, counted once");
}

#[test]
fn published_exits_stay_after_the_container_is_removed() {
    let mut fixture = one().sandbox().with(exited("a", 4, 9));
    let published = fixture.publish();
    fixture.containers.clear();
    assert_eq!(
        container_status(&fixture.status(), "a"),
        container_status(&published, "a")
    );
}

#[test]
fn published_exits_are_not_replaced_by_earlier_ones() {
    let mut fixture = one()
        .sandbox()
        .with(exited("a", 0, 3))
        .with(exited("a", 1, 9));
    fixture.worker_state = PodWorkerState::Terminating;
    let published = fixture.publish();
    fixture.containers.remove(0);
    assert_eq!(
        container_status(&fixture.status(), "a"),
        container_status(&published, "a")
    );
    // A later exit is published even with a lower attempt.
    fixture.containers[0].id = "new".into();
    fixture.containers[0].finished_at = Some(at(1000));
    let id = container_status(&fixture.status(), "a")
        .container_id
        .clone();
    assert_eq!(id.as_deref(), Some("containerd://new"));
}

#[test]
fn the_waiting_state_stays_until_the_next_start_has_completed() {
    let mut fixture = one()
        .sandbox()
        .with(exited("a", 0, 3))
        .waiting("a", reason::CRASH_LOOP_BACK_OFF);
    let waiting = fixture.publish();
    fixture.waiting.clear();
    let mut fixture = fixture.waiting("a", reason::POST_START_HOOK);
    for phase in [ContainerPhase::Created, ContainerPhase::Running] {
        assert_eq!(
            container_status(&fixture.publish(), "a"),
            container_status(&waiting, "a")
        );
        fixture
            .containers
            .retain(|container| container.attempt == 0);
        fixture = fixture.with(super::container_in_phase("a", 1, phase));
    }
    assert_eq!(
        container_status(&fixture.publish(), "a"),
        container_status(&waiting, "a")
    );
    fixture.waiting.clear();
    assert_eq!(container_status(&fixture.publish(), "a").restart_count, 1);
}

#[test]
fn restart_counts_never_decrease() {
    let mut fixture = one().sandbox().with(exited("a", 4, 9));
    fixture.publish();
    fixture.containers = vec![RuntimeContainer {
        id: "new".into(),
        ..running("a", 0)
    }];
    let status = fixture.publish();
    assert_eq!(container_status(&status, "a").restart_count, 5);
    assert_eq!(
        container_status(&status, "a")
            .last_state
            .as_ref()
            .unwrap()
            .terminated
            .as_ref()
            .unwrap()
            .exit_code,
        9
    );
    assert_eq!(fixture.status(), status);
}

#[test]
fn removed_init_containers_have_completed() {
    let spec = json!({"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
    let status = fixture(spec)
        .sandbox()
        .with(running("s", 0))
        .with(running("a", 0))
        .status();
    assert_eq!(state_of(&status, "i")["terminated"]["reason"], "Completed");
    assert!(container_status(&status, "i").ready);
    assert_eq!(
        (
            container_status(&status, "s").ready,
            container_status(&status, "s").started
        ),
        (true, Some(true))
    );
}

#[test]
fn readiness_needs_startup() {
    let spec = json!({"containers": [{"name": "a", "startupProbe": {"exec": {}}, "readinessProbe": {"exec": {}}}]});
    let flags = |fixture: &Fixture| {
        let status = fixture.status();
        (
            container_status(&status, "a").started.unwrap(),
            container_status(&status, "a").ready,
        )
    };
    let fixture = fixture(spec).sandbox().with(running("a", 0));
    assert_eq!(flags(&fixture), (false, false));
    assert_eq!(
        flags(
            &fixture
                .clone()
                .probe_result("a0", ProbeKind::Readiness, true, 20)
        ),
        (false, false)
    );
    let mut started = fixture.probe_result("a0", ProbeKind::Startup, true, 20);
    assert_eq!(flags(&started), (true, false));
    started = started.probe_result("a0", ProbeKind::Readiness, true, 30);
    assert_eq!(flags(&started), (true, true));
    assert_eq!(
        flags(
            &started
                .clone()
                .probe_result("a0", ProbeKind::Readiness, false, 40)
        ),
        (true, false)
    );
    // A container stays started; another one has to start first.
    started.publish();
    started.probe_results.clear();
    // A container published as ready stays ready until its probe has a result.
    assert_eq!(flags(&started), (true, true));
    let failing = started
        .clone()
        .probe_result("a0", ProbeKind::Readiness, false, 50);
    assert_eq!(flags(&failing), (true, false));
    assert_eq!(flags(&started.with(running("a", 1))), (false, false));
}

#[test]
fn ephemeral_containers_are_never_ready() {
    let spec = json!({"containers": [{"name": "a"}], "ephemeralContainers": [{"name": "e", "image": "x"}]});
    let status = fixture(spec)
        .sandbox()
        .with(running("a", 0))
        .with(running("e", 0))
        .status();
    assert_eq!(
        (
            container_status(&status, "e").ready,
            container_status(&status, "e").started
        ),
        (false, None)
    );
    assert_eq!(
        status.ephemeral_container_statuses.map(|list| list.len()),
        Some(1)
    );
}

#[test]
fn starting_containers_are_not_published() {
    let mut fixture = one();
    fixture = fixture.sandbox();
    let before = fixture.publish();
    fixture = fixture.with(super::container_in_phase("a", 0, ContainerPhase::Created));
    assert_eq!(
        fixture.status(),
        before,
        "nothing new to a container only created"
    );
    // Its postStart hook has not ended.
    fixture.containers.clear();
    fixture = fixture
        .with(running("a", 0))
        .waiting("a", reason::POST_START_HOOK);
    assert_eq!(
        state_of(&fixture.status(), "a")["waiting"]["reason"],
        "ContainerCreating"
    );
    assert_eq!(fixture.phase(), "Pending");
    fixture.waiting.clear();
    let running = fixture.publish();
    assert!(container_status(&running, "a").ready);
    // A published status stays.
    let again = fixture.waiting("a", reason::POST_START_HOOK);
    assert_eq!(again.status(), running);
}

#[test]
fn the_user_is_published() {
    let user = LinuxContainerUser {
        uid: 1000,
        gid: 2000,
        supplemental_groups: Some(vec![3000]),
    };
    let container = RuntimeContainer {
        user: Some(user.clone()),
        ..exited("a", 0, 0)
    };
    let status = one().sandbox().with(container).status();
    assert_eq!(
        container_status(&status, "a").user.clone().unwrap().linux,
        Some(user)
    );
}

#[test]
fn failed_starts_have_the_epoch_as_start_time() {
    let container = RuntimeContainer {
        started_at: None,
        ..exited("a", 0, 128)
    };
    let status = one().sandbox().with(container).status();
    assert_eq!(
        state_of(&status, "a")["terminated"]["startedAt"],
        "1970-01-01T00:00:00Z"
    );
}
