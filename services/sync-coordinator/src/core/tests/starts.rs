//! How pods come to run, and what keeps them from it.

use polylet_model::constants::{phase, reason};
use serde_json::json;

use super::super::learn::{self, Outcome, Trouble};
use super::super::observed::{Observed, Overlay};
use super::super::plan::Phase;
use super::super::step::{Step, StepKey};
use super::super::view::SeenVolume;
use super::super::world::{World, at, simple};
use super::{init_pod, sidecar_pod};

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
            // Until there is another one, people go on reading the same.
            for steps in [world.begin(), world.begin()] {
                assert_eq!(
                    world.reasons()["a"],
                    reason::CRASH_LOOP_BACK_OFF,
                    "{steps:?}"
                );
            }
            world.restart();
        }
        world.settle();
        assert_eq!(world.all_running(), ["a"]);
        assert!(world.reasons().is_empty());
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
    let before = Observed {
        at: Some(at(1)),
        ..Default::default()
    };
    world.settle();
    world.pod.base = before.clone();
    world.pod.overlays = vec![
        (1, Overlay::Sandbox(world.runtime.sandboxes[0].clone())),
        (2, Overlay::Created(world.runtime.containers[0].clone())),
    ];
    world.pod.acts = 2;
    let said = Observed {
        at: Some(at(2)),
        ..before
    };
    assert!(!learn::observed(&mut world.pod, said));
    assert!(world.plan().steps.is_empty());
    world.hear();
    assert!(world.plan().steps.is_empty() && world.pod.overlays.is_empty());
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

#[test]
fn an_answer_does_not_undo_what_the_stream_told_meanwhile() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let mut world = World::new(spec);
    world.begin();
    let outcome = world.effect(&Step::ApplyVolumes);
    let Outcome::Declared {
        digest,
        sequence,
        seen,
    } = outcome
    else {
        panic!("declared")
    };
    learn::volumes_heard(&mut world.pod, sequence, seen.clone());
    let waiting = seen
        .into_iter()
        .map(|v| SeenVolume {
            mounted: false,
            ..v
        })
        .collect();
    let late = Outcome::Declared {
        digest,
        sequence,
        seen: waiting,
    };
    learn::ended(&mut world.pod, &StepKey::Volumes, late, at(0));
    assert!(world.pod.volumes.seen.as_ref().unwrap().1[0].mounted);
}

#[test]
fn a_sandbox_waits_for_volumes_that_may_never_come() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let volume = |mounted, coming| SeenVolume {
        name: "data".into(),
        mounted,
        coming,
        gone: false,
        host_path: String::new(),
        message: String::new(),
        refusal: String::new(),
        group: None,
    };
    for (volume, made) in [
        (volume(false, false), false),
        (volume(false, true), true),
        (volume(true, false), true),
    ] {
        let mut world = World::new(spec.clone());
        for step in world.begin() {
            world.finish(&step);
        }
        let (sequence, seen) = world.pod.volumes.seen.as_mut().unwrap();
        *seen = vec![volume.clone()];
        assert!(*sequence > 0);
        let planned = world.planned().contains(&StepKey::Sandbox);
        assert_eq!(planned, made, "{volume:?}");
    }
}

#[test]
fn a_pod_is_refused_for_want_of_a_volume() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let mut world = World::new(spec);
    for step in world.begin() {
        world.finish(&step);
    }
    let refused = SeenVolume {
        name: "data".into(),
        mounted: false,
        coming: false,
        gone: false,
        host_path: String::new(),
        message: "no more".into(),
        refusal: "VolumeAttachmentLimitExceeded".into(),
        group: None,
    };
    learn::volumes_heard(&mut world.pod, 1, vec![refused]);
    let steps = world.begin();
    let [Step::Decide(terminal)] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!(terminal.reason, "VolumeAttachmentLimitExceeded");
    assert_eq!(terminal.message, "Pod was rejected: no more");
    assert_eq!(terminal.phase, "Failed");
}
