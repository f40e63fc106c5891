//! Pods that request devices.

use super::*;
use crate::core::devices::DeviceAdmission;
use crate::core::plan::WaitingFor;
use crate::core::step::{StepFailure, StepKey};
use crate::core::test_support::at;

const DEVICE: &str = "example.com/device";

/// A pod that requests this many devices.
fn requesting_devices(count: u32) -> Value {
    let mut spec = simple("Always", &["a"]);
    let list = json!({ DEVICE: count.to_string() });
    spec["containers"][0]["resources"] = json!({ "requests": list, "limits": list });
    spec
}

fn allocated(counts: &[(&str, i64)]) -> Option<DeviceAdmission> {
    Some(DeviceAdmission::Allocated(numbers(counts)))
}

fn set_node_object(env: &mut TestEnv, allocatable: &[(&str, i64)]) {
    env.node.resources.node_object = NodeObject::Present {
        labels: Default::default(),
        taints: Vec::new(),
        allocatable: numbers(allocatable),
    };
}

fn waiting_for(env: &TestEnv) -> Vec<WaitingFor> {
    env.plan().waiting_for
}

#[test]
fn a_pod_waits_for_its_devices_and_keeps_waiting_while_they_are_allocated() {
    let mut env = env(requesting_devices(1));
    assert_eq!(rejection(&env).0, "waits for devices");
    assert_eq!(env.start_steps(), [Step::AllocateDevices]);
    // The step in flight is no sign of an admission.
    assert_eq!(rejection(&env).0, "waits for devices");
    assert!(env.plan().unadmitted);
    assert_eq!(env.start_steps(), []);
    let waiting = waiting_for(&env);
    assert_eq!((waiting.len(), waiting[0].what.as_str()), (1, "devices"));
    assert_eq!(waiting[0].since, Some(at(0)));
    env.finish(&Step::AllocateDevices);
    assert_eq!(decision(&env), AdmissionDecision::Admitted);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
    // Admitted once: a later process instance asks for nothing.
    env.restart_process();
    env.run_until_idle();
    let asked = env.history.iter();
    assert_eq!(asked.filter(|s| **s == Step::AllocateDevices).count(), 1);
}

#[test]
fn only_limits_of_extended_resources_wait_for_devices() {
    let limits = |limits: Value| json!({ "limits": limits });
    for (resources, waits) in [
        (limits(json!({DEVICE: "1"})), true),
        (limits(json!({DEVICE: "0"})), false),
        (limits(json!({"cpu": "1", "hugepages-2Mi": "0"})), false),
        (json!({"requests": {DEVICE: "1"}}), false),
    ] {
        for containers in ["containers", "initContainers"] {
            let mut spec = simple("Always", &["a"]);
            spec[containers] = json!([{"name": "a", "image": "a:1", "resources": resources}]);
            if containers == "initContainers" {
                spec["containers"] = json!([{"name": "b", "image": "b:1"}]);
            }
            let waits = if waits { "waits for devices" } else { "" };
            assert_eq!(rejection(&env(spec)).0, waits, "{containers} {resources}");
        }
    }
}

#[test]
fn a_failed_call_is_repeated_after_its_back_off() {
    let mut env = env(requesting_devices(1));
    env.start_steps();
    let failure = StepFailure {
        reason: "DeviceError".into(),
        message: "device-manager is unavailable".into(),
        ..StepFailure::default()
    };
    env.fail(&Step::AllocateDevices, failure);
    let plan = env.plan();
    assert!(plan.steps.is_empty() && plan.unadmitted && plan.wake_at.is_some());
    let waiting = waiting_for(&env);
    assert_eq!(waiting[0].what, "devices");
    assert_eq!(waiting[0].error, "device-manager is unavailable");
    env.advance_clock(1);
    assert_eq!(env.planned_keys(), [StepKey::AllocateDevices]);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
}

#[test]
fn a_pod_that_cannot_have_its_devices_is_rejected() {
    let mut env = env(requesting_devices(2));
    let error = "requested number of devices unavailable for example.com/device. Requested: 2, Available: 1";
    env.devices = DeviceAdmission::Refused(error.into());
    env.run_until_idle();
    let stored = env.disk.as_ref().unwrap();
    let termination = stored.termination.as_ref().unwrap();
    let message = format!("Pod was rejected: Allocate failed due to {error}, which is unexpected");
    assert_eq!(termination.reason, "UnexpectedAdmissionError");
    assert_eq!(termination.message, message);
    assert!(stored.request.is_none() && env.runtime.is_empty());
}

/// After node pressure and sysctls, before the operating system and resources.
#[test]
fn devices_are_allocated_in_upstream_order() {
    let mut spec = requesting_devices(1);
    spec["os"] = json!({"name": "windows"});
    spec["securityContext"] = json!({"sysctls": [{"name": "vm.swappiness", "value": "1"}]});
    assert_eq!(rejection(&env(spec.clone())).0, "SysctlForbidden");
    spec["securityContext"] = Value::Null;
    let mut env = env(spec);
    env.node.pressure = NodePressure {
        disk: true,
        ..NodePressure::default()
    };
    assert_eq!(rejection(&env).0, "Evicted");
    env.node.pressure = NodePressure::default();
    assert_eq!(rejection(&env).0, "waits for devices");
    env.pod.devices = Some(DeviceAdmission::Refused("none".into()));
    assert_eq!(rejection(&env).0, "UnexpectedAdmissionError");
    env.pod.devices = allocated(&[]);
    assert_eq!(rejection(&env).0, "PodOSNotSupported");
}

#[test]
fn allocated_devices_count_as_allocatable() {
    let other = |count| allocated_pod(pod_request(QosClass::BestEffort, &[(DEVICE, count)]));
    let short = |requested: i64, used: i64, capacity: i64| {
        format!(
            "Node didn't have enough resource: {DEVICE}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    };
    // The node object's count, the allocated ones, those of another pod.
    for (listed, counts, used, expected) in [
        (Some(2), allocated(&[(DEVICE, 2)]), 0, None),
        // Two of three devices are not healthy any more, and the object shows it.
        (Some(1), allocated(&[(DEVICE, 3)]), 1, None),
        (Some(1), allocated(&[]), 1, Some(short(2, 1, 1))),
        (Some(4), allocated(&[(DEVICE, 3)]), 1, None),
        (Some(4), allocated(&[(DEVICE, 3)]), 3, Some(short(2, 3, 4))),
        // Not listed: a resource of the cluster, unless some of it are allocated.
        (None, allocated(&[]), 9, None),
        (None, allocated(&[("example.com/other", 1)]), 9, None),
        (None, allocated(&[(DEVICE, 2)]), 1, Some(short(2, 1, 2))),
        (None, allocated(&[(DEVICE, 3)]), 1, None),
    ] {
        let mut env = env(requesting_devices(2));
        let listed: Vec<_> = listed.map(|count| (DEVICE, count)).into_iter().collect();
        set_node_object(&mut env, &listed);
        env.node
            .resources
            .allocated
            .set(&"other".into(), other(used));
        env.pod.devices = counts.clone();
        let expected = expected.unwrap_or_default();
        assert_eq!(rejection(&env).1, expected, "{listed:?} {counts:?}");
    }
}
