//! Two sandboxes that are ready: a call that failed without an answer has taken effect late.

use crate::core::step::{Step, StepKey};
use crate::core::test_support::{TestEnv, simple};

fn add_late_sandbox(env: &mut TestEnv) {
    let mut late = env.runtime.sandboxes[0].clone();
    late.id = "late".to_owned();
    late.attempt += 1;
    env.runtime.sandboxes.insert(0, late);
    env.relist();
}

/// Starts a pod until a step of its container is in flight; returns the sandbox and the step.
fn start_until(is_last: impl Fn(&Step) -> bool) -> (TestEnv, String, Step) {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    for _ in 0..20 {
        for step in env.start_steps() {
            if is_last(&step) {
                let sandbox = env.runtime.sandboxes[0].id.clone();
                return (env, sandbox, step);
            }
            env.finish(&step);
        }
    }
    panic!("no such step: {:?}", env.plan());
}

#[test]
fn the_sandbox_in_which_a_container_starts_is_not_stopped() {
    let creates = |step: &Step| matches!(step, Step::CreateContainer { .. });
    let starts = |step: &Step| matches!(step, Step::StartContainer { .. });
    for is_last in [creates, starts] {
        let (mut env, own, step) = start_until(is_last);
        add_late_sandbox(&mut env);
        let planned = env.planned_keys();
        assert!(
            !planned.contains(&StepKey::StopSandbox(own)),
            "{step:?}: {planned:?}"
        );
        assert!(
            planned.contains(&StepKey::StopSandbox("late".to_owned())),
            "{step:?}"
        );
        env.finish(&step);
        env.run_until_idle();
        assert_eq!(env.running_names(), ["a"]);
    }
}

#[test]
fn nothing_starts_in_a_sandbox_that_is_being_stopped() {
    let (mut env, own, step) = start_until(|step| matches!(step, Step::CreateContainer { .. }));
    let failure = crate::core::step::StepFailure {
        reason: "Unknown".to_owned(),
        ..Default::default()
    };
    env.fail(&step, failure);
    add_late_sandbox(&mut env);
    let steps = env.start_steps();
    let stop = steps
        .iter()
        .find(|step| step.key() == StepKey::StopSandbox(own.clone()));
    assert!(stop.is_some(), "{steps:?}");
    // The other one is lost before this one has been stopped.
    env.runtime.sandboxes[0].ready = false;
    env.relist();
    env.advance_clock(60);
    let planned = env.plan().steps;
    let uses = |step: &Step| matches!(step, Step::CreateContainer { sandbox_id, .. } if *sandbox_id == own);
    assert!(!planned.iter().any(uses), "{planned:?}");
}
