//! The restart of all containers.

use polylet_model::constants::reason;
use serde_json::{Value, json};

use super::stop_of;
use crate::core::pod_worker::restart::unused_attempt;
use crate::core::step::Step;
use crate::core::test_support::TestEnv;

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

fn running() -> TestEnv {
    let mut env = TestEnv::new(spec());
    env.run_until_idle();
    env.exit_container("i", 0);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b", "s"]);
    env.history.clear();
    env
}

#[test]
fn all_are_killed_without_grace_and_the_requester_is_removed_last() {
    let mut env = running();
    env.exit_container("a", 42);
    let steps = env.start_steps();
    let mut stops: Vec<_> = steps.iter().filter_map(stop_of).collect();
    stops.sort_unstable();
    assert_eq!(stops, [("b", 2), ("s", 2)], "no hook runs");
    steps.iter().for_each(|step| env.finish(step));
    assert_eq!(
        env.waiting_reasons()["i"],
        reason::RESTARTING_ALL_CONTAINERS
    );
    env.run_until_idle();
    let removed: Vec<&str> = env
        .history
        .iter()
        .filter_map(|step| match step {
            Step::RemoveForRestart { container, .. } => Some(container.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(removed.len(), 4);
    assert_eq!(removed.last(), Some(&"a"));
    assert_eq!(env.running_names(), ["i"], "from the first init container");
    assert_eq!(env.runtime.sandboxes.len(), 1, "in the same sandbox");
    assert_eq!(env.runtime.newest_container("i").unwrap().attempt, 1);
    env.exit_container("i", 0);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b", "s"]);
    assert!(env.runtime.containers.iter().all(|c| c.attempt == 1));
    assert!(env.pod.lifecycle.pending_restarts.is_empty());
    assert!(env.pod.checkpoint.termination.is_none());
}

#[test]
fn continues_after_a_process_restart_at_any_step() {
    for restart_after in 0..12 {
        let mut env = running();
        env.exit_container("a", 42);
        let mut done = 0;
        while done < restart_after {
            let steps = env.start_steps();
            let Some(step) = steps.into_iter().next() else {
                break;
            };
            // The step took effect, and its result is lost.
            let _ = env.effect(&step);
            env.restart_process();
            done += 1;
            if matches!(step, Step::PullImage { .. } | Step::EnsureCgroup) {
                break;
            }
        }
        env.restart_process();
        env.run_until_idle();
        if env.running("i").is_some() {
            env.exit_container("i", 0);
            env.run_until_idle();
        }
        assert_eq!(env.running_names(), ["a", "b", "s"], "{restart_after}");
        assert!(env.runtime.containers.iter().all(|c| c.attempt == 1));
    }
}

#[test]
fn repeated_requests_back_off() {
    let mut env = running();
    for _ in 0..2 {
        env.exit_container("a", 42);
        env.run_until_idle();
        if env.running("i").is_none() {
            break;
        }
        env.exit_container("i", 0);
        env.run_until_idle();
    }
    assert_eq!(env.waiting_reasons()["i"], reason::CRASH_LOOP_BACK_OFF);
    assert!(env.running_names().is_empty());
    env.restart_process();
    env.run_until_idle();
    assert!(
        env.running_names().is_empty(),
        "also after a process restart"
    );
    env.advance_clock(10);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["i"]);
    assert_eq!(env.runtime.newest_container("i").unwrap().attempt, 2);
}

#[test]
fn unused_attempt_is_above_existing_logs() {
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
