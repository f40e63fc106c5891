//! Upstream's cases of who is let in, who is not, and who makes room.

use std::sync::Arc;

use polylet_model::node::Numbers;
use polylet_model::ports::HostPort;
use polylet_model::qos::QosClass;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::preempt::victims;
use super::{Verdict, judge};
use crate::core::room::{Demand, Holder, Ledger, NodeObject};
use crate::core::step::Step;
use crate::core::view::{Pressure, View};
use crate::core::wanted::Wanted;
use crate::core::world::{World, manifest, simple};

const MI: i64 = 1 << 20;

fn numbers(entries: &[(&str, i64)]) -> Numbers {
    entries
        .iter()
        .map(|(name, number)| ((*name).to_owned(), *number))
        .collect()
}

fn demand(qos: QosClass, requests: &[(&str, i64)]) -> Demand {
    Demand {
        requests: numbers(requests),
        ports: Vec::new(),
        qos,
        priority: None,
        critical: false,
    }
}

fn holder(demand: Demand) -> Option<Holder> {
    Some(Holder {
        demand: Arc::new(demand),
        ending: false,
    })
}

/// A node of two CPUs, 1000 Mi and three pods, with one pod on it.
fn world(spec: Value) -> World {
    let mut world = World::new(spec);
    let room = &mut world.node.room;
    room.node_name = "n1".into();
    room.labels = [("disk".to_owned(), "ssd".to_owned())].into();
    room.allocatable = Some(numbers(&[
        ("cpu", 2000),
        ("memory", 1000 * MI),
        ("ephemeral-storage", 1000),
        ("hugepages-2Mi", 0),
        ("pods", 3),
    ]));
    let mut there = demand(QosClass::Guaranteed, &[("cpu", 1500), ("memory", 600 * MI)]);
    there.ports = vec![HostPort {
        port: 8080,
        protocol: "TCP".into(),
        ip: "0.0.0.0".into(),
    }];
    room.ledger.set("there", holder(there));
    world
}

fn asking(requests: Value) -> Value {
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["resources"] = json!({ "requests": requests });
    spec
}

/// The world with its pod made critical, or with other metadata.
fn with(mut world: World, change: impl FnOnce(&mut k8s_openapi::api::core::v1::Pod)) -> World {
    let mut pod = world.wanted.manifest.to_pod();
    change(&mut pod);
    let manifest = polylet_model::Manifest::from_pod(pod).unwrap();
    world.wanted = Arc::new(Wanted::of(&manifest, &[]));
    world.restart();
    world
}

fn verdict(world: &World) -> Verdict {
    let view = View {
        pod: &world.pod,
        node: &world.node,
        now: world.now,
    };
    judge(&view, &world.wanted)
}

fn told(world: &World) -> (String, String) {
    match verdict(world) {
        Verdict::Refused(terminal) => {
            assert_eq!(terminal.phase, "Failed");
            let message = terminal.message.strip_prefix("Pod was rejected: ").unwrap();
            (terminal.reason, message.to_owned())
        }
        Verdict::Admitted => Default::default(),
        Verdict::Waits { victims } => ("waits".into(), victims.join(" ")),
        Verdict::Unsure { .. } => ("unsure".into(), String::new()),
    }
}

#[test]
fn resources() {
    let short = |name: &str, requested: i64, used: i64, capacity: i64| {
        (
            format!("OutOf{name}"),
            format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        )
    };
    let fits = <(String, String)>::default();
    for (requests, wanted) in [
        (json!({}), fits.clone()),
        (json!({"cpu": "500m", "memory": "400Mi"}), fits.clone()),
        (json!({"cpu": "501m"}), short("cpu", 501, 1500, 2000)),
        (
            json!({"memory": "401Mi"}),
            short("memory", 401 * MI, 600 * MI, 1000 * MI),
        ),
        // The first that is short is told.
        (
            json!({"cpu": "1", "memory": "1Gi"}),
            short("cpu", 1000, 1500, 2000),
        ),
        (
            json!({"ephemeral-storage": "1001"}),
            short("ephemeral-storage", 1001, 0, 1000),
        ),
        (
            json!({"hugepages-2Mi": "2Mi"}),
            short("hugepages-2Mi", 2 * MI, 0, 0),
        ),
        (
            json!({"hugepages-1Gi": "1Gi"}),
            short("hugepages-1Gi", 1 << 30, 0, 0),
        ),
        // What the node does not know of is not its own to count.
        (json!({"example.com/thing": "3"}), fits.clone()),
    ] {
        assert_eq!(told(&world(asking(requests.clone()))), wanted, "{requests}");
    }
    let mut full = world(asking(json!({})));
    for name in ["b", "c"] {
        let more = holder(demand(QosClass::BestEffort, &[]));
        full.node.room.ledger.set(name, more);
    }
    assert_eq!(told(&full), short("pods", 1, 3, 3));
}

#[test]
fn an_init_container_counts_where_it_asks_for_more() {
    let mut spec = asking(json!({"cpu": "100m"}));
    spec["initContainers"] =
        json!([{"name": "i", "image": "i:1", "resources": {"requests": {"cpu": "600m"}}}]);
    assert_eq!(told(&world(spec.clone())).0, "OutOfcpu");
    spec["initContainers"][0]["resources"]["requests"]["cpu"] = json!("500m");
    assert_eq!(told(&world(spec)).0, "");
}

#[test]
fn where_it_may_be() {
    let mut spec = simple("Always", &["a"]);
    spec["nodeSelector"] = json!({"disk": "hdd"});
    assert_eq!(
        told(&world(spec)),
        (
            "NodeAffinity".into(),
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
                .into()
        )
    );
    let mut spec = simple("Always", &["a"]);
    spec["nodeName"] = json!("n2");
    assert_eq!(told(&world(spec)).0, "NodeName");
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["ports"] = json!([{"containerPort": 1, "hostPort": 8080}]);
    assert_eq!(
        told(&world(spec.clone())),
        (
            "NodePorts".into(),
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
                .into()
        )
    );
    spec["containers"][0]["ports"][0]["protocol"] = json!("UDP");
    assert_eq!(told(&world(spec)).0, "");
}

#[test]
fn what_the_node_cannot_do() {
    let os = with(world(simple("Always", &["a"])), |pod| {
        pod.metadata.labels = Some([("kubernetes.io/os".into(), "windows".into())].into());
    });
    assert_eq!(told(&os).0, "PodOSSelectorNodeLabelDoesNotMatch");
    let mut spec = simple("Always", &["a"]);
    spec["os"] = json!({"name": "windows"});
    assert_eq!(
        told(&world(spec)),
        (
            "PodOSNotSupported".into(),
            "Failed to admit pod as the OS field doesn't match node OS".into()
        )
    );
    let mut spec = simple("Always", &["a"]);
    spec["securityContext"] = json!({"supplementalGroupsPolicy": "Strict"});
    let mut strict = world(spec);
    assert_eq!(
        told(&strict),
        (
            "SupplementalGroupsPolicyNotSupported".into(),
            "SupplementalGroupsPolicy=Strict is not supported in this node".into()
        )
    );
    strict.node.room.strict_groups = true;
    assert_eq!(told(&strict).0, "");
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["securityContext"] =
        json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    let mut confined = world(spec);
    assert_eq!(told(&confined).0, "");
    confined.node.room.no_apparmor = Some("AppArmor is not enabled on the host".into());
    assert_eq!(
        told(&confined),
        (
            "AppArmor".into(),
            "Cannot enforce AppArmor: AppArmor is not enabled on the host".into()
        )
    );
    let mut spec = simple("Always", &["a"]);
    spec["resources"] = json!({"requests": {"cpu": "1m"}});
    let mut whole = world(spec);
    assert_eq!(told(&whole).0, "");
    whole.node.room.no_pod_level_resources = true;
    assert_eq!(told(&whole).0, "PodLevelResourcesNotSupported");
}

/// Pressure is asked first, then sysctls, then what the node is, then room.
#[test]
fn the_order_is_upstreams() {
    let mut spec = asking(json!({"cpu": "3"}));
    spec["os"] = json!({"name": "windows"});
    spec["securityContext"] = json!({"sysctls": [{"name": "vm.swappiness", "value": "1"}],
        "appArmorProfile": {"type": "RuntimeDefault"}});
    let mut world = world(spec);
    world.wanted = Arc::new(Wanted::of(&world.wanted.manifest.clone(), &[]));
    world.node.pressure = Pressure {
        disk: true,
        ..Pressure::default()
    };
    world.node.room.no_apparmor = Some("no".into());
    assert_eq!(
        told(&world),
        (
            "Evicted".into(),
            "The node had condition: [DiskPressure]. ".into()
        )
    );
    world.node.pressure = Pressure::default();
    assert_eq!(told(&world).0, "SysctlForbidden");
    let relax = |world: &mut World, key: &str| {
        let mut spec = serde_json::to_value(world.wanted.manifest.spec()).unwrap();
        match key {
            "sysctls" => spec["securityContext"]["sysctls"] = Value::Null,
            "requests" => spec["containers"][0]["resources"] = Value::Null,
            key => spec[key] = Value::Null,
        }
        world.wanted = Arc::new(Wanted::of(&manifest(spec), &[]));
    };
    relax(&mut world, "sysctls");
    assert_eq!(told(&world).0, "PodOSNotSupported");
    relax(&mut world, "os");
    assert_eq!(told(&world).0, "OutOfcpu");
    relax(&mut world, "requests");
    assert_eq!(told(&world).0, "AppArmor");
}

#[test]
fn what_was_let_in_stays_in() {
    let mut world = world(asking(json!({"cpu": "500m"})));
    world.settle();
    assert!(world.disk.as_ref().unwrap().demand.is_some());
    // No room at all, and none needed: neither after a restart nor without the containers.
    world.node.room.allocatable = Some(numbers(&[("cpu", 0), ("pods", 0)]));
    world.restart();
    assert_eq!(verdict(&world), Verdict::Admitted);
    world.settle();
    assert!(world.disk.as_ref().unwrap().terminal.is_none());
    // A node that was handed over has containers and no journal.
    world.disk = None;
    world.restart();
    assert_eq!(verdict(&world), Verdict::Admitted);
}

#[test]
fn a_refused_pod_starts_nothing_and_stays_refused() {
    let mut world = world(asking(json!({"cpu": "3"})));
    world.settle();
    let steps: Vec<_> = world.history.iter().collect();
    assert!(
        steps
            .iter()
            .all(|step| !matches!(step, Step::CreateSandbox { .. } | Step::ApplyVolumes)),
        "{steps:?}"
    );
    let kept = world.disk.clone().unwrap();
    assert_eq!(kept.terminal.as_ref().unwrap().reason, "OutOfcpu");
    assert!(kept.demand.is_none());
    world.node.room.allocatable = None;
    world.restart();
    world.settle();
    assert_eq!(world.disk.unwrap().terminal, kept.terminal);
}

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

fn known(labels: Value, taints: Value, allocatable: &[(&str, i64)]) -> NodeObject {
    NodeObject::Known {
        labels: serde_json::from_value(labels).unwrap(),
        taints: serde_json::from_value(taints).unwrap(),
        allocatable: numbers(allocatable),
    }
}

fn of_source(mut world: World, source: &str) -> World {
    let source = source.to_owned();
    world = with(world, |pod| {
        let key = "kubernetes.io/config.source".to_owned();
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(key, source);
    });
    world
}

#[test]
fn pods_of_the_cluster_wait_for_the_word_of_the_node() {
    for (source, expected) in [("api", "unsure"), ("file", "")] {
        let mut world = of_source(world(simple("Always", &["a"])), source);
        world.node.room.node = NodeObject::Unheard;
        assert_eq!(told(&world).0, expected, "{source}");
        world.node.room.node = NodeObject::None;
        assert_eq!(told(&world).0, "", "{source}");
        // What was let in by a former life is let in.
        world.settle();
        world.node.room.node = NodeObject::Unheard;
        world.restart();
        assert_eq!(verdict(&world), Verdict::Admitted);
    }
}

#[test]
fn the_nodes_object_counts() {
    let mut spec = asking(json!({"cpu": "1", "example.com/gpu": "2"}));
    let mut refused = of_source(world(spec.clone()), "api");
    let gpus = known(
        json!({}),
        json!([]),
        &[("cpu", 4000), ("example.com/gpu", 1)],
    );
    refused.node.room.node = gpus;
    let short = "requested: 2, used: 0, capacity: 1";
    let (reason, message) = told(&refused);
    assert_eq!(reason, "OutOfexample.com/gpu");
    assert!(message.ends_with(short), "{message}");
    spec["nodeSelector"] = json!({"zone": "a"});
    spec["containers"][0]["resources"] = json!({});
    let mut chosen = of_source(world(spec), "api");
    chosen.node.room.node = known(json!({"zone": "a"}), json!([]), &[]);
    assert_eq!(verdict(&chosen), Verdict::Admitted);
}

#[test]
fn newer_labels_are_awaited_for_a_moment() {
    let mut spec = simple("Always", &["a"]);
    spec["nodeSelector"] = json!({"zone": "a"});
    let mut world = of_source(world(spec), "api");
    world.node.room.node = known(json!({}), json!([]), &[]);
    let plan = world.plan();
    assert!(plan.steps.is_empty() && plan.wake_at.is_some());
    world.begin();
    let old = world.node.room.node.clone();
    world.node.room.node = known(json!({"zone": "a"}), json!([]), &[]);
    assert_eq!(verdict(&world), Verdict::Admitted);
    world.node.room.node = old;
    world.pass(2);
    assert_eq!(told(&world).0, "NodeAffinity");
}

#[test]
fn taints_that_end_pods_keep_them_out() {
    let taints = json!([{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}]);
    for (source, tolerations, expected) in [
        ("api", json!([]), "TaintToleration"),
        ("api", json!([{"key": "a", "operator": "Exists"}]), ""),
        (
            "api",
            json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
            "TaintToleration",
        ),
        ("file", json!([]), ""),
    ] {
        let mut spec = simple("Always", &["a"]);
        spec["tolerations"] = tolerations.clone();
        let mut world = of_source(world(spec), source);
        world.node.room.node = known(json!({}), taints.clone(), &[]);
        let (reason, message) = told(&world);
        assert_eq!(reason, expected, "{source} {tolerations}");
        if !reason.is_empty() {
            assert_eq!(
                message,
                "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
            );
        }
    }
}
