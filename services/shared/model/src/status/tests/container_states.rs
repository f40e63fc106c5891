use super::*;
use crate::constants::reason;

fn one() -> World {
    world(
        json!({"containers": [{"name": "a", "image": "x:1", "resources": {"requests": {"cpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}]}]}),
    )
}

#[test]
fn before_anything_happens_a_container_is_being_created() {
    let status = one().status();
    assert_eq!(
        state_of(&status, "a"),
        json!({"waiting": {"reason": "ContainerCreating"}})
    );
    assert_eq!(
        (
            of(&status, "a").ready,
            of(&status, "a").started,
            of(&status, "a").image.as_str()
        ),
        (false, Some(false), "x:1")
    );
    let with_init =
        world(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]})).status();
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
fn a_running_container_in_full() {
    let status = one().sandbox().with(running("a", 2)).status();
    assert_eq!(
        serde_json::to_value(of(&status, "a")).unwrap(),
        json!({"name": "a", "image": "docker.io/library/x:1", "imageID": "sha256:1", "containerID": "containerd://a2",
            "restartCount": 2, "ready": true, "started": true, "state": {"running": {"startedAt": "1970-01-12T13:50:11Z"}},
            "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": "Disabled"}]})
    );
}

#[test]
fn the_second_newest_is_the_last_state() {
    let status = one()
        .sandbox()
        .with(exited("a", 0, 3))
        .with(exited("a", 1, 4))
        .with(running("a", 2))
        .status();
    let last = of(&status, "a")
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
fn a_note_makes_an_ended_container_wait() {
    let status = one()
        .sandbox()
        .with(exited("a", 0, 3))
        .note("a", "CrashLoopBackOff")
        .status();
    assert_eq!(
        state_of(&status, "a"),
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "why"}})
    );
    assert_eq!(
        of(&status, "a")
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
fn a_note_says_nothing_of_a_container_that_runs_or_stays() {
    let noted = one().sandbox().note("a", "CrashLoopBackOff");
    assert!(state::is_running(of(
        &noted.clone().with(running("a", 0)).status(),
        "a"
    )));
    let mut never = world(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]}))
        .note("a", "ErrImagePull");
    assert_eq!(
        state_of(&never.status(), "a")["waiting"]["reason"],
        "ErrImagePull"
    );
    never.containers.push(exited("a", 0, 1));
    assert_eq!(state_of(&never.status(), "a")["terminated"]["exitCode"], 1);
    let leaving = World {
        stage: Stage::Terminating,
        ..noted.with(exited("a", 0, 1))
    };
    assert_eq!(
        state_of(&leaving.status(), "a")["terminated"]["exitCode"],
        1
    );
}

#[test]
fn an_end_that_went_by_unseen() {
    let mut world = one().sandbox().with(running("a", 0));
    world.tell();
    world.containers.clear();
    let status = world.tell();
    assert_eq!(
        state_of(&status, "a")["waiting"]["reason"],
        "ContainerCreating"
    );
    let last = of(&status, "a")
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
        (of(&status, "a").restart_count, status.phase.as_deref()),
        (1, Some("Running"))
    );
    assert_eq!(world.status(), status, "told twice, counted once");
}

#[test]
fn an_end_that_was_told_stays_told() {
    let mut world = one().sandbox().with(exited("a", 4, 9));
    let told = world.tell();
    world.containers.clear();
    assert_eq!(of(&world.status(), "a"), of(&told, "a"));
}

#[test]
fn an_end_that_was_told_is_the_last_though_an_earlier_one_is_all_that_is_left() {
    let mut world = one()
        .sandbox()
        .with(exited("a", 0, 3))
        .with(exited("a", 1, 9));
    world.stage = Stage::Terminating;
    let told = world.tell();
    world.containers.remove(0);
    assert_eq!(of(&world.status(), "a"), of(&told, "a"));
    // One that ended later is news, whatever the runtime counts.
    world.containers[0].id = "new".into();
    world.containers[0].finished_at = Some(at(1000));
    let id = of(&world.status(), "a").container_id.clone();
    assert_eq!(id.as_deref(), Some("containerd://new"));
}

#[test]
fn what_it_waited_for_is_told_until_its_next_start_is_whole() {
    let mut world = one()
        .sandbox()
        .with(exited("a", 0, 3))
        .note("a", reason::CRASH_LOOP_BACK_OFF);
    let waits = world.tell();
    world.notes.clear();
    let mut world = world.note("a", reason::POST_START_HOOK);
    for phase in [ContainerPhase::Created, ContainerPhase::Running] {
        assert_eq!(of(&world.tell(), "a"), of(&waits, "a"));
        world.containers.retain(|container| container.attempt == 0);
        world = world.with(super::made("a", 1, phase));
    }
    assert_eq!(of(&world.tell(), "a"), of(&waits, "a"));
    world.notes.clear();
    assert_eq!(of(&world.tell(), "a").restart_count, 1);
}

#[test]
fn a_runtime_that_lost_its_count_does_not_set_it_back() {
    let mut world = one().sandbox().with(exited("a", 4, 9));
    world.tell();
    world.containers = vec![Container {
        id: "new".into(),
        ..running("a", 0)
    }];
    let status = world.tell();
    assert_eq!(of(&status, "a").restart_count, 5);
    assert_eq!(
        of(&status, "a")
            .last_state
            .as_ref()
            .unwrap()
            .terminated
            .as_ref()
            .unwrap()
            .exit_code,
        9
    );
    assert_eq!(world.status(), status);
}

#[test]
fn init_containers_whose_record_is_gone_ended_well() {
    let spec = json!({"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
    let status = world(spec)
        .sandbox()
        .with(running("s", 0))
        .with(running("a", 0))
        .status();
    assert_eq!(state_of(&status, "i")["terminated"]["reason"], "Completed");
    assert!(of(&status, "i").ready);
    assert_eq!(
        (of(&status, "s").ready, of(&status, "s").started),
        (true, Some(true))
    );
}

#[test]
fn startup_gates_readiness() {
    let spec = json!({"containers": [{"name": "a", "startupProbe": {"exec": {}}, "readinessProbe": {"exec": {}}}]});
    let flags = |world: &World| {
        let status = world.status();
        (of(&status, "a").started.unwrap(), of(&status, "a").ready)
    };
    let world = world(spec).sandbox().with(running("a", 0));
    assert_eq!(flags(&world), (false, false));
    assert_eq!(
        flags(&world.clone().verdict("a0", ProbeKind::Readiness, true, 20)),
        (false, false)
    );
    let mut started = world.verdict("a0", ProbeKind::Startup, true, 20);
    assert_eq!(flags(&started), (true, false));
    started = started.verdict("a0", ProbeKind::Readiness, true, 30);
    assert_eq!(flags(&started), (true, true));
    assert_eq!(
        flags(
            &started
                .clone()
                .verdict("a0", ProbeKind::Readiness, false, 40)
        ),
        (true, false)
    );
    // Once started, always started; another container begins anew.
    started.tell();
    started.verdicts.clear();
    // So has one that was told as ready, until its probe says otherwise.
    assert_eq!(flags(&started), (true, true));
    let failing = started
        .clone()
        .verdict("a0", ProbeKind::Readiness, false, 50);
    assert_eq!(flags(&failing), (true, false));
    assert_eq!(flags(&started.with(running("a", 1))), (false, false));
}

#[test]
fn ephemeral_containers_are_never_ready() {
    let spec = json!({"containers": [{"name": "a"}], "ephemeralContainers": [{"name": "e", "image": "x"}]});
    let status = world(spec)
        .sandbox()
        .with(running("a", 0))
        .with(running("e", 0))
        .status();
    assert_eq!(
        (of(&status, "e").ready, of(&status, "e").started),
        (false, None)
    );
    assert_eq!(
        status.ephemeral_container_statuses.map(|list| list.len()),
        Some(1)
    );
}

#[test]
fn addresses_and_their_order() {
    let ips = |world: &World| {
        let status = world.status();
        (
            status.pod_ip.clone(),
            status.pod_ips.unwrap_or_default().len(),
            status.host_ip,
        )
    };
    let mut world = one().sandbox();
    assert_eq!(
        ips(&world),
        (Some("10.0.0.1".into()), 2, Some("192.0.2.1".into()))
    );
    world.tell();
    world.sandboxes[0].ready = false;
    assert_eq!(
        ips(&world).0,
        Some("10.0.0.1".into()),
        "until another stands"
    );
    world.stage = Stage::Terminating;
    world.sandboxes.clear();
    assert_eq!(ips(&world).0, Some("10.0.0.1".into()), "told to the end");
    let host = super::world(json!({"hostNetwork": true, "containers": [{"name": "a"}]}));
    assert_eq!(ips(&host).0, Some("192.0.2.1".into()));
}

#[test]
fn a_container_that_is_being_started_is_not_told() {
    let mut made = one();
    made = made.sandbox();
    let before = made.tell();
    made = made.with(super::made("a", 0, ContainerPhase::Created));
    assert_eq!(
        made.status(),
        before,
        "nothing new to a container only created"
    );
    // Its postStart hook has not ended.
    made.containers.clear();
    made = made
        .with(running("a", 0))
        .note("a", reason::POST_START_HOOK);
    assert_eq!(
        state_of(&made.status(), "a")["waiting"]["reason"],
        "ContainerCreating"
    );
    assert_eq!(made.phase(), "Pending");
    made.notes.clear();
    let runs = made.tell();
    assert!(of(&runs, "a").ready);
    // What has been told once stands.
    let again = made.note("a", reason::POST_START_HOOK);
    assert_eq!(again.status(), runs);
}

#[test]
fn whom_it_runs_as_is_told() {
    let user = LinuxContainerUser {
        uid: 1000,
        gid: 2000,
        supplemental_groups: Some(vec![3000]),
    };
    let container = Container {
        user: Some(user.clone()),
        ..exited("a", 0, 0)
    };
    let status = one().sandbox().with(container).status();
    assert_eq!(of(&status, "a").user.clone().unwrap().linux, Some(user));
}

#[test]
fn a_start_that_failed_began_at_no_time() {
    let container = Container {
        started_at: None,
        ..exited("a", 0, 128)
    };
    let status = one().sandbox().with(container).status();
    assert_eq!(
        state_of(&status, "a")["terminated"]["startedAt"],
        "1970-01-01T00:00:00Z"
    );
}
