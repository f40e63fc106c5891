use super::*;

fn two(policy: &str) -> World {
    world(json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]})).sandbox()
}

/// Upstream's tables (TestPodPhaseWithRestartAlways, …Never, …OnFailure).
#[test]
fn regular_containers() {
    for (policy, a, b, expected) in [
        ("Always", None, None, "Pending"),
        (
            "Always",
            Some(running("a", 0)),
            Some(running("b", 0)),
            "Running",
        ),
        (
            "Always",
            Some(exited("a", 0, 0)),
            Some(exited("b", 0, 1)),
            "Running",
        ),
        (
            "Always",
            Some(running("a", 0)),
            Some(exited("b", 0, 1)),
            "Running",
        ),
        ("Always", Some(running("a", 0)), None, "Pending"),
        (
            "Never",
            Some(exited("a", 0, 0)),
            Some(exited("b", 0, 0)),
            "Succeeded",
        ),
        (
            "Never",
            Some(exited("a", 0, 1)),
            Some(exited("b", 0, 0)),
            "Failed",
        ),
        (
            "Never",
            Some(running("a", 0)),
            Some(exited("b", 0, 1)),
            "Running",
        ),
        ("Never", Some(running("a", 0)), None, "Pending"),
        (
            "OnFailure",
            Some(exited("a", 0, 0)),
            Some(exited("b", 0, 0)),
            "Succeeded",
        ),
        (
            "OnFailure",
            Some(exited("a", 0, 1)),
            Some(exited("b", 0, 1)),
            "Running",
        ),
        (
            "OnFailure",
            Some(exited("a", 0, 0)),
            Some(exited("b", 0, 1)),
            "Running",
        ),
        (
            "OnFailure",
            Some(made("a", 0, ContainerPhase::Created)),
            Some(running("b", 0)),
            "Pending",
        ),
    ] {
        let mut world = two(policy);
        let name = format!(
            "{policy} {:?} {:?}",
            a.as_ref().map(|c| c.phase),
            b.as_ref().map(|c| c.phase)
        );
        world.containers = [a, b].into_iter().flatten().collect();
        assert_eq!(world.phase(), expected, "{name}");
    }
}

#[test]
fn crash_looping_is_running() {
    let world = two("Always")
        .with(running("a", 0))
        .with(exited("b", 3, 1))
        .note("b", "CrashLoopBackOff");
    assert_eq!(world.phase(), "Running");
    let all = two("Always")
        .with(exited("a", 3, 1))
        .with(exited("b", 3, 1))
        .note("a", "CrashLoopBackOff")
        .note("b", "CrashLoopBackOff");
    assert_eq!(all.phase(), "Running");
}

#[test]
fn init_containers() {
    let init = |policy: &str| {
        world(json!({"restartPolicy": policy, "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]})).sandbox()
    };
    assert_eq!(init("Always").phase(), "Pending");
    assert_eq!(init("Always").with(running("i", 0)).phase(), "Pending");
    assert_eq!(init("Always").with(exited("i", 0, 1)).phase(), "Pending");
    assert_eq!(
        init("Always")
            .with(exited("i", 0, 1))
            .note("i", "CrashLoopBackOff")
            .phase(),
        "Pending"
    );
    assert_eq!(init("Never").with(exited("i", 0, 1)).phase(), "Failed");
    assert_eq!(init("OnFailure").with(exited("i", 0, 1)).phase(), "Pending");
    assert_eq!(init("Never").with(exited("i", 0, 0)).phase(), "Pending");
    assert_eq!(
        init("Never")
            .with(exited("i", 0, 0))
            .with(running("a", 0))
            .phase(),
        "Running"
    );
    assert_eq!(
        init("Never")
            .with(exited("i", 0, 0))
            .with(exited("a", 0, 0))
            .phase(),
        "Succeeded"
    );
}

#[test]
fn sidecars() {
    let side = |policy: &str| {
        let spec = json!({"restartPolicy": policy, "containers": [{"name": "a"}],
            "initContainers": [{"name": "s", "restartPolicy": "Always", "startupProbe": {"exec": {}}}]});
        world(spec).sandbox()
    };
    assert_eq!(side("Never").with(running("s", 0)).phase(), "Pending");
    let up = side("Never")
        .with(running("s", 0))
        .verdict("s0", ProbeKind::Startup, true, 20);
    assert_eq!(up.clone().phase(), "Pending");
    assert_eq!(up.clone().with(running("a", 0)).phase(), "Running");
    // Regular containers have ended and the sidecar still runs: the pod runs until it is gone.
    assert_eq!(up.with(exited("a", 0, 0)).phase(), "Running");
    assert_eq!(
        side("Never")
            .with(exited("s", 0, 137))
            .with(exited("a", 0, 0))
            .phase(),
        "Succeeded"
    );
    // A sidecar that restarts does not make the pod pending again.
    assert_eq!(
        side("Never")
            .with(running("a", 0))
            .with(running("s", 1))
            .phase(),
        "Running"
    );
}

#[test]
fn restart_rules() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "a", "restartPolicy": "Never", "restartPolicyRules": [
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}]});
    assert_eq!(
        world(spec.clone())
            .sandbox()
            .with(exited("a", 0, 42))
            .phase(),
        "Running"
    );
    assert_eq!(
        world(spec).sandbox().with(exited("a", 0, 1)).phase(),
        "Failed"
    );
}

#[test]
fn a_stopped_pod_has_ended_whatever_its_policy() {
    let stopped = |code, source: &str| {
        let world = sourced(
            json!({"restartPolicy": "Always", "containers": [{"name": "a"}]}),
            source,
        )
        .sandbox();
        World {
            stage: Stage::Terminating,
            ..world.with(exited("a", 0, code))
        }
        .phase()
    };
    assert_eq!(stopped(0, "api"), "Succeeded");
    assert_eq!(stopped(137, "api"), "Failed");
    assert_eq!(stopped(0, "file"), "Running");
}

#[test]
fn an_end_is_never_left() {
    let mut world = two("Never").with(exited("a", 0, 1)).with(exited("b", 0, 0));
    assert_eq!(world.tell().phase.as_deref(), Some("Failed"));
    world.containers = vec![running("a", 1), running("b", 1)];
    assert_eq!(world.phase(), "Failed");
}

#[test]
fn a_decision_makes_the_phase_at_once() {
    let mut world = two("Always").with(running("a", 0)).with(running("b", 0));
    world.terminal = Some(Terminal {
        phase: "Failed".into(),
        reason: "Evicted".into(),
        message: "The node was low on resource: memory.".into(),
        decided_at: Some(at(500)),
        disruption_target: true,
    });
    let status = world.tell();
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Failed"), Some("Evicted"))
    );
    let target = condition(&status, condition::DISRUPTION_TARGET);
    assert_eq!(
        (target.status.as_str(), target.reason.as_deref()),
        ("True", Some("TerminationByKubelet"))
    );
    assert_eq!(since(&status, condition::DISRUPTION_TARGET), 500);
    assert_eq!(
        (
            condition(&status, condition::READY).status.as_str(),
            since(&status, condition::READY)
        ),
        ("False", 500)
    );
    // The words stay when the decision is no longer told.
    world.terminal = None;
    let later = world.status();
    assert_eq!(
        (later.phase.as_deref(), later.reason.as_deref()),
        (Some("Failed"), Some("Evicted"))
    );
    assert_eq!(
        condition(&later, condition::DISRUPTION_TARGET).status,
        "True"
    );
}

#[test]
fn a_refused_pod_has_no_containers() {
    let mut world = world(json!({"containers": [{"name": "a"}]}));
    world.terminal = Some(Terminal {
        phase: "Failed".into(),
        reason: "NodePorts".into(),
        message: "Pod was rejected: port taken".into(),
        decided_at: Some(at(3)),
        disruption_target: false,
    });
    let status = world.status();
    assert_eq!(
        (status.phase.as_deref(), status.container_statuses.is_none()),
        (Some("Failed"), true)
    );
    // As upstream, it is told why and as good as nothing else.
    assert!(status.conditions.is_none() && status.host_ip.is_none());
    assert!(status.start_time.is_some() && status.qos_class.is_some());
}

#[test]
fn in_the_end_every_container_has_one() {
    let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}, {"name": "k"}]});
    let mut world = World {
        stage: Stage::Terminated,
        ..world(spec)
            .sandbox()
            .with(exited("i", 0, 0))
            .with(running("j", 0))
    };
    let status = world.tell();
    assert_eq!(
        state_of(&status, "j")["terminated"]["reason"],
        "ContainerStatusUnknown"
    );
    assert_eq!(
        state_of(&status, "k")["waiting"]["reason"],
        "PodInitializing"
    );
    assert_eq!(
        state_of(&status, "a")["waiting"]["reason"],
        "PodInitializing"
    );
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let run = World {
        stage: Stage::Terminated,
        ..two("Always").with(running("a", 0)).with(exited("b", 0, 0))
    }
    .status();
    assert_eq!(state_of(&run, "a")["terminated"]["exitCode"], 137);
}

#[test]
fn where_ends_are_decided_an_exit_alone_is_none() {
    let mut world = two("Never")
        .with(exited("a", 0, 0))
        .with(exited("b", 0, 128));
    world.ends_are_decided = true;
    assert_eq!(world.phase(), "Running");
    world.tell();
    world.terminal = Some(Terminal {
        phase: "Succeeded".into(),
        reason: String::new(),
        message: String::new(),
        decided_at: Some(at(5)),
        disruption_target: false,
    });
    assert_eq!(world.phase(), "Succeeded");
}

#[test]
fn a_pod_that_never_ran_is_sealed_after_all_is_said() {
    let mut world = World {
        stage: Stage::Terminated,
        ..world(json!({"containers": [{"name": "a", "image": "x"}]}))
    };
    for _ in 0..2 {
        let status = world.tell();
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        let end = &state_of(&status, "a")["terminated"];
        assert_eq!(end["reason"], "ContainerStatusUnknown");
        let ready = condition(&status, condition::READY);
        assert_eq!(ready.reason.as_deref(), Some("ContainersNotReady"));
    }
}

#[test]
fn an_init_container_that_was_told_to_end_has_not_done_its_work() {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
    // It ends at 60.
    for (decided, main) in [(59, "waiting"), (61, "terminated")] {
        let mut world = World {
            stage: Stage::Terminated,
            ..world(spec.clone()).sandbox().with(exited("i", 0, 0))
        };
        world.terminal = Some(Terminal {
            phase: "Failed".into(),
            reason: "DeadlineExceeded".into(),
            message: "m".into(),
            decided_at: Some(at(decided)),
            disruption_target: false,
        });
        assert!(
            state_of(&world.status(), "a")[main].is_object(),
            "{decided}"
        );
    }
}
