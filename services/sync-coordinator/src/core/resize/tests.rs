//! Upstream's cases of resizes that are given, that wait, and that are refused.

use std::sync::Arc;

use polylet_model::Manifest;
use polylet_model::node::Numbers;
use polylet_model::qos::QosClass;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Verdict;
use crate::core::room::{Demand, Holder, Swap};
use crate::core::step::{Step, StepKey};
use crate::core::wanted::Wanted;
use crate::core::world::World;

const MI: i64 = 1 << 20;

fn numbers(cpu: i64, memory: i64) -> Numbers {
    [("cpu".to_owned(), cpu), ("memory".to_owned(), memory)].into()
}

fn holder(cpu: i64, memory: i64) -> Option<Holder> {
    Some(Holder {
        demand: Arc::new(Demand {
            requests: numbers(cpu, memory),
            ports: Vec::new(),
            qos: QosClass::Burstable,
            priority: None,
            critical: false,
        }),
        ending: false,
    })
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}})
}

fn manifest(source: &str, resources: Value) -> Manifest {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1",
            "annotations": {"kubernetes.io/config.source": source}},
        "spec": {"containers": [{"name": "a", "image": "img-a:1", "resources": resources}]}});
    Manifest::from_json(pod.to_string().as_bytes()).unwrap()
}

/// The manifest is another one from now on.
fn asks(world: &mut World, manifest: &Manifest) {
    world.wanted = Arc::new(Wanted::of(manifest, &[]));
    world.pod.wanted = Some(Arc::clone(&world.wanted));
}

/// A node of four CPUs and 4096 Mi: this pod has 1 CPU and 1000 Mi, another pod 2 and 2000 Mi.
fn world(source: &str) -> World {
    let mut world = World::new(json!({"containers": [{"name": "a", "image": "img-a:1"}]}));
    world.wanted = Arc::new(Wanted::of(&manifest(source, requests("1", "1000Mi")), &[]));
    world.node.room.allocatable = Some(numbers(4000, 4096 * MI));
    world.node.room.most = Some(numbers(4000, 4196 * MI));
    let ledger = &mut world.node.room.ledger;
    ledger.set("u1", holder(1000, 1000 * MI));
    ledger.set("other", holder(2000, 2000 * MI));
    world.restart();
    world.settle();
    assert_eq!(world.all_running(), ["a"]);
    assert_eq!(world.plan().resize, Verdict::Settled);
    world.history.clear();
    world
}

fn pending(reason: &'static str, message: &str) -> Verdict {
    let message = message.to_owned();
    Verdict::Pending { reason, message }
}

#[test]
fn upstreams_cases() {
    let capacity = |what: &str| {
        pending(
            "Infeasible",
            &format!("Node didn't have enough capacity: {what}"),
        )
    };
    let static_pod = || {
        pending(
            "Infeasible",
            "In-place resize of static-pods is not supported",
        )
    };
    let cases = [
        ("api", requests("1", "1000Mi"), Verdict::Settled),
        ("api", requests("1000m", "1048576000"), Verdict::Settled),
        ("api", requests("1500m", "1500Mi"), Verdict::Granted),
        ("api", requests("500m", "500Mi"), Verdict::Granted),
        // Its own resources are not in its way.
        ("api", requests("2", "2096Mi"), Verdict::Granted),
        (
            "api",
            requests("500m", "2500Mi"),
            pending(
                "Deferred",
                "Node didn't have enough resource: memory, requested: 2621440000, used: 2097152000, capacity: 4294967296",
            ),
        ),
        (
            "api",
            requests("2500m", "500Mi"),
            pending(
                "Deferred",
                "Node didn't have enough resource: cpu, requested: 2500, used: 2000, capacity: 4000",
            ),
        ),
        // What eviction keeps free is no reason to give up.
        (
            "api",
            requests("1", "4150Mi"),
            pending(
                "Deferred",
                "Node didn't have enough resource: memory, requested: 4351590400, used: 2097152000, capacity: 4294967296",
            ),
        ),
        (
            "api",
            requests("1", "4500Mi"),
            capacity("memory, requested: 4718592000, capacity: 4399824896"),
        ),
        (
            "api",
            requests("5", "1000Mi"),
            capacity("cpu, requested: 5000, capacity: 4000"),
        ),
        (
            "api",
            requests("5", "4500Mi"),
            capacity("memory, requested: 4718592000, capacity: 4399824896"),
        ),
        ("file", requests("500m", "500Mi"), static_pod()),
        ("http", requests("500m", "500Mi"), static_pod()),
        ("file", requests("1000m", "1000Mi"), Verdict::Settled),
    ];
    for (source, asked, expected) in cases {
        let mut world = world(source);
        asks(&mut world, &manifest(source, asked.clone()));
        assert_eq!(world.plan().resize, expected, "{source} {asked}");
    }
}

#[test]
fn shares_of_swap_do_not_move_under_a_running_container() {
    let mut world = world("api");
    world.node.room.limited_swap = Some(Swap {
        memory: 4 << 30,
        swap: 1 << 30,
    });
    asks(&mut world, &manifest("api", requests("500m", "1000Mi")));
    assert_eq!(world.plan().resize, Verdict::Granted);
    asks(&mut world, &manifest("api", requests("1", "500Mi")));
    let swap = "In-place resize of containers with swap is not supported.";
    assert_eq!(world.plan().resize, pending("Infeasible", swap));
    let mut pod = manifest("api", requests("1", "500Mi")).to_pod();
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    pod.spec.as_mut().unwrap().containers[0].resize_policy =
        serde_json::from_value(policy).unwrap();
    asks(&mut world, &Manifest::from_pod(pod).unwrap());
    assert_eq!(world.plan().resize, Verdict::Granted);
}

#[test]
fn what_is_given_is_written_down_once() {
    let mut world = world("api");
    let new = manifest("api", requests("2", "500Mi"));
    asks(&mut world, &new);
    let steps = world.begin();
    assert!(matches!(&steps[..], [Step::Allocate { .. }]), "{steps:?}");
    // Not before it is on disk.
    let given = world.pod.journal.allocated.clone().unwrap();
    assert!(given.differs(new.spec()));
    assert!(world.planned().is_empty());
    world.finish(&steps[0]);
    assert_eq!(world.planned(), [StepKey::Resize]);
    world.settle();
    for _ in 0..2 {
        let journal = world.disk.clone().unwrap();
        assert!(!journal.allocated.unwrap().differs(new.spec()));
        assert_eq!(journal.demand.unwrap().requests, numbers(2000, 500 * MI));
        let plan = world.plan();
        assert_eq!((plan.resize, plan.steps), (Verdict::Settled, Vec::new()));
        // Nor does another life of the process give it again.
        world.restart();
        world.settle();
    }
    assert_eq!(world.all_running(), ["a"]);
    assert!(
        world
            .history
            .iter()
            .all(|step| step.key() != StepKey::StopContainer("c2".into()))
    );
}

#[test]
fn one_that_waits_asks_for_room_and_gets_it_when_there_is_some() {
    let mut world = world("api");
    asks(&mut world, &manifest("api", requests("3", "1000Mi")));
    let plan = world.plan();
    assert!(plan.wants_room && plan.victims.is_empty() && plan.steps.is_empty());
    world.begin();
    let since = world.pod.resize_since;
    assert_eq!(since, Some(world.now));
    world.pass(60);
    world.begin();
    assert_eq!(world.pod.resize_since, since);
    world.node.room.ledger.set("other", None);
    assert_eq!(world.plan().resize, Verdict::Granted);
    world.settle();
    assert_eq!(
        (world.plan().resize, world.pod.resize_since),
        (Verdict::Settled, None)
    );
    assert!(!world.plan().wants_room);
}

#[test]
fn a_node_under_pressure_gives_nothing_more() {
    let mut world = world("api");
    world.node.pressure.disk = true;
    asks(&mut world, &manifest("api", requests("500m", "500Mi")));
    let words = "The node had condition: [DiskPressure]. ";
    assert_eq!(world.plan().resize, pending("Deferred", words));
}

#[test]
fn a_refused_change_disturbs_nothing_and_can_be_taken_back() {
    let mut world = world("file");
    asks(&mut world, &manifest("file", requests("2", "1Gi")));
    let plan = world.plan();
    assert!(matches!(plan.resize, Verdict::Pending { .. }));
    assert!(
        plan.steps.iter().all(|step| step.key() == StepKey::Volumes),
        "{:?}",
        plan.steps
    );
    assert!(!plan.wants_room && plan.notes.is_empty());
    world.settle();
    assert_eq!(world.all_running(), ["a"]);
    asks(&mut world, &manifest("file", requests("1", "1000Mi")));
    assert_eq!(world.plan().resize, Verdict::Settled);
}

#[test]
fn a_journal_of_an_older_build_takes_what_it_finds() {
    let mut world = world("file");
    world.disk.as_mut().unwrap().allocated = None;
    world.restart();
    assert_eq!(world.planned(), [StepKey::Journal]);
    world.settle();
    let given = world.disk.as_ref().unwrap().allocated.clone().unwrap();
    assert!(!given.differs(world.wanted.manifest.spec()));
}

proptest! {
    #[test]
    fn nothing_is_given_beyond_what_there_is(
        asked in proptest::collection::vec((1_i64..6000, 1_i64..6000, any::<bool>()), 1..12),
    ) {
        let mut world = world("api");
        for (cpu, memory, dies) in asked {
            let resources = requests(&format!("{cpu}m"), &format!("{memory}Mi"));
            asks(&mut world, &manifest("api", resources));
            world.settle();
            let given = world.pod.journal.demand.clone().unwrap();
            prop_assert!(given.of_resource("cpu") + 2000 <= 4000);
            prop_assert!(given.of_resource("memory") + 2000 * MI <= 4096 * MI);
            let fits = cpu <= 2000 && memory <= 2096;
            prop_assert_eq!(world.plan().resize == Verdict::Settled, fits);
            let ledger = &mut world.node.room.ledger;
            ledger.set("u1", Some(Holder { demand: given, ending: false }));
            if dies {
                world.restart();
                world.settle();
            }
            prop_assert!(world.plan().steps.is_empty());
            prop_assert_eq!(world.all_running(), ["a"]);
        }
    }
}
