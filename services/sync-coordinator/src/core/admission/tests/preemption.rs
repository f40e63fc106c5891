//! Preemption by critical pods.

use super::*;

fn critical(requests: Value) -> TestEnv {
    let env = env(requesting(requests));
    with(env, |pod| {
        let source = ("kubernetes.io/config.source".into(), "file".into());
        pod.metadata.annotations = Some([source].into());
    })
}

#[test]
fn a_critical_pod_waits_for_its_victims() {
    let mut env = critical(json!({"cpu": "1"}));
    assert_eq!(rejection(&env), ("waits".into(), "other".into()));
    // A terminating pod suffices.
    let mut terminating =
        allocated_pod(pod_request(QosClass::Guaranteed, &[("cpu", 1500)])).unwrap();
    terminating.terminating = true;
    env.node
        .resources
        .allocated
        .set(&"other".into(), Some(terminating));
    assert_eq!(rejection(&env), ("waits".into(), String::new()));
    let plan = env.plan();
    assert!(plan.steps.is_empty() && plan.waits_for_capacity);
    env.node.resources.allocated.set(&"other".into(), None);
    assert_eq!(decision(&env), AdmissionDecision::Admitted);
}

#[test]
fn a_critical_pod_without_victims_is_rejected() {
    assert_eq!(
        rejection(&critical(json!({"cpu": "3"}))),
        (
            "UnexpectedAdmissionError".into(),
            "Unexpected error while attempting to recover from admission failure: preemption: \
             error finding a set of pods to preempt: no set of running pods found to reclaim \
             resources: [(res: cpu, q: 1000), ]"
                .into()
        )
    );
    // No pod is preempted for one that is rejected for another reason.
    let mut elsewhere = critical(json!({"cpu": "1"}));
    elsewhere.node.resources.labels.clear();
    let mut spec = serde_json::to_value(elsewhere.spec.manifest.spec()).unwrap();
    spec["nodeSelector"] = json!({"disk": "ssd"});
    let elsewhere = with(elsewhere, |pod| {
        pod.spec = serde_json::from_value(spec).unwrap();
    });
    assert_eq!(rejection(&elsewhere).0, "NodeAffinity");
}

#[test]
fn shares_of_pods_that_no_source_serves_preempt_and_reject_none() {
    let mut env = critical(json!({"cpu": "1"}));
    let others = &mut env.node.resources.allocated;
    let before = |cpu| {
        let pod = allocated_pod(pod_request(QosClass::Guaranteed, &[("cpu", cpu)]));
        pod.map(|pod| AllocatedPod {
            served: false,
            ..pod
        })
    };
    // As much as the other pod, which would be preempted for it.
    others.set(&"before".into(), before(1500));
    others.set(
        &"other".into(),
        allocated_pod(pod_request(QosClass::Guaranteed, &[("cpu", 500)])),
    );
    assert_eq!(decision(&env), AdmissionDecision::Admitted);
    // Too little is free without it, too.
    env.node.resources.allocated.set(
        &"other".into(),
        allocated_pod(pod_request(QosClass::Guaranteed, &[("cpu", 1500)])),
    );
    assert_eq!(rejection(&env), ("waits".into(), "other".into()));
    let served = before(1500).map(|pod| AllocatedPod {
        served: true,
        ..pod
    });
    let mut plain = super::env(requesting(json!({"cpu": "1"})));
    let others = &mut plain.node.resources.allocated;
    others.set(&"other".into(), None);
    others.set(&"before".into(), before(1500));
    assert_eq!(rejection(&plain).0, "waits for sources");
    let plan = plain.plan();
    assert!(plan.steps.is_empty() && plan.waits_for_capacity && plan.victims.is_empty());
    let others = &mut plain.node.resources.allocated;
    assert!(others.set(&"before".into(), served));
    assert_eq!(rejection(&plain).0, "OutOfcpu");
}

/// The pods of upstream's test table.
fn upstream_pods() -> AllocatedPods {
    let mut allocated = AllocatedPods::default();
    for (uid, qos, cpu, memory) in [
        ("best-effort", QosClass::BestEffort, 0, 0),
        ("burstable", QosClass::Burstable, 100, 100 * MI),
        ("high-burstable", QosClass::Burstable, 300, 300 * MI),
        ("guaranteed", QosClass::Guaranteed, 100, 100 * MI),
        ("high-guaranteed", QosClass::Guaranteed, 300, 300 * MI),
    ] {
        let requests: &[(&str, i64)] = &[("cpu", cpu), ("memory", memory)];
        allocated.set(&uid.into(), allocated_pod(pod_request(qos, requests)));
    }
    let mut critical = pod_request(QosClass::Guaranteed, &[("cpu", 100), ("memory", 100 * MI)]);
    critical.critical = true;
    allocated.set(&"critical".into(), allocated_pod(critical));
    allocated
}

#[test]
fn selects_victims_as_upstream() {
    let mut preemptor = pod_request(QosClass::Guaranteed, &[]);
    preemptor.critical = true;
    for (missing, expected) in [
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
        let mut selected =
            select_victims("preemptor", &preemptor, &upstream_pods(), &missing).unwrap();
        selected.sort();
        let mut expected: Vec<_> = expected.iter().map(|uid| (*uid).to_owned()).collect();
        expected.sort();
        assert_eq!(selected, expected, "{missing:?}");
    }
    let too_much = [("memory".to_owned(), 801 * MI)];
    assert!(select_victims("preemptor", &preemptor, &upstream_pods(), &too_much).is_err());
}

#[test]
fn higher_priority_preempts_among_critical_pods() {
    let request = |priority, critical| PodRequest {
        priority,
        critical,
        ..pod_request(QosClass::BestEffort, &[])
    };
    for (own, other, expected) in [
        (request(None, true), request(None, false), true),
        (request(None, true), request(None, true), false),
        (request(Some(2), true), request(Some(1), true), true),
        (request(Some(1), true), request(Some(1), true), false),
        (request(None, true), request(Some(1), true), false),
        (request(Some(2), false), request(Some(1), false), true),
    ] {
        assert_eq!(own.may_preempt(&other), expected, "{own:?} {other:?}");
    }
}

proptest! {
    /// The victims free enough, and each of them may be preempted.
    #[test]
    fn victims_suffice(
        pods in prop::collection::vec((0i64..5, 0i64..5, 0usize..3, any::<bool>(), any::<bool>()), 0..8),
        cpu in 1i64..8, memory in 1i64..8,
    ) {
        let mut allocated = AllocatedPods::default();
        let classes = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed];
        for (at, (cpu, memory, class, critical, terminating)) in pods.iter().enumerate() {
            let mut request = pod_request(classes[*class], &[("cpu", *cpu), ("memory", *memory)]);
            request.critical = *critical;
            let pod = AllocatedPod { request: Arc::new(request), terminating: *terminating, served: true };
            allocated.set(&format!("p{at}").into(), Some(pod));
        }
        let preemptor = PodRequest { critical: true, ..pod_request(QosClass::Guaranteed, &[]) };
        let missing = [("cpu".to_owned(), cpu), ("memory".to_owned(), memory)];
        let free = |name: &str, of: &dyn Fn(&str, &AllocatedPod) -> bool| -> i64 {
            allocated.pods().filter(|(uid, h)| of(uid, h)).map(|(_, h)| h.request.requested(name)).sum()
        };
        match select_victims("preemptor", &preemptor, &allocated, &missing) {
            Ok(selected) => {
                let removed = |uid: &str, h: &AllocatedPod| h.terminating || selected.iter().any(|c| c == uid);
                prop_assert!(free("cpu", &removed) >= cpu && free("memory", &removed) >= memory);
                for (uid, h) in allocated.pods().filter(|(uid, _)| selected.iter().any(|c| c == uid)) {
                    prop_assert!(!h.terminating && !h.request.critical, "{}", uid);
                }
            }
            Err(_) => {
                let could = |_: &str, h: &AllocatedPod| h.terminating || !h.request.critical;
                prop_assert!(free("cpu", &could) < cpu || free("memory", &could) < memory);
            }
        }
    }
}
