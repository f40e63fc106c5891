//! Critical pods: whom they end to make room.

use super::*;

fn critical(requests: Value) -> World {
    let world = world(asking(requests));
    with(world, |pod| {
        let source = ("kubernetes.io/config.source".into(), "file".into());
        pod.metadata.annotations = Some([source].into());
    })
}

#[test]
fn a_critical_pod_makes_room_and_waits_for_it() {
    let mut world = critical(json!({"cpu": "1"}));
    assert_eq!(told(&world), ("waits".into(), "there".into()));
    // Those that end anyhow do.
    let mut ending = holder(demand(QosClass::Guaranteed, &[("cpu", 1500)])).unwrap();
    ending.ending = true;
    world.node.room.ledger.set("there", Some(ending));
    assert_eq!(told(&world), ("waits".into(), String::new()));
    let plan = world.plan();
    assert!(plan.steps.is_empty() && plan.wants_room);
    world.node.room.ledger.set("there", None);
    assert_eq!(verdict(&world), Verdict::Admitted);
}

#[test]
fn a_critical_pod_that_cannot_be_helped_says_so() {
    assert_eq!(
        told(&critical(json!({"cpu": "3"}))),
        (
            "UnexpectedAdmissionError".into(),
            "Unexpected error while attempting to recover from admission failure: preemption: \
             error finding a set of pods to preempt: no set of running pods found to reclaim \
             resources: [(res: cpu, q: 1000), ]"
                .into()
        )
    );
    // Nobody ends for a pod that is refused for something else.
    let mut elsewhere = critical(json!({"cpu": "1"}));
    elsewhere.node.room.labels.clear();
    let mut spec = serde_json::to_value(elsewhere.wanted.manifest.spec()).unwrap();
    spec["nodeSelector"] = json!({"disk": "ssd"});
    let elsewhere = with(elsewhere, |pod| {
        pod.spec = serde_json::from_value(spec).unwrap();
    });
    assert_eq!(told(&elsewhere).0, "NodeAffinity");
}

/// The pods of upstream's own table: two of each class.
fn crowd() -> Ledger {
    let mut ledger = Ledger::default();
    for (uid, qos, cpu, memory) in [
        ("best-effort", QosClass::BestEffort, 0, 0),
        ("burstable", QosClass::Burstable, 100, 100 * MI),
        ("high-burstable", QosClass::Burstable, 300, 300 * MI),
        ("guaranteed", QosClass::Guaranteed, 100, 100 * MI),
        ("high-guaranteed", QosClass::Guaranteed, 300, 300 * MI),
    ] {
        let requests: &[(&str, i64)] = &[("cpu", cpu), ("memory", memory)];
        ledger.set(uid, holder(demand(qos, requests)));
    }
    let mut critical = demand(QosClass::Guaranteed, &[("cpu", 100), ("memory", 100 * MI)]);
    critical.critical = true;
    ledger.set("critical", holder(critical));
    ledger
}

#[test]
fn whom_it_hits() {
    let mut preemptor = demand(QosClass::Guaranteed, &[]);
    preemptor.critical = true;
    for (missing, wanted) in [
        (&[("memory", 50 * MI)][..], &["burstable"][..]),
        (&[("memory", 100 * MI)], &["burstable"]),
        (&[("memory", 250 * MI)], &["high-burstable"]),
        (&[("memory", 350 * MI)], &["high-burstable", "burstable"]),
        (&[("pods", 1)], &["best-effort"]),
        (&[("pods", 2)], &["best-effort", "burstable"]),
        (
            &[("memory", 450 * MI)],
            &["burstable", "high-burstable", "guaranteed"],
        ),
        (
            &[("memory", 600 * MI)],
            &["high-burstable", "high-guaranteed"],
        ),
        (
            &[("cpu", 100), ("memory", 50 * MI), ("pods", 1)],
            &["burstable"],
        ),
    ] {
        let missing: Vec<_> = missing.iter().map(|(n, q)| ((*n).to_owned(), *q)).collect();
        let mut chosen = victims(&preemptor, &crowd(), &missing).unwrap();
        chosen.sort();
        let mut wanted: Vec<_> = wanted.iter().map(|uid| (*uid).to_owned()).collect();
        wanted.sort();
        assert_eq!(chosen, wanted, "{missing:?}");
    }
    let too_much = [("memory".to_owned(), 801 * MI)];
    assert!(victims(&preemptor, &crowd(), &too_much).is_err());
}

#[test]
fn priority_decides_among_critical_pods() {
    let of = |priority, critical| Demand {
        priority,
        critical,
        ..demand(QosClass::BestEffort, &[])
    };
    for (mine, theirs, may) in [
        (of(None, true), of(None, false), true),
        (of(None, true), of(None, true), false),
        (of(Some(2), true), of(Some(1), true), true),
        (of(Some(1), true), of(Some(1), true), false),
        (of(None, true), of(Some(1), true), false),
        (of(Some(2), false), of(Some(1), false), true),
    ] {
        assert_eq!(mine.may_preempt(&theirs), may, "{mine:?} {theirs:?}");
    }
}

proptest! {
    /// Who ends is enough, nobody ends in vain of another resource, and nobody who may not.
    #[test]
    fn victims_suffice(
        pods in prop::collection::vec((0i64..5, 0i64..5, 0usize..3, any::<bool>(), any::<bool>()), 0..8),
        cpu in 1i64..8, memory in 1i64..8,
    ) {
        let mut ledger = Ledger::default();
        let classes = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed];
        for (at, (cpu, memory, class, critical, ending)) in pods.iter().enumerate() {
            let mut demand = demand(classes[*class], &[("cpu", *cpu), ("memory", *memory)]);
            demand.critical = *critical;
            let holder = Holder { demand: Arc::new(demand), ending: *ending };
            ledger.set(&format!("p{at}"), Some(holder));
        }
        let preemptor = Demand { critical: true, ..demand(QosClass::Guaranteed, &[]) };
        let missing = [("cpu".to_owned(), cpu), ("memory".to_owned(), memory)];
        let free = |name: &str, of: &dyn Fn(&str, &Holder) -> bool| -> i64 {
            ledger.holders().filter(|(uid, h)| of(uid, h)).map(|(_, h)| h.demand.of_resource(name)).sum()
        };
        match victims(&preemptor, &ledger, &missing) {
            Ok(chosen) => {
                let gone = |uid: &str, h: &Holder| h.ending || chosen.iter().any(|c| c == uid);
                prop_assert!(free("cpu", &gone) >= cpu && free("memory", &gone) >= memory);
                for (uid, h) in ledger.holders().filter(|(uid, _)| chosen.iter().any(|c| c == uid)) {
                    prop_assert!(!h.ending && !h.demand.critical, "{}", uid);
                }
            }
            Err(_) => {
                let could = |_: &str, h: &Holder| h.ending || !h.demand.critical;
                prop_assert!(free("cpu", &could) < cpu || free("memory", &could) < memory);
            }
        }
    }
}
