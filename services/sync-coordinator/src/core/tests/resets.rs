//! The restart of all containers together.

use polylet_model::constants::reason;
use serde_json::{Value, json};

use super::super::restart::unused_attempt;
use super::super::step::{Step, StepKey};
use super::super::view::Unwell;
use super::super::world::World;
use super::stop_of;

fn spec() -> Value {
    let rules = json!([{"action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]}}]);
    let hook = json!({"preStop": {"exec": {"command": ["true"]}}});
    json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 30,
        "initContainers": [
            {"name": "i", "image": "i:1"},
            {"name": "s", "image": "s:1", "restartPolicy": "Always", "lifecycle": hook}],
        "containers": [
            {"name": "a", "image": "a:1", "restartPolicy": "Never", "restartPolicyRules": rules},
            {"name": "b", "image": "b:1"}]})
}

fn running() -> World {
    let mut world = World::new(spec());
    world.settle();
    world.ends("i", 0);
    world.settle();
    assert_eq!(world.all_running(), ["a", "b", "s"]);
    world.history.clear();
    world
}

#[test]
fn all_go_without_grace_and_who_asked_goes_last() {
    let mut world = running();
    world.ends("a", 42);
    let steps = world.begin();
    let mut stops: Vec<_> = steps.iter().filter_map(stop_of).collect();
    stops.sort_unstable();
    assert_eq!(stops, [("b", 2), ("s", 2)], "and no hook runs");
    steps.iter().for_each(|step| world.finish(step));
    assert_eq!(world.reasons()["i"], reason::RESTARTING_ALL_CONTAINERS);
    world.settle();
    let resets: Vec<&str> = world
        .history
        .iter()
        .filter_map(|step| match step {
            Step::ResetContainer { container, .. } => Some(container.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(resets.len(), 4);
    assert_eq!(resets.last(), Some(&"a"));
    assert_eq!(world.all_running(), ["i"], "from the first one on");
    assert_eq!(world.runtime.sandboxes.len(), 1, "in the same sandbox");
    assert_eq!(world.runtime.newest("i").unwrap().attempt, 1);
    world.ends("i", 0);
    world.settle();
    assert_eq!(world.all_running(), ["a", "b", "s"]);
    assert!(world.runtime.containers.iter().all(|c| c.attempt == 1));
    assert!(world.pod.lifecycle.resets.is_empty());
    assert!(world.pod.journal.terminal.is_none());
}

#[test]
fn it_goes_on_wherever_the_process_dies() {
    for dies_after in 0..12 {
        let mut world = running();
        world.ends("a", 42);
        let mut done = 0;
        while done < dies_after {
            let steps = world.begin();
            let Some(step) = steps.into_iter().next() else {
                break;
            };
            // The effect took place; nobody heard of it.
            let _ = world.effect(&step);
            world.restart();
            done += 1;
            if matches!(step, Step::PullImage { .. } | Step::EnsureCgroup) {
                break;
            }
        }
        world.restart();
        world.settle();
        if world.running("i").is_some() {
            world.ends("i", 0);
            world.settle();
        }
        assert_eq!(world.all_running(), ["a", "b", "s"], "{dies_after}");
        assert!(world.runtime.containers.iter().all(|c| c.attempt == 1));
    }
}

#[test]
fn who_asks_again_and_again_waits_like_any_that_crashes() {
    let mut world = running();
    for _ in 0..2 {
        world.ends("a", 42);
        world.settle();
        if world.running("i").is_none() {
            break;
        }
        world.ends("i", 0);
        world.settle();
    }
    assert_eq!(world.reasons()["i"], reason::CRASH_LOOP_BACK_OFF);
    assert!(world.all_running().is_empty());
    world.restart();
    world.settle();
    assert!(world.all_running().is_empty(), "also over a restart");
    world.pass(10);
    world.settle();
    assert_eq!(world.all_running(), ["i"]);
    assert_eq!(world.runtime.newest("i").unwrap().attempt, 2);
}

#[test]
fn a_container_that_was_killed_asks_for_nothing() {
    let mut spec = spec();
    spec["containers"][0]["restartPolicy"] = json!("Always");
    let mut world = World::new(spec);
    world.settle();
    world.ends("i", 0);
    world.settle();
    let id = world.running("a").unwrap();
    let unwell = Unwell {
        startup: false,
        message: String::new(),
    };
    world.pod.unwell.insert(id.clone(), unwell);
    world.begin();
    world.exit(&id, 42);
    world.restart();
    assert!(
        !world
            .planned()
            .iter()
            .any(|key| matches!(key, StepKey::RemoveContainer(_)))
    );
}

#[test]
fn lost_records_leave_their_number_in_the_logs() {
    for (planned, logs, expected) in [
        (0, vec![], 0),
        (0, vec![0], 1),
        (0, vec![0, 7, 3], 8),
        (9, vec![0, 7], 9),
        (0, vec![u32::MAX], u32::MAX),
    ] {
        assert_eq!(unused_attempt(planned, logs), expected);
    }
}
