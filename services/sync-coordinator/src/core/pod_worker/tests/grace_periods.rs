//! Grace periods across process restarts, evictions and clock steps.

use polylet_model::constants::{phase, reason};
use serde_json::json;

use super::{pre_stop_of, stop_of, with_hooks};
use crate::core::checkpoint::PodTermination;
use crate::core::step::StepKey;
use crate::core::test_support::{TestEnv, at, simple};
use crate::core::view::ProbeFailure;

#[test]
fn grace_period_continues_after_a_process_restart() {
    let mut env = TestEnv::new(with_hooks("Always", &["a"], &["preStop"]));
    env.run_until_idle();
    env.remove();
    let steps = env.start_steps();
    env.advance_clock(10);
    env.restart_process();
    let again = env.start_steps();
    assert_eq!(again.iter().find_map(pre_stop_of), Some(("a", 20)));
    env.advance_clock(5);
    steps.iter().for_each(|step| env.finish(step));
    env.restart_process();
    let stops = env.start_steps();
    assert_eq!(
        stops.iter().find_map(stop_of),
        Some(("a", 15)),
        "the hook is done"
    );
    env.advance_clock(14);
    env.restart_process();
    assert_eq!(env.start_steps().iter().find_map(stop_of), Some(("a", 2)));
}

#[test]
fn a_stop_in_progress_is_completed() {
    // After the restart only the stored stop is left.
    let mut env = TestEnv::new(with_hooks("OnFailure", &["a"], &["preStop"]));
    env.run_until_idle();
    let id = env.running("a").unwrap();
    let failure = ProbeFailure {
        startup: false,
        message: String::new(),
    };
    env.pod.probe_failures.insert(id.clone(), failure);
    env.start_steps();
    env.restart_process();
    assert_eq!(
        env.start_steps().iter().find_map(pre_stop_of),
        Some(("a", 30))
    );
    // It exits with zero while no process runs, and is restarted nevertheless.
    env.exit_by_id(&id, 0);
    env.restart_process();
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
}

#[test]
fn a_shorter_grace_period_shortens_steps_in_flight() {
    for hook in [true, false] {
        let hooks: &[&str] = if hook { &["preStop"] } else { &[] };
        let mut env = TestEnv::new(with_hooks("Always", &["a"], hooks));
        env.run_until_idle();
        let id = env.running("a").unwrap();
        let key = if hook {
            StepKey::PreStop(id)
        } else {
            StepKey::StopContainer(id)
        };
        env.remove();
        env.start_steps();
        env.advance_clock(3);
        assert!(env.plan().abandoned.is_empty());
        let mut shorter = (*env.spec).clone();
        shorter.deletion_grace_period = Some(7);
        env.pod.spec = Some(shorter.clone().into());
        assert_eq!(env.plan().abandoned, [key]);
        env.start_steps();
        env.advance_clock(1);
        let steps = env.start_steps();
        let planned = steps.iter().find_map(|s| pre_stop_of(s).or(stop_of(s)));
        assert_eq!(planned, Some(("a", 6)));
        assert!(env.plan().abandoned.is_empty(), "once");
        // A longer one has no effect.
        shorter.deletion_grace_period = Some(60);
        env.pod.spec = Some(shorter.into());
        assert!(env.plan().abandoned.is_empty());
    }
}

#[test]
fn eviction_shortens_a_termination_in_progress() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    env.remove();
    let id = env.running("a").unwrap();
    assert_eq!(env.start_steps().iter().find_map(stop_of), Some(("a", 30)));
    env.pod.eviction = Some(PodTermination {
        reason: reason::EVICTED.into(),
        message: String::new(),
        phase: phase::FAILED.into(),
        disruption_target: true,
        decided_at: at(0),
        grace_period: Some(0),
    });
    assert_eq!(env.plan().abandoned, [StepKey::StopContainer(id)]);
    env.start_steps();
    assert_eq!(env.start_steps().iter().find_map(stop_of), Some(("a", 2)));
}

#[test]
fn a_backward_clock_step_does_not_extend_the_grace_period() {
    let mut env = TestEnv::new(with_hooks("Always", &["a"], &["preStop"]));
    env.run_until_idle();
    env.remove();
    env.start_steps();
    env.advance_clock(-3600);
    env.restart_process();
    assert_eq!(
        env.start_steps().iter().find_map(pre_stop_of),
        Some(("a", 30))
    );
}

#[test]
fn sidecars_wait_no_longer_than_the_grace_period() {
    let mut spec = simple("Always", &["a"]);
    spec["initContainers"] = json!([{"name": "s1", "image": "s:1", "restartPolicy": "Always"}]);
    let mut env = TestEnv::new(spec);
    env.run_until_idle();
    env.remove();
    env.start_steps();
    env.advance_clock(30);
    let steps = env.start_steps();
    assert_eq!(steps.iter().find_map(stop_of), Some(("s1", 2)));
}
