//! Actuation of resizes, with upstream's test cases and process restarts.

use polylet_model::ResizableResources;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::core::admission;
use crate::core::runtime_state::ContainerState;
use crate::core::step::{ContainerResize, ResizedResource, Step, StepFailure, StepKey};
use crate::core::test_support::{TestEnv, manifest};

fn sized(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}})
}

fn spec(a: &Value, b: &Value, policy: &Value) -> Value {
    json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "containers": [
        {"name": "a", "image": "img-a:1", "resources": a, "resizePolicy": policy},
        {"name": "b", "image": "img-b:1", "resources": b}]})
}

fn update(env: &mut TestEnv, spec: Value) {
    env.update_spec(&manifest(spec));
}

fn running(policy: Value) -> TestEnv {
    let mut env = TestEnv::new(spec(&sized("1", "1Gi"), &sized("1", "1Gi"), &policy));
    env.run_until_idle();
    env.history.clear();
    env
}

fn resized(env: &TestEnv) -> Vec<&ContainerResize> {
    let changes = env.history.iter().filter_map(|step| match step {
        Step::Resize { changes } => Some(changes),
        _ => None,
    });
    changes.flatten().collect()
}

#[test]
fn a_running_container_is_resized_in_place() {
    let mut env = running(json!([]));
    let ids = (env.running("a"), env.running("b"));
    update(
        &mut env,
        spec(&sized("2", "512Mi"), &sized("1", "1Gi"), &json!([])),
    );
    assert!(
        env.plan().resize_progress.is_none(),
        "not before it is accepted"
    );
    let steps = env.start_steps();
    env.finish(&steps[0]);
    let progress = env.plan().resize_progress.unwrap();
    assert_eq!(progress.actual["a"].cpu_limit, 1000);
    env.run_until_idle();
    assert_eq!((env.running("a"), env.running("b")), ids);
    let [change] = resized(&env)[..] else {
        panic!("{:?}", env.history);
    };
    assert_eq!(change.container, "a");
    assert_eq!(
        (change.to.cpu_limit, change.to.memory_limit),
        (2000, 512 << 20)
    );
    // Also for the next process instance.
    env.restart_process();
    let plan = env.plan();
    assert_eq!((plan.resize_progress, plan.steps), (None, Vec::new()));
}

#[test]
fn a_container_restarts_by_its_resize_policy() {
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
    let mut env = running(policy.clone());
    let (a, b) = (env.running("a"), env.running("b"));
    update(
        &mut env,
        spec(&sized("2", "1Gi"), &sized("1", "1Gi"), &policy),
    );
    env.run_until_idle();
    assert_eq!(env.running("a"), a, "CPU alone needs no restart");
    update(
        &mut env,
        spec(&sized("2", "2Gi"), &sized("1", "1Gi"), &policy),
    );
    env.run_until_idle();
    assert_ne!(env.running("a"), a);
    assert_eq!(env.running("b"), b);
    let created = env.runtime.newest_container("a").unwrap();
    assert_eq!(created.created_resources.unwrap().memory_limit, 2 << 30);
    assert_eq!(
        created.created_at,
        Some(env.now),
        "no crash, so no back-off"
    );
    assert_eq!(created.attempt, 1);
    // The pod's cgroup is resized after the stop and before the creation.
    let order: Vec<StepKey> = env.history.iter().map(Step::key).collect();
    let at = |key: &StepKey| order.iter().rposition(|k| k == key);
    let (stopped, resized) = (StepKey::StopContainer(a.unwrap()), at(&StepKey::Resize));
    assert!(at(&stopped) < resized && resized < at(&StepKey::CreateContainer("a".into())));
}

#[test]
fn decreases_come_first() {
    let amounts = |cpu: i64, memory: i64| ResizableResources {
        cpu_limit: cpu,
        memory_limit: memory,
        ..ResizableResources::default()
    };
    let change = |name: &str, from, to| ContainerResize {
        id: name.to_owned(),
        container: name.to_owned(),
        from,
        to,
    };
    let changes = [
        change("grows", amounts(1, 1), amounts(2, 2)),
        change("mixed", amounts(1, 2), amounts(2, 1)),
        change("shrinks", amounts(2, 2), amounts(1, 1)),
    ];
    let names = |resource| -> Vec<&str> {
        let order = ContainerResize::in_order(&changes, resource).into_iter();
        order.map(|change| change.container.as_str()).collect()
    };
    assert_eq!(
        names(ResizedResource::Memory),
        ["mixed", "shrinks", "grows"]
    );
    assert_eq!(names(ResizedResource::Cpu), ["shrinks", "grows", "mixed"]);
}

#[test]
fn a_resize_waits_for_a_container_in_creation() {
    let mut env = running(json!([]));
    env.exit_container("a", 0);
    env.advance_clock(60);
    let pulls = env.start_steps();
    env.finish(&pulls[0]);
    let creates = env.start_steps();
    assert!(matches!(creates[0], Step::CreateContainer { .. }));
    update(
        &mut env,
        spec(&sized("2", "2Gi"), &sized("1", "1Gi"), &json!([])),
    );
    assert!(env.planned_keys().is_empty(), "{:?}", env.planned_keys());
    env.finish(&creates[0]);
    env.run_until_idle();
    assert_eq!(resized(&env).len(), 1, "{:?}", env.history);
    // A container whose creation has not started gets the new resources.
    env.exit_container("b", 0);
    env.advance_clock(60);
    update(
        &mut env,
        spec(&sized("2", "2Gi"), &sized("2", "2Gi"), &json!([])),
    );
    env.run_until_idle();
    let created = env.runtime.newest_container("b").unwrap();
    assert_eq!(created.created_resources.unwrap().cpu_limit, 2000);
    assert_eq!(resized(&env).len(), 1, "{:?}", env.history);
}

#[test]
fn a_resize_is_stored_without_undoing_a_termination_that_was_stored_meanwhile() {
    for terminates in [false, true] {
        let mut env = running(json!([]));
        let resized = spec(&sized("2", "1Gi"), &sized("1", "1Gi"), &json!([]));
        update(&mut env, resized);
        let allocation = env.start_steps().remove(0);
        env.finish(&allocation);
        let resize = env.start_steps().remove(0);
        assert_eq!(resize.key(), StepKey::Resize);
        if terminates {
            env.pod.eviction = Some(admission::preempted(env.now));
            let termination = env.start_steps().remove(0);
            assert!(matches!(termination, Step::CheckpointTermination(_)));
            env.finish(&termination);
        }
        env.finish(&resize);
        let stored = |env: &TestEnv| env.disk.as_ref().map(|disk| disk.termination.is_some());
        assert_eq!(stored(&env), Some(terminates));
        let keys = env.planned_keys();
        assert!(keys.contains(&StepKey::Checkpoint), "{keys:?}");
        env.run_until_idle();
        assert_eq!(stored(&env), Some(terminates));
        let disk = env.disk.unwrap();
        assert_eq!(disk.cgroup_resources, None);
        assert_eq!(disk.actual_resources, env.pod.checkpoint.actual_resources);
    }
}

#[test]
fn a_failed_resize_is_retried_and_delays_no_other_container() {
    let mut env = running(json!([]));
    env.exit_container("b", 0);
    update(
        &mut env,
        spec(&sized("1", "512Mi"), &sized("1", "1Gi"), &json!([])),
    );
    let steps = env.start_steps();
    for step in &steps {
        env.finish(step);
    }
    let steps = env.start_steps();
    let resize = steps.iter().find(|s| s.key() == StepKey::Resize).unwrap();
    let message = "cannot decrease memory limits: in use".to_owned();
    env.fail(
        resize,
        StepFailure {
            message: message.clone(),
            ..StepFailure::default()
        },
    );
    assert_eq!(env.plan().resize_progress.unwrap().error, message);
    env.advance_clock(0);
    for step in steps.iter().filter(|s| s.key() != StepKey::Resize) {
        env.finish(step);
    }
    env.advance_clock(15);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
    assert!(env.plan().resize_progress.is_none());
}

#[test]
fn containers_without_annotation_have_the_allocated_resources() {
    let mut env = running(json!([]));
    for container in &mut env.runtime.containers {
        container.created_resources = None;
    }
    env.restart_process();
    env.run_until_idle();
    assert!(resized(&env).is_empty());
    update(
        &mut env,
        spec(&sized("2", "1Gi"), &sized("1", "1Gi"), &json!([])),
    );
    let steps = env.start_steps();
    env.finish(&steps[0]);
    env.restart_process();
    env.run_until_idle();
    let [change] = resized(&env)[..] else {
        panic!("{:?}", env.history);
    };
    assert_eq!((change.from.cpu_limit, change.to.cpu_limit), (1000, 2000));
}

proptest! {
    #[test]
    fn running_containers_converge_to_the_allocation(
        resizes in proptest::collection::vec((1_i64..4, 1_i64..4, 0_u8..6), 1..8),
    ) {
        let mut env = running(json!([]));
        for (a, b, event) in resizes {
            let size = |n: i64| sized(&n.to_string(), &format!("{n}Gi"));
            update(&mut env, spec(&size(a), &size(b), &json!([])));
            let steps = env.start_steps();
            for step in steps {
                // Process killed before the step, after it, or before its result.
                match event {
                    0 => env.restart_process(),
                    1 => { env.effect(&step); env.restart_process(); }
                    2 => { env.finish(&step); env.restart_process(); }
                    _ => env.finish(&step),
                }
            }
            if event == 4 && env.running("a").is_some() {
                env.exit_container("a", 1);
                env.advance_clock(600);
            }
            env.relist();
            env.run_until_idle();
            env.advance_clock(600);
            env.run_until_idle();
            let plan = env.plan();
            prop_assert!(plan.resize_progress.is_none() && plan.steps.is_empty(), "{plan:?}");
            for (name, cpu) in [("a", a), ("b", b)] {
                let container = env.runtime.newest_container(name).unwrap();
                prop_assert_eq!(container.state, ContainerState::Running);
                let resized = env.pod.checkpoint.actual_resources.get(&container.id).copied();
                let actual = resized.or(container.created_resources).unwrap();
                prop_assert_eq!(actual.cpu_limit, cpu * 1000);
            }
        }
    }
}
