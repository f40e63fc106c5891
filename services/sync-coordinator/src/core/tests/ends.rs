//! How containers and pods end, and what follows.

use polylet_model::constants::{phase, reason};
use serde_json::json;

use super::super::plan::Phase;
use super::super::step::Step;
use super::super::view::{Terminal, Unwell};
use super::super::wanted::Wanted;
use super::super::world::{World, at, manifest, simple};
use super::{sidecar_pod, stop_of};

#[test]
fn pods_that_never_restart_come_to_their_end() {
    for (codes, expected) in [([0, 0], phase::SUCCEEDED), ([0, 3], phase::FAILED)] {
        let mut world = World::new(simple("Never", &["a", "b"]));
        world.settle();
        world.ends("a", codes[0]);
        world.settle();
        assert_eq!(world.plan().phase, Phase::Syncing);
        world.ends("b", codes[1]);
        world.settle();
        let terminal = world.pod.journal.terminal.clone().unwrap();
        assert_eq!(
            (terminal.phase.as_str(), terminal.reason.as_str()),
            (expected, "")
        );
        assert_eq!(world.plan().phase, Phase::Terminated);
        assert_eq!(world.runtime.containers.len(), 2, "records stay");
        assert!(!world.runtime.sandboxes[0].ready);
        let done = world.history.len();
        world.restart();
        world.settle();
        assert_eq!(world.history.len(), done, "nothing to do after a restart");
    }
}

#[test]
fn a_changed_image_replaces_the_container_whatever_the_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut world = World::new(simple(policy, &["a", "b"]));
        world.settle();
        let mut spec = simple(policy, &["a", "b"]);
        spec["containers"][1]["image"] = json!("other:2");
        world.wanted = Wanted::of(&manifest(spec), &[]).into();
        world.pod.wanted = Some(world.wanted.clone());
        let steps = world.begin();
        assert_eq!(steps.iter().find_map(stop_of), Some(("b", 30)), "{policy}");
        for step in steps {
            world.finish(&step);
        }
        world.settle();
        assert_eq!(world.all_running(), ["a", "b"], "{policy}");
    }
}

#[test]
fn unwell_containers_are_stopped_and_started_by_policy() {
    for (policy, again) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut spec = simple(policy, &["a", "b"]);
        spec["containers"][0]["livenessProbe"] =
            json!({"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 7});
        let mut world = World::new(spec);
        world.settle();
        let id = world.running("a").unwrap();
        world.pod.unwell.insert(
            id,
            Unwell {
                startup: false,
                message: String::new(),
            },
        );
        let steps = world.begin();
        assert_eq!(steps.iter().find_map(stop_of), Some(("a", 7)));
        steps.iter().for_each(|step| world.finish(step));
        world.settle();
        let expected: &[&str] = if again { &["a", "b"] } else { &["b"] };
        assert_eq!(world.all_running(), expected, "{policy}");
    }
}

#[test]
fn a_lost_sandbox_is_made_again_unless_nothing_would_start() {
    for (policy, codes, again) in [
        ("Always", [None, None], true),
        ("OnFailure", [Some(0), None], true),
        ("OnFailure", [Some(0), Some(0)], false),
        ("Never", [None, None], false),
    ] {
        let mut world = World::new(simple(policy, &["a", "b"]));
        world.settle();
        for (name, code) in ["a", "b"].iter().zip(codes) {
            let id = world.running(name).unwrap();
            if let Some(code) = code {
                world.exit(&id, code);
            }
        }
        world.runtime.sandboxes[0].ready = false;
        world.hear();
        world.settle();
        world.pass(30);
        world.settle();
        let ready = world.runtime.sandboxes.iter().filter(|s| s.ready).count();
        assert_eq!(ready == 1, again, "{policy} {codes:?}");
        if again {
            let expected: Vec<&str> = ["a", "b"]
                .iter()
                .zip(codes)
                .filter(|(_, c)| c.is_none())
                .map(|(n, _)| *n)
                .collect();
            assert_eq!(world.all_running(), expected, "{policy} {codes:?}");
            assert_eq!(world.runtime.newest_sandbox().unwrap().attempt, 1);
            assert_eq!(
                world.runtime.sandboxes.len(),
                if policy == "OnFailure" {
                    2
                } else {
                    world.runtime.sandboxes.len()
                }
            );
        } else {
            assert!(world.pod.journal.terminal.is_some());
        }
    }
}

#[test]
fn leaving_stops_main_containers_first_and_sidecars_in_reverse() {
    let mut world = World::new(sidecar_pod());
    world.settle();
    world.pod.startup_ok.insert(world.running("s1").unwrap());
    world.settle();
    world.ends("i2", 0);
    world.settle();
    world.pod.leaving = true;
    for name in ["a", "s3", "s1"] {
        let steps = world.begin();
        let stops: Vec<&str> = steps
            .iter()
            .filter_map(stop_of)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(stops, [name]);
        steps.iter().for_each(|step| world.finish(step));
    }
    world.settle();
    assert!(world.runtime.is_empty());
    assert_eq!(world.plan().phase, Phase::Reclaimed);
}

#[test]
fn everything_of_a_leaving_pod_goes_in_order() {
    let mut spec = simple("Always", &["a", "b"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let mut world = World::new(spec);
    world.settle();
    world.history.clear();
    world.pod.leaving = true;
    world.pod.listed = false;
    let steps = world.begin();
    let mut stops: Vec<(&str, u32)> = steps.iter().filter_map(stop_of).collect();
    stops.sort_unstable();
    assert_eq!(stops, [("a", 30), ("b", 30)]);
    steps.iter().for_each(|step| world.finish(step));
    world.settle();
    assert!(world.runtime.is_empty() && world.volumes.is_none());
    assert_eq!(world.plan().phase, Phase::Reclaimed);
    assert!(!world.plan().forget);
    world.pass(2);
    assert!(world.plan().forget);
}

#[test]
fn orphans_wait_until_all_have_spoken() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.restart();
    world.pod.wanted = None;
    world.pod.listed = false;
    world.node.all_heard = false;
    assert!(world.plan().steps.is_empty());
    assert_eq!(world.plan().phase, Phase::Unjudged);
    world.node.all_heard = true;
    assert_eq!(world.begin().iter().find_map(stop_of), Some(("a", 2)));
    world.node.all_heard = false;
    world.runtime.containers[0].grace = Some(9);
    world.pod.lifecycle = Default::default();
    world.restart();
    world.pod.wanted = None;
    world.pod.listed = false;
    world.node.all_heard = true;
    assert_eq!(world.begin().iter().find_map(stop_of), Some(("a", 9)));
}

#[test]
fn an_order_is_written_down_before_it_is_obeyed() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.pod.order = Some(Terminal {
        reason: reason::EVICTED.into(),
        message: "The node was low on resource: memory.".into(),
        phase: phase::FAILED.into(),
        disruption_target: true,
        decided_at: at(0),
        grace: Some(1),
    });
    let steps = world.begin();
    assert!(matches!(steps.as_slice(), [Step::Decide(_)]), "{steps:?}");
    steps.iter().for_each(|step| world.finish(step));
    world.pod.order = None;
    world.restart();
    assert_eq!(world.begin().iter().find_map(stop_of), Some(("a", 2)));
    world.restart();
    world.settle();
    assert_eq!(world.plan().phase, Phase::Terminated);
}

#[test]
fn deadlines_count_from_when_the_node_took_the_pod_up() {
    let mut spec = simple("Always", &["a"]);
    spec["activeDeadlineSeconds"] = json!(60);
    let mut world = World::new(spec);
    world.settle();
    assert_eq!(world.plan().wake_at, Some(at(60)));
    world.pass(60);
    world.restart();
    world.settle();
    assert_eq!(
        world.pod.journal.terminal.as_ref().unwrap().reason,
        reason::DEADLINE_EXCEEDED
    );
    assert!(world.all_running().is_empty());
}

#[test]
fn admission_under_pressure() {
    let burstable = json!({"restartPolicy": "Always", "containers": [
        {"name": "a", "image": "a:1", "resources": {"requests": {"cpu": "100m"}}}]});
    let tolerant = json!({"restartPolicy": "Always", "containers": [{"name": "a", "image": "a:1"}],
        "tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]});
    let critical = json!({"restartPolicy": "Always", "priority": 2_000_000_000, "containers": [{"name": "a", "image": "a:1"}]});
    for (spec, memory, disk) in [
        (simple("Always", &["a"]), false, false),
        (burstable, true, false),
        (tolerant, true, false),
        (critical, true, true),
    ] {
        for (is_memory, refused) in [(true, !memory), (false, !disk)] {
            let mut world = World::new(spec.clone());
            world.node.pressure.memory = is_memory;
            world.node.pressure.disk = !is_memory;
            world.settle();
            assert_eq!(
                world.pod.journal.terminal.is_some(),
                refused,
                "{spec} memory {is_memory}"
            );
            assert_eq!(world.all_running().is_empty(), refused);
        }
    }
    // What runs was admitted, and stays so.
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.node.pressure.disk = true;
    world.restart();
    assert!(world.plan().steps.is_empty());
}

#[test]
fn a_second_sandbox_is_stopped_and_containers_stay() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    let mut late = world.runtime.sandboxes[0].clone();
    (late.id, late.attempt) = ("late".into(), 5);
    world.runtime.sandboxes.insert(0, late);
    world.hear();
    assert_eq!(
        world.plan().steps,
        [Step::StopSandbox { id: "late".into() }]
    );
    world.settle();
    assert_eq!(world.all_running(), ["a"]);
    assert_eq!(world.runtime.sandboxes.len(), 1);
}
