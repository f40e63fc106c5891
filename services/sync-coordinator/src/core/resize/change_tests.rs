//! How a change reaches what runs: upstream's cases, and kills on the way.

use std::sync::Arc;

use polylet_model::Amounts;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Change, Resource};
use crate::core::learn::Trouble;
use crate::core::observed::Phase;
use crate::core::step::{Step, StepKey};
use crate::core::wanted::Wanted;
use crate::core::world::{World, manifest};

fn sized(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}})
}

fn spec(a: &Value, b: &Value, policy: &Value) -> Value {
    json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "containers": [
        {"name": "a", "image": "img-a:1", "resources": a, "resizePolicy": policy},
        {"name": "b", "image": "img-b:1", "resources": b}]})
}

fn wants(world: &mut World, spec: Value) {
    world.wanted = Arc::new(Wanted::of(&manifest(spec), &[]));
    world.pod.wanted = Some(Arc::clone(&world.wanted));
}

fn running(policy: Value) -> World {
    let mut world = World::new(spec(&sized("1", "1Gi"), &sized("1", "1Gi"), &policy));
    world.settle();
    world.history.clear();
    world
}

fn resized(world: &World) -> Vec<&Change> {
    let changes = world.history.iter().filter_map(|step| match step {
        Step::Resize { changes } => Some(changes),
        _ => None,
    });
    changes.flatten().collect()
}

#[test]
fn a_running_container_gets_what_was_given() {
    let mut world = running(json!([]));
    let ids = (world.running("a"), world.running("b"));
    wants(
        &mut world,
        spec(&sized("2", "512Mi"), &sized("1", "1Gi"), &json!([])),
    );
    assert!(world.plan().resizing.is_none(), "not before it is given");
    let steps = world.begin();
    world.finish(&steps[0]);
    let under_way = world.plan().resizing.unwrap();
    assert_eq!(under_way.actual["a"].cpu_limit, 1000);
    world.settle();
    assert_eq!((world.running("a"), world.running("b")), ids);
    let [change] = resized(&world)[..] else {
        panic!("{:?}", world.history);
    };
    assert_eq!(change.container, "a");
    assert_eq!(
        (change.to.cpu_limit, change.to.memory_limit),
        (2000, 512 << 20)
    );
    // Also to a later life.
    world.restart();
    let plan = world.plan();
    assert_eq!((plan.resizing, plan.steps), (None, Vec::new()));
}

#[test]
fn a_container_restarts_where_its_policy_says_so() {
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
    let mut world = running(policy.clone());
    let (a, b) = (world.running("a"), world.running("b"));
    wants(
        &mut world,
        spec(&sized("2", "1Gi"), &sized("1", "1Gi"), &policy),
    );
    world.settle();
    assert_eq!(world.running("a"), a, "CPU alone needs no restart");
    wants(
        &mut world,
        spec(&sized("2", "2Gi"), &sized("1", "1Gi"), &policy),
    );
    world.settle();
    assert_ne!(world.running("a"), a);
    assert_eq!(world.running("b"), b);
    let made = world.runtime.newest("a").unwrap();
    assert_eq!(made.made_with.unwrap().memory_limit, 2 << 30);
    assert_eq!(made.created_at, Some(world.now), "no crash, so no back-off");
    assert_eq!(made.attempt, 1);
    // The pod's cgroup was resized when the old one was gone, and before the new one was made.
    let order: Vec<StepKey> = world.history.iter().map(Step::key).collect();
    let at = |key: &StepKey| order.iter().rposition(|k| k == key);
    let (stopped, resized) = (StepKey::StopContainer(a.unwrap()), at(&StepKey::Resize));
    assert!(at(&stopped) < resized && resized < at(&StepKey::Create("a".into())));
}

#[test]
fn what_shrinks_comes_first() {
    let amounts = |cpu: i64, memory: i64| Amounts {
        cpu_limit: cpu,
        memory_limit: memory,
        ..Amounts::default()
    };
    let change = |name: &str, from, to| Change {
        id: name.to_owned(),
        container: name.to_owned(),
        from,
        to,
    };
    let changes = [
        change("grows", amounts(1, 1), amounts(2, 2)),
        change("mixed", amounts(1, 2), amounts(2, 1)),
        change("shrinks", amounts(2, 2), amounts(1, 1)),
    ];
    let names = |resource| -> Vec<&str> {
        let order = Change::in_order(&changes, resource).into_iter();
        order.map(|change| change.container.as_str()).collect()
    };
    assert_eq!(names(Resource::Memory), ["mixed", "shrinks", "grows"]);
    assert_eq!(names(Resource::Cpu), ["shrinks", "grows", "mixed"]);
}

#[test]
fn a_container_being_made_is_known_before_anything_else_is_given() {
    let mut world = running(json!([]));
    world.ends("a", 0);
    world.pass(60);
    let pulls = world.begin();
    world.finish(&pulls[0]);
    let creates = world.begin();
    assert!(matches!(creates[0], Step::CreateContainer { .. }));
    wants(
        &mut world,
        spec(&sized("2", "2Gi"), &sized("1", "1Gi"), &json!([])),
    );
    assert!(world.planned().is_empty(), "{:?}", world.planned());
    world.finish(&creates[0]);
    world.settle();
    assert_eq!(resized(&world).len(), 1, "{:?}", world.history);
    // One that was not asked for yet waits and is made with the new ones.
    world.ends("b", 0);
    world.pass(60);
    wants(
        &mut world,
        spec(&sized("2", "2Gi"), &sized("2", "2Gi"), &json!([])),
    );
    world.settle();
    let made = world.runtime.newest("b").unwrap();
    assert_eq!(made.made_with.unwrap().cpu_limit, 2000);
    assert_eq!(resized(&world).len(), 1, "{:?}", world.history);
}

#[test]
fn a_failure_is_told_and_tried_again_and_holds_no_other_container_back() {
    let mut world = running(json!([]));
    world.ends("b", 0);
    wants(
        &mut world,
        spec(&sized("1", "512Mi"), &sized("1", "1Gi"), &json!([])),
    );
    let steps = world.begin();
    for step in &steps {
        world.finish(step);
    }
    let steps = world.begin();
    let resize = steps.iter().find(|s| s.key() == StepKey::Resize).unwrap();
    let message = "cannot decrease memory limits: in use".to_owned();
    world.fail(
        resize,
        Trouble {
            message: message.clone(),
            ..Trouble::default()
        },
    );
    assert_eq!(world.plan().resizing.unwrap().error, message);
    world.pass(0);
    for step in steps.iter().filter(|s| s.key() != StepKey::Resize) {
        world.finish(step);
    }
    world.pass(15);
    world.settle();
    assert_eq!(world.all_running(), ["a", "b"]);
    assert!(world.plan().resizing.is_none());
}

#[test]
fn containers_of_another_agent_have_what_the_pod_had() {
    let mut world = running(json!([]));
    for container in &mut world.runtime.containers {
        container.made_with = None;
    }
    world.restart();
    world.settle();
    assert!(resized(&world).is_empty());
    wants(
        &mut world,
        spec(&sized("2", "1Gi"), &sized("1", "1Gi"), &json!([])),
    );
    let steps = world.begin();
    world.finish(&steps[0]);
    world.restart();
    world.settle();
    let [change] = resized(&world)[..] else {
        panic!("{:?}", world.history);
    };
    assert_eq!((change.from.cpu_limit, change.to.cpu_limit), (1000, 2000));
}

proptest! {
    #[test]
    fn all_that_runs_has_what_was_given_in_the_end(
        asked in proptest::collection::vec((1_i64..4, 1_i64..4, 0_u8..6), 1..8),
    ) {
        let mut world = running(json!([]));
        for (a, b, happens) in asked {
            let size = |n: i64| sized(&n.to_string(), &format!("{n}Gi"));
            wants(&mut world, spec(&size(a), &size(b), &json!([])));
            let steps = world.begin();
            for step in steps {
                // Killed before, or after, or while nobody hears of the step's end.
                match happens {
                    0 => world.restart(),
                    1 => { world.effect(&step); world.restart(); }
                    2 => { world.finish(&step); world.restart(); }
                    _ => world.finish(&step),
                }
            }
            if happens == 4 && world.running("a").is_some() {
                world.ends("a", 1);
                world.pass(600);
            }
            world.hear();
            world.settle();
            world.pass(600);
            world.settle();
            let plan = world.plan();
            prop_assert!(plan.resizing.is_none() && plan.steps.is_empty(), "{plan:?}");
            for (name, cpu) in [("a", a), ("b", b)] {
                let seen = world.runtime.newest(name).unwrap();
                prop_assert_eq!(seen.phase, Phase::Running);
                let held = world.pod.journal.held.get(&seen.id).copied();
                let has = held.or(seen.made_with).unwrap();
                prop_assert_eq!(has.cpu_limit, cpu * 1000);
            }
        }
    }
}
