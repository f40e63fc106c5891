//! A process that follows another one, which pleg has not kept up with.

use std::rc::Rc;

use crate::core::plan::SyncPhase;
use crate::core::step::Step;
use crate::core::test_support::{TestEnv, simple};

/// The process is killed after a step of this kind, and pleg has not inspected the pod since.
fn restart_behind(env: &mut TestEnv, is_last: fn(&Step) -> bool) {
    loop {
        let before = env.runtime.clone();
        let steps = env.start_steps();
        steps.iter().for_each(|step| env.finish(step));
        if steps.iter().any(is_last) {
            env.restart_process();
            env.pod.observed = Some(Rc::new(before.clone()));
            env.pod.last_reported = Rc::new(before);
            env.pod.awaits_inspection = true;
            return;
        }
        assert!(!steps.is_empty(), "no such step");
    }
}

#[test]
fn nothing_is_created_twice_behind_the_back_of_pleg() {
    let is_creation = |step: &Step| {
        matches!(
            step,
            Step::CreateContainer { .. } | Step::CreateSandbox { .. }
        )
    };
    let mut env = TestEnv::new(simple("Always", &["a"]));
    for is_last in [
        (|step| matches!(step, Step::CreateSandbox { .. })) as fn(&Step) -> bool,
        |step| matches!(step, Step::CreateContainer { .. }),
    ] {
        restart_behind(&mut env, is_last);
        // Until nothing is left to do but to ask.
        let needs_refresh = loop {
            let needs_refresh = env.plan().needs_refresh;
            let steps = env.start_steps();
            assert!(!steps.iter().any(is_creation), "{steps:?}");
            steps.iter().for_each(|step| env.finish(step));
            if steps.is_empty() {
                break needs_refresh;
            }
        };
        assert!(needs_refresh);
        env.relist();
    }
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
    let created = env.history.iter().filter(|step| is_creation(step));
    assert_eq!(created.count(), 2, "{:?}", env.history);
}

#[test]
fn a_pod_without_a_report_is_refreshed_before_it_is_removed() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    env.run_until_idle();
    // A new process instance, and pleg has not inspected the pod yet.
    env.restart_process();
    env.pod.last_reported = Rc::default();
    env.pod.observed = Some(Rc::default());
    env.remove();
    let plan = env.plan();
    assert!(plan.needs_refresh && plan.steps.is_empty(), "{plan:?}");
    env.relist();
    assert!(!env.plan().needs_refresh);
    env.run_until_idle();
    assert!(env.runtime.is_empty());
    assert_eq!(env.plan().phase, SyncPhase::CleanedUp);
}
