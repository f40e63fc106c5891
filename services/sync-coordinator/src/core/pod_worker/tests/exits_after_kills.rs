//! Exits of containers that were killed: a kill for a restart decides what follows, else the exit code does,
//! as for any other exit.

use polylet_model::constants::{phase, reason};
use serde_json::{Value, json};

use super::with_hooks;
use crate::core::apply_result;
use crate::core::runtime_state::ContainerState;
use crate::core::step::{Step, StepOutcome};
use crate::core::test_support::{TestEnv, manifest, simple};
use crate::core::view::ProbeFailure;

/// A container `a` that exits with 42 has this action, and container `b` has nothing to do with it.
fn with_rule(policy: &str, own: &str, action: &str) -> Value {
    let mut spec = simple(policy, &["a", "b"]);
    add_rule(&mut spec, own, action);
    spec
}

fn add_rule(spec: &mut Value, own: &str, action: &str) {
    spec["containers"][0]["restartPolicy"] = json!(own);
    spec["containers"][0]["restartPolicyRules"] = json!([{"action": action,
        "exitCodes": {"operator": "In", "values": [42]}}]);
}

fn running(spec: Value) -> TestEnv {
    let mut env = TestEnv::new(spec);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
    env
}

/// Fails the liveness probe of `a`, which then exits with this code before its stop has returned.
fn fail_probe(env: &mut TestEnv, code: i32) {
    let id = env.running("a").unwrap();
    let failure = ProbeFailure {
        startup: false,
        message: String::new(),
    };
    env.pod.probe_failures.insert(id, failure);
    exit_during_stop(env, code);
}

/// Starts the stop of `a`, in which it exits with this code.
fn exit_during_stop(env: &mut TestEnv, code: i32) {
    let steps = env.start_steps();
    let stops =
        |step: &Step| matches!(step, Step::StopContainer { container, .. } if container == "a");
    let stop = steps.iter().find(|step| stops(step)).cloned();
    let stop = stop.expect("a is stopped");
    env.exit_container("a", code);
    env.finish(&stop);
}

/// The names of the containers that were removed for the restart of all.
fn removed_for_restart(env: &TestEnv) -> Vec<&str> {
    let removed = env.history.iter().filter_map(|step| match step {
        Step::RemoveForRestart { container, .. } => Some(container.as_str()),
        _ => None,
    });
    let mut names: Vec<&str> = removed.collect();
    names.sort_unstable();
    // Of a container's predecessors there may be records, too.
    names.dedup();
    names
}

#[test]
fn rules_apply_to_a_container_that_a_probe_has_killed_for_good() {
    for (action, code, restarts, all) in [
        ("Restart", 42, true, false),
        ("Restart", 1, false, false),
        ("RestartAllContainers", 42, true, true),
        ("RestartAllContainers", 1, false, false),
    ] {
        for policy in ["Never", "Always"] {
            let case = format!("{policy} {action} {code}");
            let mut env = running(with_rule(policy, "Never", action));
            fail_probe(&mut env, code);
            env.run_until_idle();
            let expected: &[&str] = if restarts { &["a", "b"] } else { &["b"] };
            assert_eq!(env.running_names(), expected, "{case}");
            let removed: &[&str] = if all { &["a", "b"] } else { &[] };
            assert_eq!(removed_for_restart(&env), removed, "{case}");
        }
    }
}

#[test]
fn a_rule_keeps_a_pod_whose_only_container_was_killed() {
    for (code, ended) in [(42, None), (1, Some(phase::FAILED))] {
        let mut spec = simple("Never", &["a"]);
        add_rule(&mut spec, "Never", "Restart");
        let mut env = TestEnv::new(spec);
        env.run_until_idle();
        fail_probe(&mut env, code);
        env.run_until_idle();
        let termination = env.pod.checkpoint.termination.as_ref();
        assert_eq!(termination.map(|it| it.phase.as_str()), ended, "{code}");
        assert_eq!(env.running("a").is_some(), ended.is_none(), "{code}");
    }
}

#[test]
fn rules_do_not_apply_to_a_container_that_is_replaced_at_once() {
    let mut env = running(with_rule("Never", "Always", "RestartAllContainers"));
    fail_probe(&mut env, 42);
    env.restart_process();
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
    assert_eq!(removed_for_restart(&env), [""; 0]);
}

#[test]
fn a_killed_container_in_back_off_requests_the_restart_of_all() {
    let mut env = running(with_rule("Never", "Always", "RestartAllContainers"));
    for _ in 0..2 {
        fail_probe(&mut env, 1);
        env.run_until_idle();
        env.advance_clock(1);
    }
    fail_probe(&mut env, 42);
    env.run_until_idle();
    assert_eq!(removed_for_restart(&env), ["a", "b"]);
}

#[test]
fn a_container_whose_hook_failed_requests_the_restart_of_all() {
    let mut spec = with_hooks("Never", &["a", "b"], &["postStart"]);
    add_rule(&mut spec, "Never", "RestartAllContainers");
    let mut env = TestEnv::new(spec);
    let hook = 'hook: loop {
        for step in env.start_steps() {
            if matches!(step, Step::PostStart { .. }) {
                break 'hook step;
            }
            env.finish(&step);
        }
    };
    let failed = StepOutcome::HookFailed(String::new());
    apply_result::on_finished(&mut env.pod, &hook.key(), failed, env.now);
    exit_during_stop(&mut env, 42);
    env.run_until_idle();
    assert_eq!(removed_for_restart(&env), ["a", "b"]);
}

#[test]
fn only_a_container_that_requested_the_restart_of_all_backs_off() {
    let mut spec = with_rule("Never", "Never", "RestartAllContainers");
    spec["containers"][1]["restartPolicy"] = json!("Never");
    spec["containers"][1]["restartPolicyRules"] = json!([{"action": "RestartAllContainers",
        "exitCodes": {"operator": "NotIn", "values": [0]}}]);
    let mut env = running(spec);
    env.exit_container("a", 42);
    env.run_until_idle();
    assert_eq!(removed_for_restart(&env), ["a", "b"]);
    let step = |name| env.runtime.newest_container(name).unwrap().backoff_step;
    assert_eq!((step("a"), step("b")), (1, 0));
}

#[test]
fn all_containers_restart_in_a_new_sandbox_if_it_is_lost_meanwhile() {
    let mut env = running(with_rule("Never", "Never", "RestartAllContainers"));
    for name in ["a", "b"] {
        let id = env.running(name).unwrap();
        env.exit_by_id(&id, 42);
    }
    env.runtime.sandboxes[0].ready = false;
    env.relist();
    env.run_until_idle();
    assert_eq!(removed_for_restart(&env), ["a", "b"]);
    assert_eq!(env.running_names(), ["a", "b"]);
}

#[test]
fn a_resize_restarts_a_container_whatever_its_policy() {
    let spec = |memory: &str| {
        let mut spec = simple("Always", &["a", "b"]);
        spec["containers"][0]["restartPolicy"] = json!("Never");
        spec["containers"][0]["resources"] = json!({"requests": {"memory": memory}});
        spec["containers"][0]["resizePolicy"] =
            json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        spec
    };
    let mut env = running(spec("1Mi"));
    env.update_spec(&manifest(spec("2Mi")));
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
    assert_eq!(env.runtime.newest_container("a").unwrap().attempt, 1);
}

#[test]
fn a_container_is_replaced_even_if_its_old_spec_is_back_before_it_has_stopped() {
    let spec = |image: &str| {
        let mut spec = simple("Never", &["a", "b"]);
        spec["containers"][0]["image"] = json!(image);
        spec
    };
    let mut env = running(spec("a:1"));
    env.update_spec(&manifest(spec("a:2")));
    let stop = env.start_steps();
    env.update_spec(&manifest(spec("a:1")));
    assert_eq!(env.waiting_reasons()["a"], reason::REPLACEMENT);
    stop.iter().for_each(|step| env.finish(step));
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
}

#[test]
fn a_container_in_an_unknown_state_is_replaced_whatever_its_policy() {
    let mut env = running(simple("Never", &["a", "b"]));
    let mut containers = env.runtime.containers.iter_mut();
    let unknown = containers.find(|container| container.name == "a").unwrap();
    unknown.state = ContainerState::Unknown;
    env.relist();
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
}
