//! `allocatedResourcesStatus` of containers.

use super::*;

fn device(container: &str, resource: &str, id: &str, healthy: bool) -> DeviceStatus {
    DeviceStatus {
        container: container.into(),
        resource: resource.into(),
        id: id.into(),
        healthy,
    }
}

fn pod() -> Fixture {
    fixture(json!({
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "a"}, {"name": "b"}],
    }))
    .sandbox()
}

fn published(status: &PodStatus, container: &str) -> Value {
    let status = container_status(status, container);
    serde_json::to_value(&status.allocated_resources_status).unwrap()
}

#[test]
fn devices_of_regular_containers_are_sorted_by_resource_and_id() {
    let devices = vec![
        device("a", "example.com/y", "2", true),
        device("a", "example.com/x", "7", true),
        device("a", "example.com/y", "1", false),
        device("i", "example.com/x", "3", true),
        device("s", "example.com/x", "4", true),
    ];
    let expected = json!([
        {"name": "example.com/x", "resources": [{"resourceID": "7", "health": "Healthy"}]},
        {"name": "example.com/y", "resources": [
            {"resourceID": "1", "health": "Unhealthy"}, {"resourceID": "2", "health": "Healthy"}]},
    ]);
    let mut reversed = devices.clone();
    reversed.reverse();
    for devices in [devices, reversed] {
        let mut pod = pod().with(running("a", 0));
        pod.devices = Some(devices);
        let status = pod.status();
        assert_eq!(published(&status, "a"), expected);
        // Without devices, and init containers with them, as upstream.
        for other in ["b", "i", "s"] {
            assert_eq!(published(&status, other), Value::Null, "{other}");
        }
    }
}

#[test]
fn containers_without_a_process_have_devices_too() {
    let mut waiting = pod();
    waiting.devices = Some(vec![device("a", "example.com/x", "1", true)]);
    let listed =
        json!([{"name": "example.com/x", "resources": [{"resourceID": "1", "health": "Healthy"}]}]);
    assert_eq!(published(&waiting.publish(), "a"), listed);
    let mut exited = waiting.with(exited("a", 0, 1));
    exited.publish();
    // The runtime has removed it; the device has failed meanwhile.
    exited.containers.clear();
    exited.devices = Some(vec![device("a", "example.com/x", "1", false)]);
    let status = exited.publish();
    assert_eq!(
        published(&status, "a")[0]["resources"][0]["health"],
        "Unhealthy"
    );
}

#[test]
fn devices_stay_while_unknown_and_after_the_end() {
    use PodWorkerState::{Syncing, Terminated, Terminating};
    for (worker_state, devices, stays) in [
        (Syncing, None, true),
        (Terminating, None, true),
        (Terminated, None, true),
        (Syncing, Some(vec![]), false),
        (Terminating, Some(vec![]), false),
        (Terminated, Some(vec![]), true),
        // Those of another container only.
        (
            Syncing,
            Some(vec![device("b", "example.com/x", "1", true)]),
            false,
        ),
    ] {
        let mut pod = pod().with(running("a", 0));
        pod.devices = Some(vec![device("a", "example.com/x", "1", false)]);
        let before = published(&pod.publish(), "a");
        assert!(before.is_array());
        let case = format!("{worker_state:?} {devices:?}");
        (pod.worker_state, pod.devices) = (worker_state, devices);
        let expected = if stays { before } else { Value::Null };
        assert_eq!(published(&pod.publish(), "a"), expected, "{case}");
    }
}
