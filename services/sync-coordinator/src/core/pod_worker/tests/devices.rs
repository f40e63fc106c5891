//! Devices of containers that start.

use serde_json::{Value, json};

use crate::core::step::{Step, StepFailure, StepKey};
use crate::core::test_support::{TestEnv, simple};

/// Two containers, the first of which requests a device.
fn with_device() -> Value {
    let mut spec = simple("Always", &["a", "b"]);
    spec["containers"][0]["resources"] = json!({"limits": {"example.com/device": "1"}});
    spec
}

fn prepare() -> StepKey {
    StepKey::PrepareDevices("a".into())
}

/// Carries out steps until the devices are to be prepared.
fn advance_to_prepare(env: &mut TestEnv) {
    for _ in 0..10 {
        let keys = env.planned_keys();
        if keys.contains(&prepare()) {
            return;
        }
        let create = StepKey::CreateContainer("a".into());
        assert!(!keys.contains(&create), "{keys:?}");
        for step in env.start_steps() {
            env.finish(&step);
        }
    }
    panic!("not prepared: {:?}", env.plan());
}

#[test]
fn devices_are_prepared_before_each_start_permit() {
    let mut env = TestEnv::new(with_device());
    advance_to_prepare(&mut env);
    // A plugin that hangs holds no permit.
    env.pod.has_start_permit = false;
    assert!(env.planned_keys().contains(&prepare()));
    assert!(env.plan().needs_start_permit.is_some(), "for container b");
    env.pod.has_start_permit = true;
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
    assert!(env.pod.prepared_devices.is_empty(), "used");
    env.exit_container("a", 1);
    env.run_until_idle();
    env.advance_clock(60);
    env.run_until_idle();
    let keys = env.history.iter().map(Step::key);
    let keys: Vec<_> = keys.filter(|key| *key != StepKey::Checkpoint).collect();
    let count = |wanted: &StepKey| keys.iter().filter(|key| *key == wanted).count();
    assert_eq!(count(&prepare()), 2);
    assert_eq!(count(&StepKey::PrepareDevices("b".into())), 0);
    assert_eq!(count(&StepKey::AllocateDevices), 1);
}

#[test]
fn devices_are_prepared_again_after_a_failed_creation() {
    let mut env = TestEnv::new(with_device());
    advance_to_prepare(&mut env);
    for step in env.start_steps() {
        env.finish(&step);
    }
    assert!(env.pod.prepared_devices.contains_key("a"));
    for step in env.start_steps() {
        match step {
            Step::CreateContainer { .. } => env.fail(&step, StepFailure::default()),
            _ => env.finish(&step),
        }
    }
    assert!(env.pod.prepared_devices.is_empty());
    env.advance_clock(60);
    assert!(env.planned_keys().contains(&prepare()));
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
}

#[test]
fn devices_that_cannot_be_prepared_are_the_waiting_reason() {
    let mut env = TestEnv::new(with_device());
    advance_to_prepare(&mut env);
    for step in env.start_steps() {
        if step.key() == prepare() {
            let failure = StepFailure {
                reason: "CreateContainerConfigError".into(),
                message: "no devices".into(),
                ..StepFailure::default()
            };
            env.fail(&step, failure);
        } else {
            env.finish(&step);
        }
    }
    let plan = env.plan();
    let waiting = plan.waiting_containers.iter().find(|w| w.container == "a");
    let waiting = waiting.expect("a waits");
    assert_eq!(waiting.reason, "CreateContainerConfigError");
    assert_eq!(waiting.message, "no devices");
    assert!(waiting.retry_at.is_some());
    env.advance_clock(60);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
}

/// Paths of subPaths may contain variables that devices bring.
#[test]
fn devices_are_prepared_before_sub_paths() {
    let mut spec = with_device();
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data", "subPathExpr": "$(DEVICE)"}]);
    let mut env = TestEnv::new(spec);
    env.run_until_idle();
    let keys: Vec<_> = env.history.iter().map(Step::key).collect();
    let position = |wanted: StepKey| keys.iter().position(|key| *key == wanted);
    let in_order = [
        position(StepKey::AllocateDevices),
        position(prepare()),
        position(StepKey::PrepareSubPaths("a".into())),
        position(StepKey::CreateContainer("a".into())),
    ];
    assert!(in_order.is_sorted() && in_order[0].is_some(), "{keys:?}");
}

/// Neither step has an effect that a pod has to release itself.
#[test]
fn the_end_of_a_pod_does_not_wait_for_devices() {
    let mut env = TestEnv::new(with_device());
    env.start_steps();
    assert!(env.pod.in_flight.contains_key(&StepKey::AllocateDevices));
    env.remove();
    env.relist();
    assert!(env.planned_keys().contains(&StepKey::RemoveCgroup));
    let mut env = TestEnv::new(with_device());
    advance_to_prepare(&mut env);
    for step in env.start_steps() {
        if step.key() != prepare() {
            env.finish(&step);
        }
    }
    env.remove();
    env.relist();
    let keys = env.planned_keys();
    assert!(
        keys.iter()
            .any(|key| matches!(key, StepKey::StopSandbox(_))),
        "{keys:?}"
    );
}
