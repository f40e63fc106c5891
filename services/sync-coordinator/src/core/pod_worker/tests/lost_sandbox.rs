//! Pods that lose their sandbox: which containers start again, and what is published meanwhile.

use polylet_model::constants::{phase, reason};
use serde_json::{Value, json};

use crate::core::step::StepKey;
use crate::core::test_support::{TestEnv, simple};

/// The sandbox is no longer ready.
fn lose_sandbox(env: &mut TestEnv) {
    env.runtime.sandboxes[0].ready = false;
    env.relist();
}

/// Runs the pod until it is idle, and has init container `i` succeed.
fn run_with_init(env: &mut TestEnv) {
    env.run_until_idle();
    if env.running("i").is_some() {
        env.exit_container("i", 0);
        env.run_until_idle();
    }
}

/// The container that is published as being replaced.
fn replaced(env: &TestEnv, name: &str) -> Option<String> {
    let waiting = env.plan().waiting_containers.into_iter();
    let mut own = waiting.filter(|it| it.container == name && it.reason == reason::REPLACEMENT);
    own.next().map(|it| it.message)
}

/// A pod with containers `job`, to which `own` is added, and `helper`, which always restarts.
fn with_helper(policy: &str, own: &Value) -> Value {
    let mut spec = simple(policy, &["job", "helper"]);
    spec["containers"][1]["restartPolicy"] = json!("Always");
    add(&mut spec["containers"][0], own);
    spec
}

/// A pod with container `job` alone, to which `own` is added, and init container `i`.
fn with_init(policy: &str, own: &Value) -> Value {
    let mut spec = simple(policy, &["job"]);
    spec["initContainers"] = json!([{"name": "i", "image": "i:1"}]);
    add(&mut spec["containers"][0], own);
    spec
}

fn add(container: &mut Value, own: &Value) {
    for (key, value) in own.as_object().unwrap() {
        container[key] = value.clone();
    }
}

#[test]
fn a_container_that_exits_with_zero_in_a_lost_sandbox_restarts() {
    let sidecar = json!({"name": "s", "image": "s:1", "restartPolicy": "Always"});
    let init = json!({"name": "i", "image": "i:1"});
    for init_containers in [json!([]), json!([init]), json!([sidecar])] {
        let mut spec = simple("OnFailure", &["a"]);
        spec["initContainers"] = init_containers.clone();
        let mut env = TestEnv::new(spec);
        run_with_init(&mut env);
        let old = env.running("a");
        let check = |env: &TestEnv, at: &str| {
            assert_eq!(replaced(env, "a"), old, "{init_containers}: {at}");
        };
        lose_sandbox(&mut env);
        check(&env, "before the stop");
        let steps = env.start_steps();
        check(&env, "during the stop");
        env.exit_by_id(old.as_ref().unwrap(), 0);
        env.relist();
        check(&env, "after the exit");
        steps.iter().for_each(|step| env.finish(step));
        env.node.network = Err("no CNI configuration".to_owned());
        check(&env, "without a network");
        env.node.network = Ok(());
        for _ in 0..20 {
            for step in env.start_steps() {
                check(&env, &format!("during {step:?}"));
                env.finish(&step);
                check(&env, &format!("after {step:?}"));
            }
            if env.running("i").is_some() {
                env.exit_container("i", 0);
            }
        }
        assert!(env.running("a").is_some(), "{init_containers}");
        assert!(env.pod.checkpoint.termination.is_none());
        let creations = env.history.iter().map(|step| step.key());
        let creations = creations.filter(|key| *key == StepKey::CreateSandbox);
        assert_eq!(creations.count(), 2, "{init_containers}");
    }
}

#[test]
fn only_containers_that_start_again_are_published_as_replaced_with_their_sandbox() {
    let never = json!({"restartPolicy": "Never"});
    for (spec, job_exit) in [
        (with_helper("OnFailure", &json!({})), Some(0)),
        (with_helper("Never", &json!({})), Some(1)),
        (with_helper("Never", &json!({})), None),
        (with_helper("Always", &never), None),
    ] {
        let mut env = TestEnv::new(spec.clone());
        env.run_until_idle();
        if let Some(code) = job_exit {
            env.exit_container("job", code);
        }
        lose_sandbox(&mut env);
        let helper = env.running("helper");
        for _ in 0..20 {
            assert_eq!(replaced(&env, "job"), None, "{spec} {job_exit:?}");
            assert_eq!(replaced(&env, "helper"), helper, "{spec} {job_exit:?}");
            for step in env.start_steps() {
                env.finish(&step);
            }
        }
        assert_eq!(env.running_names(), ["helper"], "{spec} {job_exit:?}");
    }
}

#[test]
fn a_stop_for_good_is_not_published_as_a_replacement_with_the_sandbox() {
    let mut env = TestEnv::new(simple("OnFailure", &["a"]));
    env.run_until_idle();
    lose_sandbox(&mut env);
    env.start_steps();
    let id = env.running("a").unwrap();
    assert_eq!(replaced(&env, "a"), Some(id.clone()));
    env.pod.lifecycle.stops.get_mut(&id).unwrap().restart = false;
    assert_eq!(replaced(&env, "a"), None);
}

#[test]
fn a_container_that_completed_does_not_run_again_in_another_sandbox() {
    let never = json!({"restartPolicy": "Never"});
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]);
    let never_but_one = json!({"restartPolicy": "Never", "restartPolicyRules": rules});
    for (policy, own, exit, again) in [
        ("Never", json!({}), 0, false),
        ("Never", json!({}), 1, false),
        ("OnFailure", json!({}), 0, false),
        ("OnFailure", json!({}), 1, true),
        ("Always", json!({}), 0, true),
        ("Always", json!({}), 1, true),
        ("OnFailure", never.clone(), 1, false),
        ("Always", never, 1, false),
        ("Always", never_but_one.clone(), 1, true),
        ("Never", never_but_one.clone(), 1, true),
        ("Never", never_but_one, 2, false),
    ] {
        let mut env = TestEnv::new(with_helper(policy, &own));
        env.run_until_idle();
        env.exit_container("job", exit);
        lose_sandbox(&mut env);
        env.run_until_idle();
        env.advance_clock(30);
        env.run_until_idle();
        let case = format!("{policy} {own} {exit}");
        let expected: &[&str] = if again {
            &["helper", "job"]
        } else {
            &["helper"]
        };
        assert_eq!(env.running_names(), expected, "{case}");
        let attempt = env.runtime.newest_sandbox().map(|sandbox| sandbox.attempt);
        assert_eq!(attempt, Some(1), "{case}");
    }
}

#[test]
fn a_sandbox_is_not_created_again_for_completed_containers_alone() {
    let never = json!({"restartPolicy": "Never"});
    // Without an exit code the container is killed with its sandbox.
    for (policy, own, exit, again) in [
        ("Always", &never, Some(1), false),
        ("OnFailure", &never, Some(1), false),
        ("Always", &never, None, false),
        ("Always", &json!({}), Some(1), true),
        ("OnFailure", &json!({}), Some(1), true),
        ("OnFailure", &json!({}), None, true),
    ] {
        let mut env = TestEnv::new(with_init(policy, own));
        run_with_init(&mut env);
        if let Some(code) = exit {
            env.exit_container("job", code);
        }
        lose_sandbox(&mut env);
        run_with_init(&mut env);
        env.advance_clock(30);
        run_with_init(&mut env);
        let case = format!("{policy} {own} {exit:?}");
        let attempt = env.runtime.newest_sandbox().map(|sandbox| sandbox.attempt);
        assert_eq!(attempt, Some(u32::from(again)), "{case}");
        assert_eq!(env.running("job").is_some(), again, "{case}");
        let termination = env.pod.checkpoint.termination.as_ref();
        let ended = termination.map(|termination| termination.phase.as_str());
        let expected = (!again).then_some(phase::FAILED);
        assert_eq!(ended, expected, "{case}");
    }
}
