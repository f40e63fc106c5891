use super::*;

fn two(policy: &str) -> Fixture {
    fixture(json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]}))
        .sandbox()
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
            Some(container_in_phase("a", 0, ContainerPhase::Created)),
            Some(running("b", 0)),
            "Pending",
        ),
    ] {
        let mut fixture = two(policy);
        let name = format!(
            "{policy} {:?} {:?}",
            a.as_ref().map(|c| c.phase),
            b.as_ref().map(|c| c.phase)
        );
        fixture.containers = [a, b].into_iter().flatten().collect();
        assert_eq!(fixture.phase(), expected, "{name}");
    }
}

#[test]
fn crash_looping_is_running() {
    let fixture = two("Always")
        .with(running("a", 0))
        .with(exited("b", 3, 1))
        .waiting("b", "CrashLoopBackOff");
    assert_eq!(fixture.phase(), "Running");
    let all = two("Always")
        .with(exited("a", 3, 1))
        .with(exited("b", 3, 1))
        .waiting("a", "CrashLoopBackOff")
        .waiting("b", "CrashLoopBackOff");
    assert_eq!(all.phase(), "Running");
}

#[test]
fn init_containers() {
    let init = |policy: &str| {
        fixture(json!({"restartPolicy": policy, "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]})).sandbox()
    };
    assert_eq!(init("Always").phase(), "Pending");
    assert_eq!(init("Always").with(running("i", 0)).phase(), "Pending");
    assert_eq!(init("Always").with(exited("i", 0, 1)).phase(), "Pending");
    assert_eq!(
        init("Always")
            .with(exited("i", 0, 1))
            .waiting("i", "CrashLoopBackOff")
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
        fixture(spec).sandbox()
    };
    assert_eq!(side("Never").with(running("s", 0)).phase(), "Pending");
    let up = side("Never")
        .with(running("s", 0))
        .probe_result("s0", ProbeKind::Startup, true, 20);
    assert_eq!(up.clone().phase(), "Pending");
    assert_eq!(up.clone().with(running("a", 0)).phase(), "Running");
    // The sidecar still runs after the regular containers: the pod is running.
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
        fixture(spec.clone())
            .sandbox()
            .with(exited("a", 0, 42))
            .phase(),
        "Running"
    );
    assert_eq!(
        fixture(spec).sandbox().with(exited("a", 0, 1)).phase(),
        "Failed"
    );
}

#[test]
fn stopped_pods_have_terminated_with_any_policy() {
    let stopped = |code, source: &str| {
        let fixture = fixture_from_source(
            json!({"restartPolicy": "Always", "containers": [{"name": "a"}]}),
            source,
        )
        .sandbox();
        Fixture {
            worker_state: PodWorkerState::Terminating,
            ..fixture.with(exited("a", 0, code))
        }
        .phase()
    };
    assert_eq!(stopped(0, "api"), "Succeeded");
    assert_eq!(stopped(137, "api"), "Failed");
    assert_eq!(stopped(0, "file"), "Running");
}

#[test]
fn terminal_phases_never_change() {
    let mut fixture = two("Never").with(exited("a", 0, 1)).with(exited("b", 0, 0));
    assert_eq!(fixture.publish().phase.as_deref(), Some("Failed"));
    fixture.containers = vec![running("a", 1), running("b", 1)];
    assert_eq!(fixture.phase(), "Failed");
}

#[test]
fn decisions_take_effect_at_once() {
    let mut fixture = two("Always").with(running("a", 0)).with(running("b", 0));
    fixture.terminal = Some(TerminalDecision {
        phase: "Failed".into(),
        reason: "Evicted".into(),
        message: "The node was low on resource: memory.".into(),
        decided_at: Some(at(500)),
        disruption_target: true,
    });
    let status = fixture.publish();
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
    // Reason and message stay without the decision.
    fixture.terminal = None;
    let later = fixture.status();
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
fn rejected_pods_have_no_container_statuses() {
    let mut fixture = fixture(json!({"containers": [{"name": "a"}]}));
    fixture.terminal = Some(TerminalDecision {
        phase: "Failed".into(),
        reason: "NodePorts".into(),
        message: "Pod was rejected: port taken".into(),
        decided_at: Some(at(3)),
        disruption_target: false,
    });
    let status = fixture.status();
    assert_eq!(
        (status.phase.as_deref(), status.container_statuses.is_none()),
        (Some("Failed"), true)
    );
    // As upstream, there is the reason and little else.
    assert!(status.conditions.is_none() && status.host_ip.is_none());
    assert!(status.start_time.is_some() && status.qos_class.is_some());
}

#[test]
fn all_containers_of_a_terminated_pod_are_terminated() {
    let spec = json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}, {"name": "k"}]});
    let mut fixture = Fixture {
        worker_state: PodWorkerState::Terminated,
        ..fixture(spec)
            .sandbox()
            .with(exited("i", 0, 0))
            .with(running("j", 0))
    };
    let status = fixture.publish();
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
    let run = Fixture {
        worker_state: PodWorkerState::Terminated,
        ..two("Always").with(running("a", 0)).with(exited("b", 0, 0))
    }
    .status();
    assert_eq!(state_of(&run, "a")["terminated"]["exitCode"], 137);
}

#[test]
fn deferred_terminal_phases_need_a_decision() {
    let mut fixture = two("Never")
        .with(exited("a", 0, 0))
        .with(exited("b", 0, 128));
    fixture.defer_terminal_phase = true;
    assert_eq!(fixture.phase(), "Running");
    fixture.publish();
    fixture.terminal = Some(TerminalDecision {
        phase: "Succeeded".into(),
        reason: String::new(),
        message: String::new(),
        decided_at: Some(at(5)),
        disruption_target: false,
    });
    assert_eq!(fixture.phase(), "Succeeded");
}

#[test]
fn conditions_of_a_pod_that_never_ran_precede_its_termination() {
    let mut fixture = Fixture {
        worker_state: PodWorkerState::Terminated,
        ..fixture(json!({"containers": [{"name": "a", "image": "x"}]}))
    };
    for _ in 0..2 {
        let status = fixture.publish();
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        let end = &state_of(&status, "a")["terminated"];
        assert_eq!(end["reason"], "ContainerStatusUnknown");
        let ready = condition(&status, condition::READY);
        assert_eq!(ready.reason.as_deref(), Some("ContainersNotReady"));
    }
}

#[test]
fn stopped_init_containers_have_not_completed() {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
    // It ends at 60.
    for (decided, main) in [(59, "waiting"), (61, "terminated")] {
        let mut fixture = Fixture {
            worker_state: PodWorkerState::Terminated,
            ..fixture(spec.clone()).sandbox().with(exited("i", 0, 0))
        };
        fixture.terminal = Some(TerminalDecision {
            phase: "Failed".into(),
            reason: "DeadlineExceeded".into(),
            message: "m".into(),
            decided_at: Some(at(decided)),
            disruption_target: false,
        });
        assert!(
            state_of(&fixture.status(), "a")[main].is_object(),
            "{decided}"
        );
    }
}

#[test]
fn pod_ips_and_their_order() {
    let ips = |fixture: &Fixture| {
        let status = fixture.status();
        (
            status.pod_ip.clone(),
            status.pod_ips.unwrap_or_default().len(),
            status.host_ip,
        )
    };
    let mut fixture = super::fixture(json!({"containers": [{"name": "a"}]})).sandbox();
    assert_eq!(
        ips(&fixture),
        (Some("10.0.0.1".into()), 2, Some("192.0.2.1".into()))
    );
    fixture.publish();
    fixture.sandboxes[0].ready = false;
    assert_eq!(
        ips(&fixture).0,
        Some("10.0.0.1".into()),
        "until another one is ready"
    );
    fixture.worker_state = PodWorkerState::Terminating;
    fixture.sandboxes.clear();
    assert_eq!(ips(&fixture).0, Some("10.0.0.1".into()), "kept to the end");
    let host = super::fixture(json!({"hostNetwork": true, "containers": [{"name": "a"}]}));
    assert_eq!(ips(&host).0, Some("192.0.2.1".into()));
}
