use polylet_model::constants::reason;
use serde_json::{Value, json};

use super::with_hooks;
use crate::core::step::{Step, StepFailure, StepKey};
use crate::core::test_support::{TestEnv, manifest, simple};
use crate::core::view::ProbeFailure;

/// A pod with one running container, whose spec then changes.
fn changed(mut spec: Value) -> TestEnv {
    let mut env = TestEnv::new(spec.clone());
    env.run_until_idle();
    spec["containers"][0]["image"] = json!("img-a:2");
    env.update_spec(&manifest(spec));
    env
}

/// A pod whose container runs, and whose liveness probe has failed.
fn with_failed_probe(policy: &str) -> TestEnv {
    let mut env = TestEnv::new(simple(policy, &["a"]));
    env.run_until_idle();
    fail_probe(&mut env);
    env
}

fn fail_probe(env: &mut TestEnv) {
    let failure = ProbeFailure {
        startup: false,
        message: String::new(),
    };
    let id = env.running("a").unwrap();
    env.pod.probe_failures.insert(id, failure);
}

fn reason_of(env: &TestEnv) -> Option<String> {
    env.waiting_reasons().remove("a")
}

/// Starts the steps of a plan and finishes those of the given kinds.
fn advance(env: &mut TestEnv, is_kind: impl Fn(&Step) -> bool) -> Vec<Step> {
    let steps = env.start_steps();
    for step in steps.iter().filter(|step| is_kind(step)) {
        env.finish(step);
    }
    steps
}

#[test]
fn a_stop_for_a_replacement_is_published_until_the_successor_runs() {
    for policy in ["Never", "OnFailure", "Always"] {
        let mut env = changed(simple(policy, &["a"]));
        let published = Some(reason::REPLACEMENT.to_owned());
        assert_eq!(reason_of(&env), published, "{policy}: with the stop");
        advance(&mut env, |step| matches!(step, Step::StopContainer { .. }));
        assert_eq!(reason_of(&env), published, "{policy}: after it");
        advance(&mut env, |step| matches!(step, Step::PullImage { .. }));
        advance(&mut env, |step| {
            matches!(step, Step::CreateContainer { .. })
        });
        assert_eq!(reason_of(&env), published, "{policy}: with the start");
        let replaced = env.plan().waiting_containers.remove(0).message;
        env.run_until_idle();
        assert_eq!(env.running_names(), ["a"]);
        // Whoever publishes the status may hear of the successor later than of this plan.
        let after = env.plan().waiting_containers.remove(0);
        assert_eq!(
            (after.reason, after.message),
            (reason::REPLACEMENT.to_owned(), replaced)
        );
        env.exit_container("a", 1);
        assert_ne!(
            reason_of(&env).as_deref(),
            Some(reason::REPLACEMENT),
            "{policy}: its own exit"
        );
    }
}

#[test]
fn a_stop_without_a_successor_is_not_a_replacement() {
    assert_eq!(reason_of(&with_failed_probe("Never")), None);
    let restarted = reason_of(&with_failed_probe("OnFailure"));
    assert_eq!(restarted, Some(reason::REPLACEMENT.to_owned()));
}

#[test]
fn the_hook_of_the_successor_is_published_with_its_start() {
    let mut env = changed(with_hooks("Never", &["a"], &["postStart"]));
    advance(&mut env, |step| matches!(step, Step::StopContainer { .. }));
    assert_eq!(reason_of(&env), Some(reason::REPLACEMENT.to_owned()));
    advance(&mut env, |step| matches!(step, Step::PullImage { .. }));
    advance(&mut env, |step| {
        matches!(step, Step::CreateContainer { .. })
    });
    assert_eq!(reason_of(&env), Some(reason::POST_START_HOOK.to_owned()));
}

#[test]
fn the_exit_counts_if_the_successor_cannot_be_started() {
    let mut env = changed(simple("Never", &["a"]));
    advance(&mut env, |step| matches!(step, Step::StopContainer { .. }));
    let pull = env.start_steps().into_iter();
    let pull = pull.filter(|step| step.key() == StepKey::PullImage("a".into()));
    for step in pull {
        env.fail(&step, StepFailure::default());
    }
    env.run_until_idle();
    assert_eq!(env.running_names(), [""; 0]);
    assert!(env.pod.checkpoint.termination.is_some(), "the pod is over");
}

#[test]
fn a_stop_that_back_off_follows_is_an_exit_as_any_other() {
    for (policy, restarts) in [("OnFailure", false), ("Always", true)] {
        let mut env = with_failed_probe(policy);
        for _ in 0..2 {
            env.run_until_idle();
            env.advance_clock(1);
            fail_probe(&mut env);
        }
        assert_eq!(reason_of(&env), Some(reason::REPLACEMENT.to_owned()));
        // It ends with success before the stop has returned.
        let stop = env.start_steps().remove(0);
        env.exit_container("a", 0);
        env.fail(&stop, StepFailure::default());
        env.run_until_idle();
        let waits = reason_of(&env) == Some(reason::CRASH_LOOP_BACK_OFF.to_owned());
        assert_eq!(waits, restarts, "{policy}");
        assert_eq!(env.pod.checkpoint.termination.is_none(), restarts);
    }
}
