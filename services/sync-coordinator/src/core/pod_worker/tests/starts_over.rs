//! Pods that were removed and that their source serves again.

use serde_json::json;

use crate::core::plan::SyncPhase;
use crate::core::runtime_state::ContainerState;
use crate::core::step::{Step, StepKey};
use crate::core::test_support::{TestEnv, simple};

fn running_attempts(env: &TestEnv) -> Vec<(&str, u32)> {
    let containers = env.runtime.containers.iter();
    let running = containers.filter(|c| c.state == ContainerState::Running);
    let mut all: Vec<_> = running.map(|c| (c.name.as_str(), c.attempt)).collect();
    all.sort_unstable();
    all
}

fn removals(env: &TestEnv) -> Vec<StepKey> {
    let keys = env.history.iter().map(Step::key);
    let removes = |key: &StepKey| {
        matches!(
            key,
            StepKey::RemoveContainer(_) | StepKey::RemoveSandbox(_) | StepKey::RemoveFiles
        )
    };
    keys.filter(removes).collect()
}

#[test]
fn pod_is_stopped_and_its_restart_counts_go_on() {
    // Rounds of steps that are executed before the pod is served again: none at all, the stops of the
    // containers, that of the sandbox, and the removal of all but the sandbox.
    for rounds in 0..4 {
        let mut env = TestEnv::new(simple("Always", &["a", "b"]));
        env.run_until_idle();
        env.remove();
        env.history.clear();
        for _ in 0..rounds {
            let steps = env.start_steps();
            steps.iter().for_each(|step| env.finish(step));
        }
        let removed_before = removals(&env);
        env.pod.has_source = true;
        // Nothing is left to be released after the last round.
        let phase = match rounds {
            3 => SyncPhase::CleanedUp,
            _ => SyncPhase::Terminating,
        };
        assert_eq!(env.plan().phase, phase, "{rounds}");
        env.run_until_idle();
        assert!(env.running_names().is_empty(), "{rounds}");
        assert_eq!(removals(&env), removed_before, "{rounds}");
        env.start_over();
        env.run_until_idle();
        // At once: nothing has crashed.
        let expected = [("a", 1), ("b", 1)];
        assert_eq!(running_attempts(&env), expected, "{rounds}");
        let attempt = env.runtime.newest_sandbox().map(|s| s.attempt);
        assert_eq!(attempt, Some(1), "{rounds}");
        let done = env.history.len();
        env.restart_process();
        env.run_until_idle();
        assert_eq!(env.history.len(), done, "{rounds}: only once");
    }
}

#[test]
fn resources_are_released_before_the_pod_starts_over() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let mut env = TestEnv::new(spec);
    env.run_until_idle();
    env.history.clear();
    env.pod.removal_requested = true;
    env.run_until_idle();
    assert!(env.volumes.is_none());
    let released: Vec<StepKey> = env.history.iter().map(Step::key).collect();
    assert!(released.contains(&StepKey::RemoveCgroup), "{released:?}");
    env.start_over();
    env.run_until_idle();
    assert!(env.volumes.is_some());
    assert_eq!(running_attempts(&env), [("a", 1)]);
}

#[test]
fn removal_that_is_in_flight_ends_first() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.remove();
    let removal = loop {
        let steps = env.start_steps();
        let removes = |step: &Step| matches!(step, Step::RemoveContainer { .. });
        let (removals, others): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(removes);
        others.iter().for_each(|step| env.finish(step));
        if let [removal] = &removals[..] {
            break removal.clone();
        }
    };
    env.pod.has_source = true;
    let steps = env.start_steps();
    steps.iter().for_each(|step| env.finish(step));
    assert_eq!(env.plan().phase, SyncPhase::Terminating);
    env.finish(&removal);
    env.run_until_idle();
    assert_eq!(env.plan().phase, SyncPhase::CleanedUp);
    env.start_over();
    env.run_until_idle();
    assert_eq!(running_attempts(&env), [("a", 1)]);
}

#[test]
fn process_that_dies_meanwhile_starts_the_pod_over_once() {
    for rounds in 0..4 {
        let mut env = TestEnv::new(simple("Always", &["a"]));
        env.run_until_idle();
        env.pod.removal_requested = true;
        for _ in 0..rounds {
            let steps = env.start_steps();
            steps.iter().for_each(|step| env.finish(step));
        }
        env.restart_process();
        env.pod.has_source = true;
        env.run_until_idle();
        env.start_over();
        env.run_until_idle();
        assert_eq!(running_attempts(&env), [("a", 1)], "{rounds}");
    }
}
