//! Lifecycle hooks.

use polylet_model::constants::reason;
use polylet_model::hook::Hook;
use serde_json::json;

use super::{pre_stop_of, stop_of, with_hooks};
use crate::core::apply_result::{self, ReportOutcome};
use crate::core::runtime_state::{ContainerState, PodRuntimeState};
use crate::core::step::{Step, StepKey, StepOutcome};
use crate::core::test_support::{TestEnv, at, simple};
use crate::core::view::{PostStartState, ProbeFailure};

fn post_start(env: &TestEnv) -> Option<Step> {
    let mut in_flight = env.pod.in_flight.values();
    in_flight
        .find(|f| matches!(f.step, Step::PostStart { .. }))
        .map(|f| f.step.clone())
}

/// Executes everything but hooks.
fn run_without_hooks(env: &mut TestEnv) {
    for _ in 0..50 {
        for step in env.start_steps() {
            if !matches!(step, Step::PostStart { .. } | Step::PreStop { .. }) {
                env.finish(&step);
            }
        }
    }
}

#[test]
fn later_containers_wait_for_post_start() {
    let mut env = TestEnv::new(with_hooks("Always", &["a", "b"], &["postStart"]));
    run_without_hooks(&mut env);
    assert_eq!(env.running_names(), ["a"]);
    let waits: Vec<String> = env.plan().waiting_for.into_iter().map(|w| w.what).collect();
    assert!(
        waits.contains(&"postStart hook of container a".to_owned()),
        "{waits:?}"
    );
    let hook = post_start(&env).unwrap();
    env.finish(&hook);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
    assert!(env.pod.lifecycle.is_empty());
    env.restart_process();
    assert!(env.plan().steps.is_empty(), "the hook runs once");
}

#[test]
fn post_start_without_a_result_runs_again() {
    let mut env = TestEnv::new(with_hooks("Always", &["a"], &["postStart"]));
    // The process dies right after the container's start.
    loop {
        let steps = env.start_steps();
        let start = steps
            .iter()
            .find(|s| matches!(s, Step::StartContainer { .. }));
        if let Some(start) = start.cloned() {
            let _ = env.effect(&start);
            break;
        }
        steps.iter().for_each(|step| env.finish(step));
    }
    for _ in 0..2 {
        env.restart_process();
        run_without_hooks(&mut env);
        assert!(post_start(&env).is_some());
    }
    let hook = post_start(&env).unwrap();
    env.finish(&hook);
    assert_eq!(env.hooks.len(), 1);
    env.restart_process();
    env.run_until_idle();
    assert_eq!(env.hooks.len(), 1);
}

#[test]
fn failed_post_start_kills_the_container_and_is_its_waiting_reason() {
    let both = ["postStart", "preStop"];
    let mut env = TestEnv::new(with_hooks("Always", &["a", "b"], &both));
    run_without_hooks(&mut env);
    let hook = post_start(&env).unwrap();
    let failed = StepOutcome::HookFailed("Exec lifecycle hook failed".into());
    apply_result::on_finished(&mut env.pod, &hook.key(), failed, env.now);
    let steps = env.start_steps();
    assert_eq!(steps.iter().find_map(pre_stop_of), Some(("a", 30)));
    assert_eq!(env.running_names(), ["a"], "b waits for a to exit");
    for step in steps {
        env.finish(&step);
    }
    for step in env.start_steps() {
        env.finish(&step);
    }
    let waiting = env.plan().waiting_containers;
    let waiting = waiting.iter().find(|w| w.container == "a").unwrap();
    assert_eq!(waiting.reason, reason::POST_START_HOOK_ERROR);
    assert_eq!(waiting.message, "Exec lifecycle hook failed");
    run_without_hooks(&mut env);
    assert_eq!(env.running_names(), ["a"]);
    assert_eq!(env.waiting_reasons()["a"], reason::POST_START_HOOK);
    assert!(post_start(&env).is_some(), "of the new container");
}

#[test]
fn a_new_process_reports_due_hooks_before_all_else() {
    let mut env = TestEnv::new(with_hooks("Always", &["a"], &["postStart"]));
    run_without_hooks(&mut env);
    assert!(post_start(&env).is_some());
    env.restart_process();
    let observed = env.pod.observed.clone();
    env.node.pleg_synced = false;
    assert_eq!(env.waiting_reasons()["a"], reason::POST_START_HOOK);
    // Not even the container's name is known.
    env.pod.observed = None;
    assert_eq!(env.waiting_reasons()["a"], reason::POST_START_HOOK);
    env.pod.observed = observed;
    env.node.pleg_synced = true;
    env.run_until_idle();
    assert!(!env.waiting_reasons().contains_key("a"));
}

#[test]
fn a_due_hook_survives_a_report_from_before_its_container() {
    let mut env = TestEnv::new(with_hooks("Always", &["a"], &["postStart"]));
    run_without_hooks(&mut env);
    env.restart_process();
    env.pod.awaits_inspection = true;
    let older = PodRuntimeState {
        containers: Vec::new(),
        ..env.runtime.clone()
    };
    let outcome = apply_result::on_observed(&mut env.pod, older, env.now);
    assert_eq!(outcome, ReportOutcome::Applied);
    env.relist();
    env.run_until_idle();
    let hooks = env
        .history
        .iter()
        .filter(|step| matches!(step, Step::PostStart { .. }));
    assert_eq!(hooks.count(), 1, "{:?}", env.history);
}

#[test]
fn termination_cancels_post_start() {
    let mut env = TestEnv::new(with_hooks("Never", &["a"], &["postStart", "preStop"]));
    run_without_hooks(&mut env);
    let key = post_start(&env).unwrap().key();
    env.remove();
    let plan = env.plan();
    assert_eq!(plan.abandoned, [key]);
    env.run_until_idle();
    assert!(env.runtime.is_empty());
    assert!(
        env.hooks
            .iter()
            .all(|(key, _)| matches!(key, StepKey::PreStop(_)))
    );
}

#[test]
fn pre_stop_counts_towards_the_grace_period() {
    for (elapsed, left) in [(0, 30), (5, 25), (29, 2), (40, 2)] {
        let mut env = TestEnv::new(with_hooks("Always", &["a"], &["preStop"]));
        env.run_until_idle();
        env.remove();
        let steps = env.start_steps();
        assert_eq!(steps.iter().find_map(pre_stop_of), Some(("a", 30)));
        assert!(steps.iter().find_map(stop_of).is_none());
        env.advance_clock(elapsed);
        steps.iter().for_each(|step| env.finish(step));
        let steps = env.start_steps();
        assert_eq!(
            steps.iter().find_map(stop_of),
            Some(("a", left)),
            "{elapsed}"
        );
    }
}

#[test]
fn pre_stop_runs_before_a_kill_and_not_after_an_exit() {
    let mut env = TestEnv::new(with_hooks("Always", &["a", "b"], &["preStop"]));
    env.run_until_idle();
    env.exit_container("a", 1);
    env.run_until_idle();
    env.advance_clock(10);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
    assert!(env.hooks.is_empty(), "not after an exit");
    let failure = ProbeFailure {
        startup: false,
        message: String::new(),
    };
    let id = env.running("a").unwrap();
    env.pod.probe_failures.insert(id.clone(), failure);
    env.run_until_idle();
    assert_eq!(env.hooks, [(StepKey::PreStop(id.clone()), id)]);
}

#[test]
fn exit_cancels_pre_stop() {
    let mut env = TestEnv::new(with_hooks("Always", &["a"], &["preStop"]));
    env.run_until_idle();
    env.remove();
    let id = env.running("a").unwrap();
    env.start_steps();
    env.exit_container("a", 0);
    assert_eq!(env.plan().abandoned, [StepKey::PreStop(id)]);
}

#[test]
fn sidecars_run_pre_stop_at_once_and_stop_last() {
    let sidecar = |name: &str| {
        json!({"name": name, "image": "s:1", "restartPolicy": "Always",
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}})
    };
    let mut spec = simple("Always", &["a"]);
    spec["initContainers"] = json!([sidecar("s1"), sidecar("s2")]);
    let mut env = TestEnv::new(spec);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "s1", "s2"]);
    env.remove();
    let steps = env.start_steps();
    let hooks: Vec<_> = steps.iter().filter_map(pre_stop_of).collect();
    assert_eq!(hooks, [("s2", 30), ("s1", 30)]);
    assert_eq!(steps.iter().find_map(stop_of), Some(("a", 30)));
    let (stop, hooks): (Vec<_>, Vec<_>) = steps.into_iter().partition(|s| stop_of(s).is_some());
    env.advance_clock(4);
    hooks.iter().for_each(|step| env.finish(step));
    assert!(env.start_steps().is_empty(), "sidecars wait for a");
    let plan = env.plan();
    assert!(
        plan.waiting_for
            .iter()
            .any(|w| w.what == "other containers to exit before container s2 stops")
    );
    assert_eq!(plan.wake_at, Some(at(30)));
    env.advance_clock(6);
    stop.iter().for_each(|step| env.finish(step));
    for (name, left) in [("s2", 20), ("s1", 20)] {
        let steps = env.start_steps();
        let stops: Vec<_> = steps.iter().filter_map(stop_of).collect();
        assert_eq!(stops, [(name, left)]);
        steps.iter().for_each(|step| env.finish(step));
    }
    env.run_until_idle();
    assert!(env.runtime.is_empty());
}

#[test]
fn an_orphan_runs_the_pre_stop_hook_of_its_annotation() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.runtime.containers[0].pre_stop = Some(Hook::Sleep { seconds: 1 }.into());
    env.runtime.containers[0].grace_period = Some(9);
    env.restart_process();
    env.pod.spec = None;
    env.pod.has_source = false;
    assert_eq!(
        env.start_steps().iter().find_map(pre_stop_of),
        Some(("a", 9))
    );
}

#[test]
fn a_partial_report_does_not_end_a_stop() {
    let mut env = TestEnv::new(with_hooks("Always", &["a"], &["preStop"]));
    env.run_until_idle();
    env.remove();
    env.start_steps();
    let complete = env.runtime.clone();
    env.runtime.inspect_error = "timeout".into();
    env.runtime.containers.clear();
    env.relist();
    env.runtime = complete;
    env.advance_clock(10);
    env.restart_process();
    assert_eq!(
        env.start_steps().iter().find_map(pre_stop_of),
        Some(("a", 20))
    );
    env.pod
        .lifecycle
        .post_starts
        .insert("gone".into(), PostStartState::Due);
    env.relist();
    assert!(env.pod.lifecycle.post_starts.is_empty());
    assert_eq!(
        env.runtime.newest_container("a").unwrap().state,
        ContainerState::Running
    );
}
