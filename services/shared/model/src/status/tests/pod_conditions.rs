use super::*;

fn all(status: &PodStatus) -> Vec<(&str, bool, Option<&str>)> {
    let list = status.conditions.iter().flatten();
    list.map(|c| (c.type_.as_str(), c.status == "True", c.reason.as_deref()))
        .collect()
}

#[test]
fn conditions_from_first_seen_to_ready() {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a", "readinessProbe": {"exec": {}}}, {"name": "b"}]});
    let mut fixture = fixture(spec);
    let first = fixture.publish();
    assert_eq!(
        all(&first),
        [
            ("PodReadyToStartContainers", false, None),
            ("Initialized", false, Some("ContainersNotInitialized")),
            ("Ready", false, Some("ContainersNotReady")),
            ("ContainersReady", false, Some("ContainersNotReady")),
            ("PodScheduled", true, None),
        ]
    );
    assert_eq!(
        condition(&first, "Ready").message.as_deref(),
        Some("containers with unready status: [a b]")
    );
    assert_eq!(
        condition(&first, "Initialized").message.as_deref(),
        Some("containers with incomplete status: [i]")
    );
    assert_eq!(
        (
            condition(&first, "Ready").observed_generation,
            first.observed_generation
        ),
        (Some(3), Some(3))
    );
    assert_eq!(since(&first, "Ready"), 0);

    fixture = fixture.sandbox().with(exited("i", 0, 0));
    let initialized = fixture.publish();
    assert_eq!(
        (
            since(&initialized, "PodReadyToStartContainers"),
            since(&initialized, "Initialized")
        ),
        (1, 60)
    );

    fixture = fixture.with(running("a", 0)).with(running("b", 0));
    let unready = fixture.publish();
    assert!(!is_ready(&unready));
    assert_eq!(
        (since(&unready, "Initialized"), since(&unready, "Ready")),
        (60, 0)
    );

    fixture = fixture.probe_result("a0", ProbeKind::Readiness, true, 77);
    let ready = fixture.publish();
    assert!(is_ready(&ready));
    assert_eq!(
        (since(&ready, "Ready"), since(&ready, "ContainersReady")),
        (77, 77)
    );

    // Without the previous status, the result is the same.
    let forgetful = Fixture {
        previous: None,
        ..fixture.clone()
    };
    assert_eq!(forgetful.status(), ready);

    fixture = fixture.probe_result("a0", ProbeKind::Readiness, false, 90);
    let failed = fixture.publish();
    assert_eq!((is_ready(&failed), since(&failed, "Ready")), (false, 90));
    assert_eq!(
        condition(&failed, "Ready").message.as_deref(),
        Some("containers with unready status: [a]")
    );
}

#[test]
fn transition_times_never_decrease() {
    let mut fixture =
        fixture(json!({"containers": [{"name": "a", "readinessProbe": {"exec": {}}}]})).sandbox();
    fixture = fixture
        .with(running("a", 0))
        .probe_result("a0", ProbeKind::Readiness, true, 90);
    fixture.publish();
    let back = fixture
        .probe_result("a0", ProbeKind::Readiness, false, 40)
        .status();
    assert_eq!((is_ready(&back), since(&back, "Ready")), (false, 90));
}

#[test]
fn the_sandbox_has_to_be_ready() {
    let is_true = |fixture: &Fixture| {
        condition(&fixture.status(), "PodReadyToStartContainers").status == "True"
    };
    let mut fixture = fixture(json!({"containers": [{"name": "a"}]})).sandbox();
    assert!(is_true(&fixture));
    let mut none = fixture.clone();
    none.sandboxes[0].ips.clear();
    assert!(!is_true(&none));
    let mut twice = fixture.clone();
    twice.sandboxes.push(RuntimeSandbox {
        id: "t".into(),
        ..fixture.sandboxes[0].clone()
    });
    assert!(!is_true(&twice));
    twice.sandboxes[1].ready = false;
    assert!(is_true(&twice));
    let mut host = fixture.clone();
    host.sandboxes[0].host_network = true;
    assert!(!is_true(&host));
    fixture.sandboxes[0].ready = false;
    assert!(!is_true(&fixture));
}

#[test]
fn readiness_gates() {
    let spec = json!({"containers": [{"name": "a"}], "readinessGates": [{"conditionType": "example.com/lb"}]});
    let mut fixture = fixture(spec).sandbox().with(running("a", 0));
    let not_ready = fixture.publish();
    assert_eq!(condition(&not_ready, "ContainersReady").status, "True");
    let ready = condition(&not_ready, "Ready");
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_deref()),
        ("False", Some("ReadinessGatesNotReady"))
    );
    assert_eq!(
        ready.message.as_deref(),
        Some("corresponding condition of pod readiness gate \"example.com/lb\" does not exist.")
    );
    let gate = |status: &str| PodCondition {
        type_: "example.com/lb".into(),
        status: status.into(),
        ..Default::default()
    };
    fixture
        .previous
        .as_mut()
        .unwrap()
        .conditions
        .as_mut()
        .unwrap()
        .push(gate("False"));
    assert_eq!(
        condition(&fixture.publish(), "Ready").message.as_deref(),
        Some("the status of pod readiness gate \"example.com/lb\" is not \"True\", but False")
    );
    for c in fixture
        .previous
        .as_mut()
        .unwrap()
        .conditions
        .iter_mut()
        .flatten()
    {
        if c.type_ == "example.com/lb" {
            c.status = "True".into();
        }
    }
    assert!(is_ready(&fixture.status()));
}

#[test]
fn terminated_pods() {
    let never = |code| {
        fixture(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]}))
            .sandbox()
            .with(exited("a", 0, code))
    };
    let well = never(0).status();
    assert_eq!(
        (
            condition(&well, "Ready").reason.as_deref(),
            since(&well, "Ready")
        ),
        (Some("PodCompleted"), 60)
    );
    assert_eq!(
        condition(&well, "Initialized").reason.as_deref(),
        Some("PodCompleted")
    );
    assert_eq!(
        condition(&never(1).status(), "ContainersReady")
            .reason
            .as_deref(),
        Some("PodFailed")
    );
}

#[test]
fn pending_resizes_are_published() {
    let mut fixture = fixture(json!({"containers": [{"name": "a"}]}));
    fixture.resize_pending = Some(PendingResize {
        reason: "Deferred".into(),
        message: "no capacity".into(),
        since: Some(at(7)),
    });
    let status = fixture.publish();
    let pending = condition(&status, "PodResizePending");
    assert_eq!(
        serde_json::to_value(pending).unwrap(),
        json!({"type": "PodResizePending", "status": "True", "reason": "Deferred",
            "message": "no capacity", "observedGeneration": 3,
            "lastTransitionTime": serde_json::to_value(Time(at(7))).unwrap(),
            "lastProbeTime": serde_json::to_value(Time(at(7))).unwrap()})
    );
    // Another message does not change the transition time.
    fixture.resize_pending.as_mut().unwrap().since = Some(at(9));
    let status = fixture.publish();
    let pending = condition(&status, "PodResizePending");
    assert_eq!(pending.last_transition_time, Some(Time(at(7))));
    fixture.resize_pending = None;
    let kinds = fixture.status().conditions.unwrap();
    assert!(kinds.iter().all(|c| c.type_ != "PodResizePending"));
}

#[test]
fn qos_class_start_time_and_resources() {
    let mut fixture_with_cpu =
        fixture(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}));
    let status = fixture_with_cpu.status();
    assert_eq!(status.qos_class.as_deref(), Some("Burstable"));
    assert_eq!(status.start_time, Some(Time(at(0))));
    assert_eq!(
        serde_json::to_value(&status.allocated_resources).unwrap(),
        json!({"cpu": "1"})
    );
    assert!(status.resources.is_some());
    fixture_with_cpu.pod_level_resources = false;
    let status = fixture_with_cpu.status();
    assert_eq!((status.resources, status.allocated_resources), (None, None));
    assert_eq!(
        fixture(json!({"containers": [{"name": "a"}]}))
            .status()
            .resources,
        None
    );
}
