//! Devices of pods in their statuses.

use polylet_model::status::DeviceStatus;
use serde_json::Value;

use super::*;

fn devices(healthy: bool) -> Option<Vec<DeviceStatus>> {
    Some(vec![DeviceStatus {
        container: "a".into(),
        resource: "example.com/x".into(),
        id: "1".into(),
        healthy,
    }])
}

fn health(status: &PodStatus) -> Value {
    let status = serde_json::to_value(status).unwrap();
    status["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]["health"].clone()
}

fn with_device() -> StatusManager {
    let mut manager = ready();
    manager.facts.set_devices("u".into(), devices(true));
    manager.facts.mark_synced(FactStream::PodDevices);
    let published = reconcile_all(&mut manager).unwrap();
    assert_eq!(health(&published.status), "Healthy");
    manager
}

#[test]
fn a_change_of_health_changes_the_status_of_the_pod() {
    let mut manager = with_device();
    for (now, expected) in [(false, "Unhealthy"), (true, "Healthy")] {
        manager.facts.set_devices("u".into(), devices(now));
        let published = reconcile_all(&mut manager).unwrap();
        assert_eq!(health(&published.status), expected);
    }
    manager.facts.set_devices("u".into(), None);
    let published = reconcile_all(&mut manager).unwrap();
    assert_eq!(health(&published.status), Value::Null);
}

#[test]
fn statuses_do_not_wait_for_devices_and_keep_the_last_ones_meanwhile() {
    let mut manager = ready_with(with_device().statuses());
    let before = manager.statuses();
    let published = reconcile_all(&mut manager).unwrap();
    assert_eq!(health(&published.status), "Healthy");
    // The list is not complete: neither a missing nor a changed device counts.
    manager.facts.set_devices("u".into(), devices(false));
    assert_eq!(reconcile_all(&mut manager), None);
    assert_eq!(manager.statuses(), before);
    manager.facts.mark_synced(FactStream::PodDevices);
    let published = reconcile_all(&mut manager).unwrap();
    assert_eq!(health(&published.status), "Unhealthy");
}

#[test]
fn device_manager_is_named_as_stale_for_pods_with_devices_only() {
    let mut manager = with_device();
    let before = manager.statuses();
    manager.facts.mark_stale(FactStream::PodDevices);
    let published = reconcile_all(&mut manager).unwrap();
    assert_eq!(published.stale, ["device-manager"]);
    assert_eq!(manager.statuses(), before);

    let mut without = ready();
    without.facts.mark_synced(FactStream::PodDevices);
    without.facts.mark_stale(FactStream::PodDevices);
    assert_eq!(reconcile_all(&mut without), None);
}

#[test]
fn statuses_have_no_devices_without_the_feature_gate() {
    let mut manager = ready_with(with_device().statuses());
    manager.facts.set_device_health(false);
    let published = reconcile_all(&mut manager).unwrap();
    assert_eq!(health(&published.status), Value::Null);
}
