//! What is heard late, in doubt, or not at all.

use polylet_model::constants::{phase, reason};

use super::super::learn::{self, Trouble};
use super::super::observed::Observed;
use super::super::plan::Phase;
use super::super::step::{Step, StepKey};
use super::super::view::{Terminal, Unwell};
use super::super::world::{World, at, simple};
use super::{init_pod, stop_of};

#[test]
fn a_doubtful_state_ends_nothing() {
    let mut world = World::new(simple("OnFailure", &["a"]));
    world.settle();
    let whole = world.runtime.clone();
    world.runtime.doubt = "it hangs".into();
    world.runtime.sandboxes[0].ips.clear();
    let id = world.running("a").unwrap();
    world.exit(&id, 0);
    world.hear();
    let plan = world.plan();
    assert!(
        plan.steps.is_empty() && !plan.waiting.is_empty(),
        "{plan:?}"
    );
    world.runtime = whole;
    world.hear();
    let plan = world.plan();
    assert!(plan.steps.is_empty() && plan.waiting.is_empty(), "{plan:?}");
    // What has to go goes all the same.
    world.runtime.doubt = "it hangs".into();
    world.hear();
    world.pod.leaving = true;
    assert_eq!(world.begin().iter().find_map(stop_of), Some(("a", 30)));
}

#[test]
fn a_clean_exit_of_an_unwell_container_is_no_success() {
    // The verdict may be withdrawn with the container, before its stop has ended.
    for withdrawn in [false, true] {
        let mut world = World::new(simple("OnFailure", &["a"]));
        world.settle();
        let id = world.running("a").unwrap();
        let unwell = Unwell {
            startup: false,
            message: String::new(),
        };
        world.pod.unwell.insert(id.clone(), unwell);
        let steps = world.begin();
        assert_eq!(steps.iter().find_map(stop_of), Some(("a", 30)));
        world.exit(&id, 0);
        world.hear();
        if withdrawn {
            world.pod.unwell.clear();
        }
        let early = world.begin();
        assert!(
            !early.iter().any(|s| matches!(s, Step::Decide(_))),
            "{early:?}"
        );
        for step in steps.iter().chain(&early) {
            world.finish(step);
        }
        world.settle();
        assert_eq!(world.all_running(), ["a"]);
        assert!(world.pod.journal.terminal.is_none());
    }
}

#[test]
fn an_init_container_killed_for_its_memory_is_tried_again_though_it_exits_with_zero() {
    for (policy, again) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut world = World::new(init_pod(policy));
        world.settle();
        let id = world.running("i1").unwrap();
        world.exit(&id, 0);
        world.runtime.containers[0].reason = "OOMKilled".into();
        world.hear();
        world.settle();
        if again {
            assert_eq!(world.all_running(), ["i1"], "{policy}");
            assert_eq!(world.runtime.newest("i1").unwrap().attempt, 1);
        } else {
            assert_eq!(
                world.pod.journal.terminal.as_ref().unwrap().phase,
                phase::FAILED
            );
        }
    }
}

#[test]
fn a_sandboxs_record_is_the_last_to_go() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.history.clear();
    world.pod.leaving = true;
    world.settle();
    assert_eq!(world.plan().phase, Phase::Reclaimed);
    let place = |key: &StepKey| world.history.iter().position(|s| s.key() == *key).unwrap();
    let sandbox = world
        .history
        .iter()
        .position(|s| matches!(s, Step::RemoveSandbox { .. }))
        .unwrap();
    assert!(place(&StepKey::RemoveCgroup) < sandbox && place(&StepKey::RemoveFiles) < sandbox);
}

#[test]
fn an_order_that_cannot_be_written_down_is_obeyed_and_written_later() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.pod.order = Some(Terminal {
        reason: reason::EVICTED.into(),
        message: "The node was low on resource: ephemeral-storage.".into(),
        phase: phase::FAILED.into(),
        disruption_target: true,
        decided_at: at(0),
        grace: Some(5),
    });
    for _ in 0..2 {
        let steps = world.begin();
        assert!(matches!(steps.as_slice(), [Step::Decide(_)]), "{steps:?}");
        world.fail(&steps[0], Trouble::default());
        assert!(world.planned().iter().all(|k| *k != StepKey::Journal));
        world.pass(if world.pod.journal.terminal.is_some() {
            0
        } else {
            1
        });
    }
    let steps = world.begin();
    assert_eq!(steps.iter().find_map(stop_of), Some(("a", 5)));
    steps.iter().for_each(|step| world.finish(step));
    world.settle();
    assert!(world.all_running().is_empty());
    assert_eq!(world.plan().phase, Phase::Terminating, "not on disk yet");
    world.pass(10);
    world.settle();
    assert_eq!(world.plan().phase, Phase::Terminated);
    let disk = world.disk.clone().unwrap();
    assert!(disk.torn_down && disk.terminal.is_some());
}

#[test]
fn a_pull_that_is_tried_again_is_still_a_failed_one() {
    let mut world = World::new(simple("Always", &["a"]));
    for _ in 0..3 {
        for step in world.begin() {
            match step {
                Step::PullImage { .. } => {
                    let trouble = Trouble {
                        reason: reason::ERR_IMAGE_PULL.into(),
                        message: "no such image".into(),
                        ..Trouble::default()
                    };
                    world.fail(&step, trouble);
                }
                other => world.finish(&other),
            }
        }
    }
    world.pass(10);
    assert_eq!(world.reasons()["a"], reason::IMAGE_PULL_BACK_OFF);
    let steps = world.begin();
    assert_eq!(
        steps.iter().map(Step::key).collect::<Vec<_>>(),
        [StepKey::Pull("a".into())]
    );
    assert_eq!(world.reasons()["a"], reason::IMAGE_PULL_BACK_OFF);
    steps.iter().for_each(|step| world.finish(step));
    assert!(world.reasons().is_empty());
}

#[test]
fn a_pod_whose_manifest_cannot_be_read_is_no_orphan() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.restart();
    world.pod.wanted = None;
    let plan = world.plan();
    assert!(plan.steps.is_empty(), "{plan:?}");
    assert_eq!(plan.phase, Phase::Unjudged);
    // Its source lets it go.
    world.pod.listed = false;
    assert_eq!(world.begin().iter().find_map(stop_of), Some(("a", 2)));
}

#[test]
fn a_clock_that_is_set_back_silences_nobody() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.pass(3600);
    world.hear();
    let said = |seconds| Observed {
        at: Some(at(seconds)),
        ..Default::default()
    };
    let known = world.pod.base.at;
    // Two words passed each other, a moment or, on a busy machine, half a minute apart.
    assert!(!learn::observed(&mut world.pod, said(3597)));
    assert!(learn::observed(&mut world.pod, said(3570)));
    assert!(!world.pod.base.is_empty() && world.pod.base.at == known);
    // The answer to our own question is newer than what was known when it was asked.
    assert!(!learn::refreshed(&mut world.pod, said(10), 0, known));
    assert!(world.pod.base.is_empty() && world.pod.base.at == Some(at(10)));
    // Unless something was heard in between: then it is asked again.
    assert!(!learn::observed(&mut world.pod, said(100)));
    assert!(learn::refreshed(&mut world.pod, said(20), 0, Some(at(10))));
    assert!(!learn::refreshed(&mut world.pod, said(98), 0, Some(at(10))));
    assert_eq!(world.pod.base.at, Some(at(100)));
    assert!(!learn::refreshed(
        &mut world.pod,
        said(20),
        0,
        Some(at(100))
    ));
    assert_eq!(world.pod.base.at, Some(at(20)));
}

#[test]
fn a_word_that_comes_very_late_brings_no_old_state_back() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    let old = world.runtime.clone();
    world.pass(60);
    world.ends("a", 1);
    world.settle();
    let now = world
        .runtime
        .newest("a")
        .map(|c| (c.attempt, c.back_off_step));
    assert_eq!(now, Some((1, 1)));
    // What was so a minute ago is told only now, when everything since was heard already.
    assert!(learn::observed(&mut world.pod, old));
    assert!(world.plan().steps.is_empty(), "{:?}", world.plan());
}

#[test]
fn verdicts_are_taken_in_by_kind() {
    use polylet_wire::prober::v1::{Outcome, ProbeKind, Verdict};
    let mut pod = super::super::view::Pod::default();
    let mut take = |kind: ProbeKind, outcome: Outcome| {
        let mut verdict = Verdict::default();
        verdict.set_outcome(outcome);
        crate::convert::verdict(&mut pod, "c1", kind.into(), &verdict)
    };
    assert_eq!(take(ProbeKind::Readiness, Outcome::Failure), None);
    assert_eq!(take(ProbeKind::Startup, Outcome::Success), Some(false));
    assert_eq!(take(ProbeKind::Liveness, Outcome::Failure), Some(true));
    assert!(pod.startup_ok.contains("c1") && !pod.unwell["c1"].startup);
}

#[test]
fn what_comes_to_light_after_the_end_goes_as_well() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    let sandbox = world.runtime.sandboxes[0].clone();
    world.pod.leaving = true;
    world.settle();
    assert_eq!(world.plan().phase, Phase::Reclaimed);
    // A former life's call has ended only now.
    world.runtime.sandboxes.push(sandbox);
    world.hear();
    assert_eq!(world.plan().phase, Phase::Terminating);
    world.settle();
    assert_eq!(world.plan().phase, Phase::Reclaimed);
    assert!(world.runtime.is_empty());
}

#[test]
fn an_orphan_that_is_wanted_again_goes_before_it_begins_anew() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    world.restart();
    let wanted = world.pod.wanted.take();
    world.pod.listed = false;
    let steps = world.begin();
    world.pod.wanted = wanted;
    world.pod.listed = true;
    assert_eq!(world.plan().phase, Phase::Terminating);
    steps.iter().for_each(|step| world.finish(step));
    world.settle();
    assert!(world.runtime.is_empty() && world.plan().forget);
}

#[test]
fn a_declaration_to_a_former_life_of_volume_manager_is_made_again() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = serde_json::json!([{"name": "data", "emptyDir": {}}]);
    let mut world = World::new(spec);
    let steps = world.begin();
    assert!(steps.contains(&Step::ApplyVolumes));
    learn::volumes_anew(&mut world.pod);
    steps.iter().for_each(|step| world.finish(step));
    assert_eq!(world.pod.volumes.declared, None);
    assert!(world.planned().contains(&StepKey::Volumes));
    world.settle();
    assert!(world.pod.volumes.declared.is_some());
}

#[test]
fn a_clock_that_is_set_back_holds_nobody_up() {
    // A crash that lies ahead is not waited out.
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    for _ in 0..2 {
        world.ends("a", 1);
        world.settle();
    }
    assert_eq!(world.reasons()["a"], reason::CRASH_LOOP_BACK_OFF);
    world.pass(-3600);
    world.settle();
    assert_eq!(world.all_running(), ["a"]);
    assert_eq!(world.runtime.newest("a").unwrap().back_off_step, 1);
    // Nor is a failure.
    let mut world = World::new(simple("Always", &["a"]));
    let steps = world.begin();
    steps
        .iter()
        .for_each(|step| world.fail(step, Trouble::default()));
    assert!(world.plan().steps.is_empty());
    world.pass(-3600);
    assert!(!world.plan().steps.is_empty());
    // Nor does a pod of which nothing is left stay.
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    (world.pod.leaving, world.pod.listed) = (true, false);
    world.settle();
    assert!(!world.plan().forget);
    world.pass(-3600);
    assert!(world.plan().forget);
}

#[test]
fn sandbox_lost_under_a_container_that_then_ends_well() {
    let mut world = World::new(simple("OnFailure", &["a"]));
    world.settle();
    world.runtime.sandboxes[0].ready = false;
    world.hear();
    let steps = world.begin();
    let id = world.running("a").unwrap();
    world.exit(&id, 0);
    steps.iter().for_each(|step| world.finish(step));
    world.settle();
    world.pass(10);
    world.settle();
    assert_eq!(world.all_running(), ["a"]);
    assert!(world.pod.journal.terminal.is_none());
}

#[test]
fn what_nobody_told_of_is_asked_about_before_it_is_cleared_away() {
    let mut world = World::new(simple("Always", &["a"]));
    world.settle();
    // A new life of this process, whose pleg has not looked at the pod since it began.
    world.restart();
    world.pod.base = Observed::default();
    world.pod.observed = Some(Observed::default());
    world.pod.leaving = true;
    let plan = world.plan();
    assert!(plan.asks && plan.steps.is_empty(), "{plan:?}");
    world.hear();
    assert!(!world.plan().asks);
    world.settle();
    assert!(world.runtime.is_empty());
    assert_eq!(world.plan().phase, Phase::Reclaimed);
}
