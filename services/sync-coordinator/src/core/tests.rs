//! Upstream's cases of what to do with a pod, and properties of all plans.

use polylet_model::constants::{phase, reason};
use proptest::prelude::*;
use serde_json::json;

use super::learn::Trouble;
use super::observed::{Phase as Stands, SeenContainer};
use super::plan::{Phase, Step, StepKey};
use super::view::{Terminal, Unwell};
use super::world::{World, at, simple};

fn init_pod(policy: &str) -> serde_json::Value {
    json!({"restartPolicy": policy,
        "initContainers": [{"name": "i1", "image": "i:1"}, {"name": "i2", "image": "i:1"}, {"name": "i3", "image": "i:1"}],
        "containers": [{"name": "a", "image": "a:1"}]})
}

fn sidecar_pod() -> serde_json::Value {
    json!({"restartPolicy": "Never",
        "initContainers": [
            {"name": "s1", "image": "s:1", "restartPolicy": "Always",
             "startupProbe": {"exec": {"command": ["true"]}}},
            {"name": "i2", "image": "i:1"},
            {"name": "s3", "image": "s:1", "restartPolicy": "Always"}],
        "containers": [{"name": "a", "image": "a:1"}]})
}

fn stop_of(step: &Step) -> Option<(&str, u32)> {
    match step {
        Step::StopContainer {
            container, grace, ..
        } => Some((container, *grace)),
        _ => None,
    }
}

#[test]
fn a_new_pod_begins_everything_at_once_and_ends_at_rest() {
    let mut spec = simple("Always", &["a", "b", "c"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let mut world = World::new(spec);
    let keys = world.planned();
    let pull = |n: &str| StepKey::Pull(n.into());
    assert_eq!(
        keys,
        [
            StepKey::Journal,
            StepKey::Volumes,
            pull("a"),
            pull("b"),
            pull("c"),
            StepKey::Cgroup
        ]
    );
    world.settle();
    assert_eq!(world.all_running(), ["a", "b", "c"]);
    let starts: Vec<&Step> = world
        .history
        .iter()
        .filter(|s| matches!(s, Step::StartContainer { .. }))
        .collect();
    let order: Vec<&str> = starts
        .iter()
        .map(|s| match s {
            Step::StartContainer { container, .. } => container.as_str(),
            _ => "",
        })
        .collect();
    assert_eq!(order, ["a", "b", "c"]);
    assert_eq!(world.plan().phase, Phase::Syncing);
    assert!(world.plan().waiting.is_empty() && world.plan().wake_at.is_none());
}

#[test]
fn nothing_is_done_twice_and_nothing_after_a_restart() {
    let mut world = World::new(simple("Always", &["a", "b"]));
    world.settle();
    world.restart();
    assert!(world.plan().steps.is_empty(), "{:?}", world.plan());
    world.begin();
    assert!(world.planned().is_empty());
}

#[test]
fn under_way_is_not_begun_again() {
    let mut world = World::new(simple("Always", &["a"]));
    let steps = world.begin();
    assert!(!steps.is_empty());
    assert!(world.begin().is_empty());
    let cgroup = steps.iter().find(|s| s.key() == StepKey::Cgroup).unwrap();
    world.finish(cgroup);
    assert_eq!(
        world.begin().iter().map(Step::key).collect::<Vec<_>>(),
        [StepKey::Sandbox]
    );
    assert!(world.begin().is_empty());
}

#[test]
fn containers_restart_by_policy() {
    for (policy, code, again) in [
        ("Always", 0, true),
        ("Always", 1, true),
        ("OnFailure", 0, false),
        ("OnFailure", 1, true),
        ("Never", 0, false),
        ("Never", 1, false),
    ] {
        let mut world = World::new(simple(policy, &["a", "b"]));
        world.settle();
        world.ends("b", code);
        world.settle();
        let expected: &[&str] = if again { &["a", "b"] } else { &["a"] };
        assert_eq!(world.all_running(), expected, "{policy} {code}");
        assert_eq!(world.plan().phase, Phase::Syncing);
    }
}

#[test]
fn crashes_are_waited_out_from_what_the_runtime_says() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    // Upstream's sequence: at once, then 10 s, 20 s, 40 s.
    for (attempt, pause) in [(1, 0), (2, 10), (3, 20), (4, 40)] {
        world.ends("a", 1);
        if pause > 0 {
            world.settle();
            assert_eq!(world.reasons()["a"], reason::CRASH_LOOP_BACK_OFF);
            assert_eq!(
                world.plan().wake_at,
                Some(world.now + jiff::SignedDuration::from_secs(pause))
            );
            world.pass(pause - 1);
            world.restart();
            world.settle();
            assert!(
                world.all_running().is_empty(),
                "too early after a restart of this process"
            );
            world.pass(1);
        }
        world.settle();
        assert_eq!(world.all_running(), ["a"]);
        assert_eq!(world.runtime.newest("a").unwrap().attempt, attempt);
    }
    assert_eq!(
        world.runtime.containers.len(),
        2,
        "one dead container is kept"
    );
    world.pass(601);
    world.ends("a", 1);
    world.settle();
    assert_eq!(world.all_running(), ["a"], "it ran long enough");
}

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
        world.wanted = super::wanted::Wanted::of(&super::world::manifest(spec), &[]).into();
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
fn init_containers_run_one_after_another() {
    let mut world = World::new(init_pod("Always"));
    world.settle();
    for name in ["i1", "i2", "i3"] {
        assert_eq!(world.all_running(), [name]);
        world.ends(name, 0);
        world.settle();
    }
    assert_eq!(world.all_running(), ["a"]);
    // Records of finished ones may vanish: they do not run again.
    world.runtime.containers.retain(|c| c.name == "a");
    world.restart();
    assert!(world.plan().steps.is_empty());
}

#[test]
fn failed_init_containers() {
    for (policy, again) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut world = World::new(init_pod(policy));
        world.settle();
        world.ends("i1", 0);
        world.settle();
        world.ends("i2", 1);
        world.settle();
        if again {
            assert_eq!(world.all_running(), ["i2"], "{policy}");
            assert_eq!(world.runtime.newest("i2").unwrap().attempt, 1);
        } else {
            assert_eq!(
                world.pod.journal.terminal.as_ref().unwrap().phase,
                phase::FAILED
            );
        }
    }
}

#[test]
fn sidecars_hold_back_what_follows_until_they_have_started() {
    let mut world = World::new(sidecar_pod());
    world.settle();
    assert_eq!(world.all_running(), ["s1"]);
    let id = world.running("s1").unwrap();
    world.pod.startup_ok.insert(id);
    world.settle();
    assert_eq!(world.all_running(), ["i2", "s1"]);
    world.ends("i2", 0);
    world.settle();
    assert_eq!(world.all_running(), ["a", "s1", "s3"]);
    // A sidecar restarts though the pod never does.
    world.ends("s3", 1);
    world.settle();
    assert_eq!(world.all_running(), ["a", "s1", "s3"]);
    // It does not outlive the main containers.
    world.ends("a", 0);
    world.settle();
    assert!(world.all_running().is_empty());
    assert_eq!(
        world.pod.journal.terminal.as_ref().unwrap().phase,
        phase::SUCCEEDED
    );
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
    world.restart();
    world.pod.wanted = None;
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
fn without_pleg_or_runtime_nothing_is_begun() {
    let mut world = World::new(simple("Always", &["a"]));
    world.node.pleg_fresh = false;
    assert!(world.plan().steps.is_empty());
    world.node.pleg_fresh = true;
    world.node.runtime = Err("away".into());
    assert!(world.plan().steps.is_empty());
    world.node.runtime = Ok(());
    world.node.network = Err("no CNI".into());
    assert!(!world.planned().contains(&StepKey::Sandbox));
    world.node.network = Ok(());
    world.pod.blocked_by = Some("u0".into());
    assert!(world.plan().steps.is_empty());
}

#[test]
fn failed_pulls_back_off_and_tell_so() {
    let mut world = World::new(simple("Always", &["a"]));
    for (count, pause) in [(1, 10), (2, 20), (3, 40)] {
        loop {
            let steps = world.begin();
            if steps.is_empty() {
                break;
            }
            for step in steps {
                match step {
                    Step::PullImage { .. } => world.fail(
                        &step,
                        Trouble {
                            reason: reason::ERR_IMAGE_PULL.into(),
                            message: "no such image".into(),
                            ..Trouble::default()
                        },
                    ),
                    other => world.finish(&other),
                }
            }
        }
        assert_eq!(world.reasons()["a"], reason::ERR_IMAGE_PULL, "{count}");
        world.pass(3);
        assert_eq!(world.reasons()["a"], reason::IMAGE_PULL_BACK_OFF, "{count}");
        world.pass(pause - 3);
        assert_eq!(world.planned(), [StepKey::Pull("a".into())]);
    }
    world.settle();
    assert_eq!(world.all_running(), ["a"]);
}

#[test]
fn a_lost_sandbox_call_takes_the_next_number() {
    let mut world = World::new(simple("Always", &["a"]));
    for step in world.begin() {
        world.finish(&step);
    }
    let steps = world.begin();
    let sandbox = steps.iter().find(|s| s.key() == StepKey::Sandbox).unwrap();
    world.fail(
        sandbox,
        Trouble {
            unknown: true,
            ..Trouble::default()
        },
    );
    assert!(
        !world.planned().contains(&StepKey::Sandbox),
        "it may still come about"
    );
    world.pass(2);
    let steps = world.begin();
    assert!(
        steps.contains(&Step::CreateSandbox { attempt: 1 }),
        "{steps:?}"
    );
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

#[test]
fn without_a_place_only_light_steps_are_begun() {
    let mut world = World::new(simple("Always", &["a"]));
    world.pod.slot = false;
    for step in world.begin() {
        world.finish(&step);
    }
    let plan = world.plan();
    assert!(plan.steps.is_empty() && plan.wants_slot);
    world.pod.slot = true;
    assert_eq!(world.planned(), [StepKey::Sandbox]);
}

#[test]
fn stale_words_do_not_undo_our_own_acts() {
    let mut world = World::new(simple("Always", &["a"]));
    let before = super::observed::Observed {
        at: Some(at(1)),
        ..Default::default()
    };
    world.settle();
    world.pod.base = before.clone();
    world.pod.overlays = vec![
        (
            1,
            super::observed::Overlay::Sandbox(world.runtime.sandboxes[0].clone()),
        ),
        (
            2,
            super::observed::Overlay::Created(world.runtime.containers[0].clone()),
        ),
    ];
    world.pod.acts = 2;
    super::learn::observed(
        &mut world.pod,
        super::observed::Observed {
            at: Some(at(2)),
            ..before
        },
    );
    assert!(world.plan().steps.is_empty());
    world.hear();
    assert!(world.plan().steps.is_empty() && world.pod.overlays.is_empty());
}

fn specs() -> impl Strategy<Value = serde_json::Value> {
    let policy = prop::sample::select(vec!["Always", "OnFailure", "Never"]);
    (policy, 0..3_usize, any::<bool>(), 1..4_usize, any::<bool>()).prop_map(
        |(policy, inits, sidecar, mains, volumes)| {
            let container = |name: String| json!({"name": name, "image": "x:1"});
            let mut init: Vec<_> = (0..inits).map(|n| container(format!("i{n}"))).collect();
            if sidecar {
                let mut sidecar = container("s".into());
                sidecar["restartPolicy"] = json!("Always");
                init.push(sidecar);
            }
            let main: Vec<_> = (0..mains).map(|n| container(format!("m{n}"))).collect();
            let mut spec =
                json!({"restartPolicy": policy, "initContainers": init, "containers": main});
            if volumes {
                spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
            }
            spec
        },
    )
}

/// Something happens: a step under way ends, fails, or is lost with the process;
/// a container ends; the sandbox dies; time passes.
fn disturb(world: &mut World, what: u8, pick: usize) {
    let flights: Vec<Step> = world.pod.flights.values().map(|f| f.step.clone()).collect();
    let picked = flights.get(pick % flights.len().max(1)).cloned();
    let running: Vec<SeenContainer> = world
        .runtime
        .containers
        .iter()
        .filter(|c| c.phase == Stands::Running)
        .cloned()
        .collect();
    match (what % 8, picked) {
        (0..=2, Some(step)) => world.finish(&step),
        (3, Some(step)) => world.fail(&step, Trouble::default()),
        // Killed after the effect, before anybody heard of it.
        (4, Some(step)) => {
            if let Step::CreateSandbox { attempt } = step {
                world.pod.sandbox_floor = attempt + 1;
            }
            let floor = world.pod.sandbox_floor;
            let _ = world.effect(&step);
            world.restart();
            world.pod.sandbox_floor = floor;
        }
        // Killed before the effect.
        (5, _) => world.restart(),
        (6, _) => {
            if let Some(container) = running.get(pick % running.len().max(1)) {
                let name = container.name.clone();
                world.ends(&name, i32::try_from(pick % 2).unwrap_or(0));
            }
        }
        (7, _) => {
            world.pass(i64::try_from(pick % 20).unwrap_or(0));
            if pick % 7 == 0 {
                for sandbox in &mut world.runtime.sandboxes {
                    sandbox.ready = false;
                }
                let ids: Vec<String> = world
                    .runtime
                    .containers
                    .iter()
                    .map(|c| c.id.clone())
                    .collect();
                ids.iter().for_each(|id| world.exit(id, 137));
                world.hear();
            }
        }
        _ => {}
    }
}

/// Lets time pass and init containers succeed until nothing more is wanted.
fn come_to_rest(world: &mut World) {
    let flights: Vec<Step> = world.pod.flights.values().map(|f| f.step.clone()).collect();
    flights.iter().for_each(|step| world.finish(step));
    for _ in 0..40 {
        world.settle();
        world.pass(400);
        let inits: Vec<String> = world
            .all_running()
            .iter()
            .filter(|n| n.starts_with('i'))
            .map(|n| (*n).to_owned())
            .collect();
        for name in inits {
            world.ends(&name, 0);
        }
    }
    world.settle();
}

proptest! {
    /// Whatever happens in whatever order, with the process dying anywhere: each
    /// pod comes to rest as its manifest says, and at rest there is nothing to do.
    #[test]
    fn every_history_converges(spec in specs(), events in prop::collection::vec((any::<u8>(), any::<usize>()), 0..60), leave: bool) {
        let mut world = World::new(spec);
        for (what, pick) in events {
            world.begin();
            disturb(&mut world, what, pick);
        }
        if leave {
            world.pod.leaving = true;
        }
        come_to_rest(&mut world);
        let plan = world.plan();
        prop_assert!(plan.steps.is_empty(), "{:?}", plan);
        if leave {
            prop_assert!(world.runtime.is_empty() && world.volumes.is_none());
        } else if world.pod.journal.terminal.is_some() {
            prop_assert!(world.all_running().is_empty());
            prop_assert_eq!(plan.phase, Phase::Terminated);
        } else {
            let mains: Vec<String> = world.wanted.containers.iter().filter(|c| c.name.starts_with('m')).map(|c| c.name.clone()).collect();
            for name in mains {
                let newest = world.runtime.newest(&name);
                let fine = newest.is_some_and(|c| c.phase == Stands::Running || c.succeeded() || world.wanted.restart != polylet_model::RestartPolicy::Always);
                prop_assert!(fine, "{} {:?}", name, newest);
            }
        }
        if leave {
            return Ok(());
        }
        let changes = |world: &World| world.history.iter().filter(|s| **s != Step::ApplyVolumes).count();
        let facts = (world.runtime.containers.clone(), changes(&world));
        world.restart();
        world.settle();
        prop_assert_eq!(facts, (world.runtime.containers.clone(), changes(&world)));
    }
}

#[test]
fn a_start_that_was_lost_with_its_caller_is_no_exit() {
    for policy in ["Always", "Never"] {
        let mut world = World::new(simple(policy, &["a"]));
        world.settle();
        let id = world.running("a").unwrap();
        world.exit(&id, 128);
        world.runtime.containers[0].aborted = true;
        world.hear();
        world.settle();
        assert_eq!(world.all_running(), ["a"], "{policy}");
        assert_eq!(world.runtime.newest("a").unwrap().back_off_step, 0);
    }
}
