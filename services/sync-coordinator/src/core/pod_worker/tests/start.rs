//! Pod start, and what delays it.

use polylet_model::constants::{phase, reason};
use serde_json::json;

use super::{init_pod, sidecar_pod};
use crate::core::apply_result::{self, ReportOutcome};
use crate::core::plan::SyncPhase;
use crate::core::runtime_state::{PendingEffect, PodRuntimeState};
use crate::core::start_limiter::StartClass;
use crate::core::step::{Step, StepFailure, StepKey};
use crate::core::test_support::{TestEnv, at, simple};

#[test]
fn a_new_pod_starts_all_independent_steps_at_once() {
    let mut spec = simple("Always", &["a", "b", "c"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let mut env = TestEnv::new(spec);
    let keys = env.planned_keys();
    let pull = |n: &str| StepKey::PullImage(n.into());
    assert_eq!(
        keys,
        [
            StepKey::Checkpoint,
            StepKey::ApplyVolumes,
            pull("a"),
            pull("b"),
            pull("c"),
            StepKey::EnsureCgroup
        ]
    );
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b", "c"]);
    let starts: Vec<&Step> = env
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
    assert_eq!(env.plan().phase, SyncPhase::Syncing);
    assert!(env.plan().waiting_for.is_empty() && env.plan().wake_at.is_none());
}

#[test]
fn a_process_restart_repeats_nothing() {
    let mut env = TestEnv::new(simple("Always", &["a", "b"]));
    env.run_until_idle();
    env.restart_process();
    assert!(env.plan().steps.is_empty(), "{:?}", env.plan());
    env.start_steps();
    assert!(env.planned_keys().is_empty());
}

#[test]
fn steps_in_flight_are_not_started_again() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    let steps = env.start_steps();
    assert!(!steps.is_empty());
    assert!(env.start_steps().is_empty());
    let cgroup = steps
        .iter()
        .find(|s| s.key() == StepKey::EnsureCgroup)
        .unwrap();
    env.finish(cgroup);
    assert_eq!(
        env.start_steps().iter().map(Step::key).collect::<Vec<_>>(),
        [StepKey::CreateSandbox]
    );
    assert!(env.start_steps().is_empty());
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
        let mut env = TestEnv::new(simple(policy, &["a", "b"]));
        env.run_until_idle();
        env.exit_container("b", code);
        env.run_until_idle();
        let expected: &[&str] = if again { &["a", "b"] } else { &["a"] };
        assert_eq!(env.running_names(), expected, "{policy} {code}");
        assert_eq!(env.plan().phase, SyncPhase::Syncing);
    }
}

#[test]
fn crash_loop_back_off_survives_process_restarts() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    // Upstream's back-off: none, then 10 s, 20 s, 40 s.
    for (attempt, back_off) in [(1, 0), (2, 10), (3, 20), (4, 40)] {
        env.exit_container("a", 1);
        if back_off > 0 {
            env.run_until_idle();
            assert_eq!(env.waiting_reasons()["a"], reason::CRASH_LOOP_BACK_OFF);
            let due = env.now + jiff::SignedDuration::from_secs(back_off);
            // The container before goes first.
            env.advance_clock(2);
            env.run_until_idle();
            assert_eq!(env.plan().wake_at, Some(due));
            env.advance_clock(back_off - 3);
            env.restart_process();
            env.run_until_idle();
            assert!(
                env.running_names().is_empty(),
                "too early after a process restart"
            );
            env.advance_clock(1);
            // The reason stays until the next container is created.
            for steps in [env.start_steps(), env.start_steps()] {
                assert_eq!(
                    env.waiting_reasons()["a"],
                    reason::CRASH_LOOP_BACK_OFF,
                    "{steps:?}"
                );
            }
            env.restart_process();
        }
        env.run_until_idle();
        assert_eq!(env.running_names(), ["a"]);
        assert!(env.waiting_reasons().is_empty());
        assert_eq!(env.runtime.newest_container("a").unwrap().attempt, attempt);
    }
    assert_eq!(
        env.runtime.containers.len(),
        2,
        "one exited container remains"
    );
    env.advance_clock(601);
    env.exit_container("a", 1);
    env.run_until_idle();
    assert_eq!(
        env.running_names(),
        ["a"],
        "no back-off after ten minutes of running"
    );
}

#[test]
fn init_containers_run_one_after_another() {
    let mut env = TestEnv::new(init_pod("Always"));
    env.run_until_idle();
    for name in ["i1", "i2", "i3"] {
        assert_eq!(env.running_names(), [name]);
        env.exit_container(name, 0);
        env.run_until_idle();
    }
    assert_eq!(env.running_names(), ["a"]);
    // Completed ones whose records are gone do not run again.
    env.runtime.containers.retain(|c| c.name == "a");
    env.restart_process();
    assert!(env.plan().steps.is_empty());
}

#[test]
fn failed_init_containers_restart_by_policy() {
    for (policy, again) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut env = TestEnv::new(init_pod(policy));
        env.run_until_idle();
        env.exit_container("i1", 0);
        env.run_until_idle();
        env.exit_container("i2", 1);
        env.run_until_idle();
        if again {
            assert_eq!(env.running_names(), ["i2"], "{policy}");
            assert_eq!(env.runtime.newest_container("i2").unwrap().attempt, 1);
        } else {
            assert_eq!(
                env.pod.checkpoint.termination.as_ref().unwrap().phase,
                phase::FAILED
            );
        }
    }
}

#[test]
fn containers_after_a_sidecar_wait_for_its_start() {
    let mut env = TestEnv::new(sidecar_pod());
    env.run_until_idle();
    assert_eq!(env.running_names(), ["s1"]);
    let id = env.running("s1").unwrap();
    env.pod.startup_succeeded.insert(id);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["i2", "s1"]);
    env.exit_container("i2", 0);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "s1", "s3"]);
    // A sidecar restarts though the pod never does.
    env.exit_container("s3", 1);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "s1", "s3"]);
    // It stops after the regular containers.
    env.exit_container("a", 0);
    env.run_until_idle();
    assert!(env.running_names().is_empty());
    assert_eq!(
        env.pod.checkpoint.termination.as_ref().unwrap().phase,
        phase::SUCCEEDED
    );
}

#[test]
fn nothing_starts_without_pleg_runtime_or_network() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.node.pleg_synced = false;
    assert!(env.plan().steps.is_empty());
    env.node.pleg_synced = true;
    env.node.runtime = Err("unavailable".into());
    assert!(env.plan().steps.is_empty());
    env.node.runtime = Ok(());
    env.node.network = Err("no CNI".into());
    assert!(!env.planned_keys().contains(&StepKey::CreateSandbox));
    env.node.network = Ok(());
    env.pod.blocked_by = Some("u0".into());
    assert!(env.plan().steps.is_empty());
}

#[test]
fn failed_pulls_back_off() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    for (count, back_off) in [(1, 10), (2, 20), (3, 40)] {
        loop {
            let steps = env.start_steps();
            if steps.is_empty() {
                break;
            }
            for step in steps {
                match step {
                    Step::PullImage { .. } => env.fail(
                        &step,
                        StepFailure {
                            reason: reason::ERR_IMAGE_PULL.into(),
                            message: "no such image".into(),
                            ..StepFailure::default()
                        },
                    ),
                    other => env.finish(&other),
                }
            }
        }
        assert_eq!(
            env.waiting_reasons()["a"],
            reason::ERR_IMAGE_PULL,
            "{count}"
        );
        env.advance_clock(3);
        assert_eq!(
            env.waiting_reasons()["a"],
            reason::IMAGE_PULL_BACK_OFF,
            "{count}"
        );
        env.advance_clock(back_off - 3);
        assert_eq!(env.planned_keys(), [StepKey::PullImage("a".into())]);
    }
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
}

#[test]
fn a_sandbox_call_without_outcome_is_retried_with_the_next_attempt() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    for step in env.start_steps() {
        env.finish(&step);
    }
    let steps = env.start_steps();
    let sandbox = steps
        .iter()
        .find(|s| s.key() == StepKey::CreateSandbox)
        .unwrap();
    env.fail(
        sandbox,
        StepFailure {
            outcome_unknown: true,
            ..StepFailure::default()
        },
    );
    assert!(
        !env.planned_keys().contains(&StepKey::CreateSandbox),
        "the call may still take effect"
    );
    env.advance_clock(2);
    let steps = env.start_steps();
    assert!(
        steps.contains(&Step::CreateSandbox { attempt: 1 }),
        "{steps:?}"
    );
}

#[test]
fn without_a_start_permit_only_light_steps_start() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.pod.has_start_permit = false;
    for step in env.start_steps() {
        env.finish(&step);
    }
    let plan = env.plan();
    assert!(plan.steps.is_empty());
    assert_eq!(plan.needs_start_permit, Some(StartClass::PodNetwork));
    env.pod.has_start_permit = true;
    assert_eq!(env.planned_keys(), [StepKey::CreateSandbox]);
}

#[test]
fn old_reports_do_not_revert_completed_steps() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    let before = PodRuntimeState {
        observed_at: Some(at(1)),
        ..Default::default()
    };
    env.run_until_idle();
    env.pod.last_reported = before.clone().into();
    env.pod.pending_effects = vec![
        (
            1,
            PendingEffect::SandboxCreated(env.runtime.sandboxes[0].clone()),
        ),
        (
            2,
            PendingEffect::ContainerCreated(env.runtime.containers[0].clone()),
        ),
    ];
    env.pod.effect_count = 2;
    let reported = PodRuntimeState {
        observed_at: Some(at(2)),
        ..before
    };
    let outcome = apply_result::on_observed(&mut env.pod, reported, env.now);
    assert_eq!(outcome, ReportOutcome::Applied);
    assert!(env.plan().steps.is_empty());
    env.relist();
    assert!(env.plan().steps.is_empty() && env.pod.pending_effects.is_empty());
}

#[test]
fn an_aborted_start_is_no_exit() {
    for policy in ["Always", "Never"] {
        let mut env = TestEnv::new(simple(policy, &["a"]));
        env.run_until_idle();
        let id = env.running("a").unwrap();
        env.exit_by_id(&id, 128);
        env.runtime.containers[0].aborted = true;
        env.relist();
        env.run_until_idle();
        assert_eq!(env.running_names(), ["a"], "{policy}");
        let again = env.runtime.newest_container("a").unwrap();
        assert_eq!((again.attempt, again.backoff_step), (0, 0), "{policy}");
    }
}

#[test]
fn an_aborted_start_replaces_no_container_that_ran() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.exit_container("a", 1);
    env.advance_clock(60);
    env.run_until_idle();
    // The restart was cancelled, since the process that asked for it was killed.
    let id = env.running("a").unwrap();
    env.exit_by_id(&id, 128);
    let restarted = env.runtime.containers.iter_mut().find(|c| c.id == id);
    restarted.unwrap().aborted = true;
    env.relist();
    let plan = env.plan();
    let removed = plan.steps.iter().filter_map(|step| match step {
        Step::RemoveContainer { id, .. } => Some(id),
        _ => None,
    });
    assert_eq!(removed.collect::<Vec<_>>(), [&id], "{plan:?}");
}
