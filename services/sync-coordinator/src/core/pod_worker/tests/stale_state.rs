//! Late, partial and missing reports.

use polylet_model::constants::{phase, reason};

use super::{init_pod, stop_of};
use crate::core::apply_result::{self, ReportOutcome};
use crate::core::checkpoint::PodTermination;
use crate::core::plan::SyncPhase;
use crate::core::runtime_state::PodRuntimeState;
use crate::core::step::{Step, StepFailure, StepKey};
use crate::core::test_support::{TestEnv, at, simple};
use crate::core::view::ProbeFailure;

#[test]
fn a_partial_report_ends_nothing() {
    let mut env = TestEnv::new(simple("OnFailure", &["a"]));
    env.run_until_idle();
    let complete = env.runtime.clone();
    env.runtime.inspect_error = "timeout".into();
    env.runtime.sandboxes[0].ips.clear();
    let id = env.running("a").unwrap();
    env.exit_by_id(&id, 0);
    env.relist();
    let plan = env.plan();
    assert!(
        plan.steps.is_empty() && !plan.waiting_for.is_empty(),
        "{plan:?}"
    );
    env.runtime = complete;
    env.relist();
    let plan = env.plan();
    assert!(
        plan.steps.is_empty() && plan.waiting_for.is_empty(),
        "{plan:?}"
    );
    // A removed pod is stopped nevertheless.
    env.runtime.inspect_error = "timeout".into();
    env.relist();
    env.remove();
    assert_eq!(env.start_steps().iter().find_map(stop_of), Some(("a", 30)));
}

#[test]
fn exit_zero_after_a_failed_probe_is_no_success() {
    // The probe result may disappear with the container before the stop has ended.
    for withdrawn in [false, true] {
        let mut env = TestEnv::new(simple("OnFailure", &["a"]));
        env.run_until_idle();
        let id = env.running("a").unwrap();
        let failure = ProbeFailure {
            startup: false,
            message: String::new(),
        };
        env.pod.probe_failures.insert(id.clone(), failure);
        let steps = env.start_steps();
        assert_eq!(steps.iter().find_map(stop_of), Some(("a", 30)));
        env.exit_by_id(&id, 0);
        env.relist();
        if withdrawn {
            env.pod.probe_failures.clear();
        }
        let early = env.start_steps();
        assert!(
            !early
                .iter()
                .any(|s| matches!(s, Step::CheckpointTermination(_))),
            "{early:?}"
        );
        for step in steps.iter().chain(&early) {
            env.finish(step);
        }
        env.run_until_idle();
        assert_eq!(env.running_names(), ["a"]);
        assert!(env.pod.checkpoint.termination.is_none());
    }
}

#[test]
fn an_oom_killed_init_container_restarts_despite_exit_zero() {
    for (policy, again) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut env = TestEnv::new(init_pod(policy));
        env.run_until_idle();
        let id = env.running("i1").unwrap();
        env.exit_by_id(&id, 0);
        env.runtime.containers[0].reason = "OOMKilled".into();
        env.relist();
        env.run_until_idle();
        if again {
            assert_eq!(env.running_names(), ["i1"], "{policy}");
            assert_eq!(env.runtime.newest_container("i1").unwrap().attempt, 1);
        } else {
            assert_eq!(
                env.pod.checkpoint.termination.as_ref().unwrap().phase,
                phase::FAILED
            );
        }
    }
}

#[test]
fn the_sandbox_is_removed_last() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.history.clear();
    env.remove();
    env.run_until_idle();
    assert_eq!(env.plan().phase, SyncPhase::CleanedUp);
    let position = |key: &StepKey| env.history.iter().position(|s| s.key() == *key).unwrap();
    let sandbox = env
        .history
        .iter()
        .position(|s| matches!(s, Step::RemoveSandbox { .. }))
        .unwrap();
    assert!(
        position(&StepKey::RemoveCgroup) < sandbox && position(&StepKey::RemoveFiles) < sandbox
    );
}

#[test]
fn an_eviction_that_cannot_be_stored_is_executed_and_stored_later() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.pod.eviction = Some(PodTermination {
        reason: reason::EVICTED.into(),
        message: "The node was low on resource: ephemeral-storage.".into(),
        phase: phase::FAILED.into(),
        disruption_target: true,
        decided_at: at(0),
        grace_period: Some(5),
    });
    for _ in 0..2 {
        let steps = env.start_steps();
        assert!(
            matches!(steps.as_slice(), [Step::CheckpointTermination(_)]),
            "{steps:?}"
        );
        env.fail(&steps[0], StepFailure::default());
        assert!(env.planned_keys().iter().all(|k| *k != StepKey::Checkpoint));
        env.advance_clock(if env.pod.checkpoint.termination.is_some() {
            0
        } else {
            1
        });
    }
    let steps = env.start_steps();
    assert_eq!(steps.iter().find_map(stop_of), Some(("a", 5)));
    steps.iter().for_each(|step| env.finish(step));
    env.run_until_idle();
    assert!(env.running_names().is_empty());
    assert_eq!(env.plan().phase, SyncPhase::Terminating, "not stored yet");
    env.advance_clock(10);
    env.run_until_idle();
    assert_eq!(env.plan().phase, SyncPhase::Terminated);
    let disk = env.disk.clone().unwrap();
    assert!(disk.terminated && disk.termination.is_some());
}

#[test]
fn image_pull_back_off_stays_during_the_retry() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    for _ in 0..3 {
        for step in env.start_steps() {
            match step {
                Step::PullImage { .. } => {
                    let failure = StepFailure {
                        reason: reason::ERR_IMAGE_PULL.into(),
                        message: "no such image".into(),
                        ..StepFailure::default()
                    };
                    env.fail(&step, failure);
                }
                other => env.finish(&other),
            }
        }
    }
    env.advance_clock(10);
    assert_eq!(env.waiting_reasons()["a"], reason::IMAGE_PULL_BACK_OFF);
    let steps = env.start_steps();
    assert_eq!(
        steps.iter().map(Step::key).collect::<Vec<_>>(),
        [StepKey::PullImage("a".into())]
    );
    assert_eq!(env.waiting_reasons()["a"], reason::IMAGE_PULL_BACK_OFF);
    steps.iter().for_each(|step| env.finish(step));
    assert!(env.waiting_reasons().is_empty());
}

#[test]
fn a_pod_with_an_invalid_manifest_is_no_orphan() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.restart_process();
    env.pod.spec = None;
    let plan = env.plan();
    assert!(plan.steps.is_empty(), "{plan:?}");
    assert_eq!(plan.phase, SyncPhase::Pending);
    // Its source drops it.
    env.pod.has_source = false;
    assert_eq!(env.start_steps().iter().find_map(stop_of), Some(("a", 2)));
}

#[test]
fn reports_are_accepted_after_a_backward_clock_step() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.advance_clock(3600);
    env.relist();
    let running = env.runtime.clone();
    let of = |content: &PodRuntimeState, seconds| PodRuntimeState {
        observed_at: Some(at(seconds)),
        ..content.clone()
    };
    let empty = PodRuntimeState::default();
    let known = env.pod.last_reported.observed_at;
    for (content, seconds, now, expected) in [
        // Reports overtook each other.
        (&empty, 3599, at(3600), ReportOutcome::Overtaken),
        (&running, 3599, at(3600), ReportOutcome::Overtaken),
        // The clock was set back: by a moment, half a minute, or an hour that is over.
        (&empty, 3599, at(3599), ReportOutcome::Conflicting),
        (&running, 3599, at(3599), ReportOutcome::Repeated),
        (&empty, 3570, at(3600), ReportOutcome::Conflicting),
        (&empty, 10, at(3600), ReportOutcome::Conflicting),
        (&running, 10, at(3600), ReportOutcome::Repeated),
    ] {
        let outcome = apply_result::on_observed(&mut env.pod, of(content, seconds), now);
        assert_eq!(outcome, expected, "{seconds}");
        assert_eq!(*env.pod.last_reported, of(&running, 3600));
    }
    // A response is newer than what was known at the time of its request.
    let repeat = apply_result::on_refreshed(&mut env.pod, of(&empty, 10), 0, known, at(10));
    assert!(!repeat);
    assert_eq!(*env.pod.last_reported, of(&empty, 10));
}

#[test]
fn refresh_is_repeated_if_another_report_contradicts_its_response() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    let of = |content: &PodRuntimeState, seconds| PodRuntimeState {
        observed_at: Some(at(seconds)),
        ..content.clone()
    };
    let (running, empty) = (env.runtime.clone(), PodRuntimeState::default());
    let known = env.pod.last_reported.observed_at;
    let outcome = apply_result::on_observed(&mut env.pod, of(&running, 100), at(100));
    assert_eq!(outcome, ReportOutcome::Applied);
    for (content, seconds, now, repeat) in [
        // The report was made after the response.
        (&empty, 99, at(101), false),
        // The clock was set back before the response, by a moment or by a minute.
        (&empty, 99, at(99), true),
        (&empty, 20, at(101), true),
        (&running, 99, at(99), false),
        (&running, 20, at(20), false),
    ] {
        let response = of(content, seconds);
        let repeated = apply_result::on_refreshed(&mut env.pod, response, 0, known, now);
        assert_eq!(repeated, repeat, "{seconds}");
        assert_eq!(*env.pod.last_reported, of(&running, 100));
    }
    // Its response is newer than the report.
    let response = of(&empty, 20);
    let repeated = apply_result::on_refreshed(&mut env.pod, response, 0, Some(at(100)), at(20));
    assert!(!repeated);
    assert_eq!(*env.pod.last_reported, of(&empty, 20));
}

#[test]
fn a_very_late_report_does_not_restore_old_state() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    let old = env.runtime.clone();
    env.advance_clock(60);
    env.exit_container("a", 1);
    env.run_until_idle();
    let now = env
        .runtime
        .newest_container("a")
        .map(|c| (c.attempt, c.backoff_step));
    assert_eq!(now, Some((1, 1)));
    // The state of a minute ago is reported after all later ones.
    let outcome = apply_result::on_observed(&mut env.pod, old, env.now);
    assert_eq!(outcome, ReportOutcome::Conflicting);
    assert!(env.plan().steps.is_empty(), "{:?}", env.plan());
}

#[test]
fn a_sandbox_that_appears_after_cleanup_is_removed() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    let sandbox = env.runtime.sandboxes[0].clone();
    env.remove();
    env.run_until_idle();
    assert_eq!(env.plan().phase, SyncPhase::CleanedUp);
    // A call of the previous process instance takes effect only now.
    env.runtime.sandboxes.push(sandbox);
    env.relist();
    assert_eq!(env.plan().phase, SyncPhase::Terminating);
    env.run_until_idle();
    assert_eq!(env.plan().phase, SyncPhase::CleanedUp);
    assert!(env.runtime.is_empty());
}

#[test]
fn an_orphan_that_is_served_again_is_stopped_before_it_starts_over() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.restart_process();
    let spec = env.pod.spec.take();
    env.pod.has_source = false;
    let steps = env.start_steps();
    env.pod.spec = spec;
    env.pod.has_source = true;
    assert_eq!(env.plan().phase, SyncPhase::Terminating);
    steps.iter().for_each(|step| env.finish(step));
    env.run_until_idle();
    assert!(env.running_names().is_empty() && env.plan().forget);
}

#[test]
fn volumes_are_declared_again_after_a_restart_of_volume_manager() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = serde_json::json!([{"name": "data", "emptyDir": {}}]);
    let mut env = TestEnv::new(spec);
    let steps = env.start_steps();
    assert!(steps.contains(&Step::ApplyVolumes));
    apply_result::redeclare_volumes(&mut env.pod);
    steps.iter().for_each(|step| env.finish(step));
    assert_eq!(env.pod.volumes.declared_digest, None);
    assert!(env.planned_keys().contains(&StepKey::ApplyVolumes));
    env.run_until_idle();
    assert!(env.pod.volumes.declared_digest.is_some());
}

#[test]
fn a_backward_clock_step_delays_nothing() {
    // Crash-loop back-off.
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    for _ in 0..2 {
        env.exit_container("a", 1);
        env.run_until_idle();
    }
    assert_eq!(env.waiting_reasons()["a"], reason::CRASH_LOOP_BACK_OFF);
    env.advance_clock(-3600);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
    assert_eq!(env.runtime.newest_container("a").unwrap().backoff_step, 1);
    // Back-off of a failed step.
    let mut env = TestEnv::new(simple("Always", &["a"]));
    let steps = env.start_steps();
    steps
        .iter()
        .for_each(|step| env.fail(step, StepFailure::default()));
    assert!(env.plan().steps.is_empty());
    env.advance_clock(-3600);
    assert!(!env.plan().steps.is_empty());
    // A cleaned-up pod.
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.remove();
    env.run_until_idle();
    assert!(!env.plan().forget);
    env.advance_clock(-3600);
    assert!(env.plan().forget);
}
