use super::*;

fn all(status: &PodStatus) -> Vec<(&str, bool, Option<&str>)> {
    let list = status.conditions.iter().flatten();
    list.map(|c| (c.type_.as_str(), c.status == "True", c.reason.as_deref()))
        .collect()
}

#[test]
fn from_first_sight_to_ready() {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a", "readinessProbe": {"exec": {}}}, {"name": "b"}]});
    let mut world = world(spec);
    let first = world.tell();
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

    world = world.sandbox().with(exited("i", 0, 0));
    let initialized = world.tell();
    assert_eq!(
        (
            since(&initialized, "PodReadyToStartContainers"),
            since(&initialized, "Initialized")
        ),
        (1, 60)
    );

    world = world.with(running("a", 0)).with(running("b", 0));
    let unready = world.tell();
    assert!(!is_ready(&unready));
    assert_eq!(
        (since(&unready, "Initialized"), since(&unready, "Ready")),
        (60, 0)
    );

    world = world.verdict("a0", ProbeKind::Readiness, true, 77);
    let ready = world.tell();
    assert!(is_ready(&ready));
    assert_eq!(
        (since(&ready, "Ready"), since(&ready, "ContainersReady")),
        (77, 77)
    );

    // Whoever lost everything that was told before says the same again.
    let forgetful = World {
        previous: None,
        ..world.clone()
    };
    assert_eq!(forgetful.status(), ready);

    world = world.verdict("a0", ProbeKind::Readiness, false, 90);
    let failed = world.tell();
    assert_eq!((is_ready(&failed), since(&failed, "Ready")), (false, 90));
    assert_eq!(
        condition(&failed, "Ready").message.as_deref(),
        Some("containers with unready status: [a]")
    );
}

#[test]
fn a_change_never_lies_before_the_one_it_follows() {
    let mut world =
        world(json!({"containers": [{"name": "a", "readinessProbe": {"exec": {}}}]})).sandbox();
    world = world
        .with(running("a", 0))
        .verdict("a0", ProbeKind::Readiness, true, 90);
    world.tell();
    let back = world
        .verdict("a0", ProbeKind::Readiness, false, 40)
        .status();
    assert_eq!((is_ready(&back), since(&back, "Ready")), (false, 90));
}

#[test]
fn the_sandbox_must_stand() {
    let holds =
        |world: &World| condition(&world.status(), "PodReadyToStartContainers").status == "True";
    let mut world = world(json!({"containers": [{"name": "a"}]})).sandbox();
    assert!(holds(&world));
    let mut none = world.clone();
    none.sandboxes[0].ips.clear();
    assert!(!holds(&none));
    let mut twice = world.clone();
    twice.sandboxes.push(Sandbox {
        id: "t".into(),
        ..world.sandboxes[0].clone()
    });
    assert!(!holds(&twice));
    twice.sandboxes[1].ready = false;
    assert!(holds(&twice));
    let mut host = world.clone();
    host.sandboxes[0].host_network = true;
    assert!(!holds(&host));
    world.sandboxes[0].ready = false;
    assert!(!holds(&world));
}

#[test]
fn readiness_gates() {
    let spec = json!({"containers": [{"name": "a"}], "readinessGates": [{"conditionType": "example.com/lb"}]});
    let mut world = world(spec).sandbox().with(running("a", 0));
    let closed = world.tell();
    assert_eq!(condition(&closed, "ContainersReady").status, "True");
    let ready = condition(&closed, "Ready");
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
    world
        .previous
        .as_mut()
        .unwrap()
        .conditions
        .as_mut()
        .unwrap()
        .push(gate("False"));
    assert_eq!(
        condition(&world.tell(), "Ready").message.as_deref(),
        Some("the status of pod readiness gate \"example.com/lb\" is not \"True\", but False")
    );
    for c in world
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
    assert!(is_ready(&world.status()));
}

#[test]
fn ended_pods() {
    let never = |code| {
        world(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]}))
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
fn a_resize_that_waits_is_told() {
    let mut world = world(json!({"containers": [{"name": "a"}]}));
    world.resize = Some(PendingResize {
        reason: "Deferred".into(),
        message: "no room".into(),
        since: Some(at(7)),
    });
    let status = world.tell();
    let told = condition(&status, "PodResizePending");
    assert_eq!(
        serde_json::to_value(told).unwrap(),
        json!({"type": "PodResizePending", "status": "True", "reason": "Deferred",
            "message": "no room", "observedGeneration": 3,
            "lastTransitionTime": serde_json::to_value(Time(at(7))).unwrap(),
            "lastProbeTime": serde_json::to_value(Time(at(7))).unwrap()})
    );
    // Still pending, in other words: since then.
    world.resize.as_mut().unwrap().since = Some(at(9));
    let told = world.tell();
    let told = condition(&told, "PodResizePending");
    assert_eq!(told.last_transition_time, Some(Time(at(7))));
    world.resize = None;
    let kinds = world.status().conditions.unwrap();
    assert!(kinds.iter().all(|c| c.type_ != "PodResizePending"));
}

#[test]
fn class_start_and_resources() {
    let status =
        world(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}))
            .status();
    assert_eq!(status.qos_class.as_deref(), Some("Burstable"));
    assert_eq!(status.start_time, Some(Time(at(0))));
    assert_eq!(
        serde_json::to_value(&status.allocated_resources).unwrap(),
        json!({"cpu": "1"})
    );
    assert_eq!(
        world(json!({"containers": [{"name": "a"}]}))
            .status()
            .resources,
        None
    );
}
