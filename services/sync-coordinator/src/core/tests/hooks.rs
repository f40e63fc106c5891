//! Lifecycle hooks, and graces that go on.

use polylet_model::constants::{phase, reason};
use polylet_model::hook::Hook;
use serde_json::{Value, json};

use super::super::hooks::PostStart;
use super::super::learn::{self, Outcome};
use super::super::observed::Phase as Stands;
use super::super::step::{Step, StepKey};
use super::super::view::{Terminal, Unwell};
use super::super::world::{World, at, simple};
use super::stop_of;

fn with_hooks(policy: &str, names: &[&str], hooks: &[&str]) -> Value {
    let mut spec = simple(policy, names);
    for hook in hooks {
        spec["containers"][0]["lifecycle"][hook] = json!({"exec": {"command": ["true"]}});
    }
    spec
}

fn pre_stop_of(step: &Step) -> Option<(&str, u32)> {
    match step {
        Step::PreStop {
            container, limit, ..
        } => Some((container, *limit)),
        _ => None,
    }
}

fn post_start(world: &World) -> Option<Step> {
    let mut flights = world.pod.flights.values();
    flights
        .find(|f| matches!(f.step, Step::PostStart { .. }))
        .map(|f| f.step.clone())
}

/// Carries out everything but hooks.
fn settle_but_hooks(world: &mut World) {
    for _ in 0..50 {
        for step in world.begin() {
            if !matches!(step, Step::PostStart { .. } | Step::PreStop { .. }) {
                world.finish(&step);
            }
        }
    }
}

#[test]
fn what_starts_later_waits_for_post_start() {
    let mut world = World::new(with_hooks("Always", &["a", "b"], &["postStart"]));
    settle_but_hooks(&mut world);
    assert_eq!(world.all_running(), ["a"]);
    let waits: Vec<String> = world.plan().waiting.into_iter().map(|w| w.what).collect();
    assert!(
        waits.contains(&"postStart hook of container a".to_owned()),
        "{waits:?}"
    );
    let hook = post_start(&world).unwrap();
    world.finish(&hook);
    world.settle();
    assert_eq!(world.all_running(), ["a", "b"]);
    assert!(world.pod.lifecycle.is_empty());
    world.restart();
    assert!(world.plan().steps.is_empty(), "it is not run twice");
}

#[test]
fn a_post_start_hook_that_was_not_heard_to_its_end_is_run_again() {
    let mut world = World::new(with_hooks("Always", &["a"], &["postStart"]));
    // The process dies right after the start.
    loop {
        let steps = world.begin();
        let start = steps
            .iter()
            .find(|s| matches!(s, Step::StartContainer { .. }));
        if let Some(start) = start.cloned() {
            let _ = world.effect(&start);
            break;
        }
        steps.iter().for_each(|step| world.finish(step));
    }
    for _ in 0..2 {
        world.restart();
        settle_but_hooks(&mut world);
        assert!(post_start(&world).is_some());
    }
    let hook = post_start(&world).unwrap();
    world.finish(&hook);
    assert_eq!(world.hooks.len(), 1);
    world.restart();
    world.settle();
    assert_eq!(world.hooks.len(), 1);
}

#[test]
fn a_failed_post_start_hook_ends_the_container_and_is_told() {
    let both = ["postStart", "preStop"];
    let mut world = World::new(with_hooks("Always", &["a", "b"], &both));
    settle_but_hooks(&mut world);
    let hook = post_start(&world).unwrap();
    let failed = Outcome::HookFailed("Exec lifecycle hook failed".into());
    learn::ended(&mut world.pod, &hook.key(), failed, world.now);
    let steps = world.begin();
    assert_eq!(steps.iter().find_map(pre_stop_of), Some(("a", 30)));
    assert_eq!(world.all_running(), ["a"], "b waits until a is gone");
    for step in steps {
        world.finish(&step);
    }
    for step in world.begin() {
        world.finish(&step);
    }
    let notes = world.plan().notes;
    let note = notes.iter().find(|n| n.container == "a").unwrap();
    assert_eq!(note.reason, reason::POST_START_HOOK_ERROR);
    assert_eq!(note.message, "Exec lifecycle hook failed");
    settle_but_hooks(&mut world);
    assert_eq!(world.all_running(), ["a"]);
    assert_eq!(world.reasons()["a"], reason::POST_START_HOOK);
    assert!(post_start(&world).is_some(), "of the new container");
}

#[test]
fn a_pod_that_ends_gives_a_post_start_hook_up() {
    let mut world = World::new(with_hooks("Never", &["a"], &["postStart", "preStop"]));
    settle_but_hooks(&mut world);
    let key = post_start(&world).unwrap().key();
    world.pod.leaving = true;
    let plan = world.plan();
    assert_eq!(plan.give_up, [key]);
    world.settle();
    assert!(world.runtime.is_empty());
    assert!(
        world
            .hooks
            .iter()
            .all(|(key, _)| matches!(key, StepKey::PreStop(_)))
    );
}

#[test]
fn pre_stop_takes_its_time_from_the_grace() {
    for (took, left) in [(0, 30), (5, 25), (29, 2), (40, 2)] {
        let mut world = World::new(with_hooks("Always", &["a"], &["preStop"]));
        world.settle();
        world.pod.leaving = true;
        let steps = world.begin();
        assert_eq!(steps.iter().find_map(pre_stop_of), Some(("a", 30)));
        assert!(steps.iter().find_map(stop_of).is_none());
        world.pass(took);
        steps.iter().for_each(|step| world.finish(step));
        let steps = world.begin();
        assert_eq!(steps.iter().find_map(stop_of), Some(("a", left)), "{took}");
    }
}

#[test]
fn pre_stop_comes_before_every_stop_and_after_no_end() {
    let mut world = World::new(with_hooks("Always", &["a", "b"], &["preStop"]));
    world.settle();
    world.ends("a", 1);
    world.settle();
    world.pass(10);
    world.settle();
    assert_eq!(world.all_running(), ["a", "b"]);
    assert!(world.hooks.is_empty(), "not after an end of its own");
    let unwell = Unwell {
        startup: false,
        message: String::new(),
    };
    let id = world.running("a").unwrap();
    world.pod.unwell.insert(id.clone(), unwell);
    world.settle();
    assert_eq!(world.hooks, [(StepKey::PreStop(id.clone()), id)]);
}

#[test]
fn a_hook_ends_with_its_container() {
    let mut world = World::new(with_hooks("Always", &["a"], &["preStop"]));
    world.settle();
    world.pod.leaving = true;
    let id = world.running("a").unwrap();
    world.begin();
    world.ends("a", 0);
    assert_eq!(world.plan().give_up, [StepKey::PreStop(id)]);
}

#[test]
fn a_grace_goes_on_over_a_restart() {
    let mut world = World::new(with_hooks("Always", &["a"], &["preStop"]));
    world.settle();
    world.pod.leaving = true;
    let steps = world.begin();
    world.pass(10);
    world.restart();
    let again = world.begin();
    assert_eq!(again.iter().find_map(pre_stop_of), Some(("a", 20)));
    world.pass(5);
    steps.iter().for_each(|step| world.finish(step));
    world.restart();
    let stops = world.begin();
    assert_eq!(
        stops.iter().find_map(stop_of),
        Some(("a", 15)),
        "the hook is over"
    );
    world.pass(14);
    world.restart();
    assert_eq!(world.begin().iter().find_map(stop_of), Some(("a", 2)));
}

#[test]
fn a_stop_that_has_begun_is_carried_through() {
    // Nothing but the stop itself says that the container had to go.
    let mut world = World::new(with_hooks("OnFailure", &["a"], &["preStop"]));
    world.settle();
    let id = world.running("a").unwrap();
    let unwell = Unwell {
        startup: false,
        message: String::new(),
    };
    world.pod.unwell.insert(id.clone(), unwell);
    world.begin();
    world.restart();
    assert_eq!(world.begin().iter().find_map(pre_stop_of), Some(("a", 30)));
    // It ends well while nobody looks, and starts afresh all the same.
    world.exit(&id, 0);
    world.restart();
    world.settle();
    assert_eq!(world.all_running(), ["a"]);
}

#[test]
fn a_grace_that_becomes_shorter_shortens_what_is_under_way() {
    for hook in [true, false] {
        let hooks: &[&str] = if hook { &["preStop"] } else { &[] };
        let mut world = World::new(with_hooks("Always", &["a"], hooks));
        world.settle();
        let id = world.running("a").unwrap();
        let key = if hook {
            StepKey::PreStop(id)
        } else {
            StepKey::StopContainer(id)
        };
        world.pod.leaving = true;
        world.begin();
        world.pass(3);
        assert!(world.plan().give_up.is_empty());
        let mut shorter = (*world.wanted).clone();
        shorter.deletion_grace = Some(7);
        world.pod.wanted = Some(shorter.clone().into());
        assert_eq!(world.plan().give_up, [key]);
        world.begin();
        world.pass(1);
        let steps = world.begin();
        let given = steps.iter().find_map(|s| pre_stop_of(s).or(stop_of(s)));
        assert_eq!(given, Some(("a", 6)));
        assert!(world.plan().give_up.is_empty(), "and that is all");
        // A longer one changes nothing.
        shorter.deletion_grace = Some(60);
        world.pod.wanted = Some(shorter.into());
        assert!(world.plan().give_up.is_empty());
    }
}

#[test]
fn an_order_to_evict_shortens_an_end_under_way() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.pod.leaving = true;
    let id = world.running("a").unwrap();
    assert_eq!(world.begin().iter().find_map(stop_of), Some(("a", 30)));
    world.pod.order = Some(Terminal {
        reason: reason::EVICTED.into(),
        message: String::new(),
        phase: phase::FAILED.into(),
        disruption_target: true,
        decided_at: at(0),
        grace: Some(0),
    });
    assert_eq!(world.plan().give_up, [StepKey::StopContainer(id)]);
    world.begin();
    assert_eq!(world.begin().iter().find_map(stop_of), Some(("a", 2)));
}

#[test]
fn a_clock_that_is_set_back_gives_no_more_than_the_grace() {
    let mut world = World::new(with_hooks("Always", &["a"], &["preStop"]));
    world.settle();
    world.pod.leaving = true;
    world.begin();
    world.pass(-3600);
    world.restart();
    assert_eq!(world.begin().iter().find_map(pre_stop_of), Some(("a", 30)));
}

#[test]
fn sidecars_run_their_hooks_at_once_and_stop_last() {
    let sidecar = |name: &str| {
        json!({"name": name, "image": "s:1", "restartPolicy": "Always",
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}})
    };
    let mut spec = simple("Always", &["a"]);
    spec["initContainers"] = json!([sidecar("s1"), sidecar("s2")]);
    let mut world = World::new(spec);
    world.settle();
    assert_eq!(world.all_running(), ["a", "s1", "s2"]);
    world.pod.leaving = true;
    let steps = world.begin();
    let hooks: Vec<_> = steps.iter().filter_map(pre_stop_of).collect();
    assert_eq!(hooks, [("s2", 30), ("s1", 30)]);
    assert_eq!(steps.iter().find_map(stop_of), Some(("a", 30)));
    let (stop, hooks): (Vec<_>, Vec<_>) = steps.into_iter().partition(|s| stop_of(s).is_some());
    world.pass(4);
    hooks.iter().for_each(|step| world.finish(step));
    assert!(world.begin().is_empty(), "they wait for a");
    let plan = world.plan();
    assert!(
        plan.waiting
            .iter()
            .any(|w| w.what == "container s2 to have its turn to stop")
    );
    assert_eq!(plan.wake_at, Some(at(30)));
    world.pass(6);
    stop.iter().for_each(|step| world.finish(step));
    for (name, left) in [("s2", 20), ("s1", 20)] {
        let steps = world.begin();
        let stops: Vec<_> = steps.iter().filter_map(stop_of).collect();
        assert_eq!(stops, [(name, left)]);
        steps.iter().for_each(|step| world.finish(step));
    }
    world.settle();
    assert!(world.runtime.is_empty());
}

#[test]
fn nobody_waits_for_a_turn_longer_than_the_grace() {
    let mut spec = simple("Always", &["a"]);
    spec["initContainers"] = json!([{"name": "s1", "image": "s:1", "restartPolicy": "Always"}]);
    let mut world = World::new(spec);
    world.settle();
    world.pod.leaving = true;
    world.begin();
    world.pass(30);
    let steps = world.begin();
    assert_eq!(steps.iter().find_map(stop_of), Some(("s1", 2)));
}

#[test]
fn an_orphans_hook_is_the_one_written_on_it() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.runtime.containers[0].pre_stop = Some(Hook::Sleep { seconds: 1 }.into());
    world.runtime.containers[0].grace = Some(9);
    world.restart();
    world.pod.wanted = None;
    world.pod.listed = false;
    assert_eq!(world.begin().iter().find_map(pre_stop_of), Some(("a", 9)));
}

#[test]
fn what_a_doubtful_state_does_not_show_is_still_under_way() {
    let mut world = World::new(with_hooks("Always", &["a"], &["preStop"]));
    world.settle();
    world.pod.leaving = true;
    world.begin();
    let whole = world.runtime.clone();
    world.runtime.doubt = "it hangs".into();
    world.runtime.containers.clear();
    world.hear();
    world.runtime = whole;
    world.pass(10);
    world.restart();
    assert_eq!(world.begin().iter().find_map(pre_stop_of), Some(("a", 20)));
    world
        .pod
        .lifecycle
        .starts
        .insert("gone".into(), PostStart::Due);
    world.hear();
    assert!(world.pod.lifecycle.starts.is_empty());
    assert_eq!(world.runtime.newest("a").unwrap().phase, Stands::Running);
}
