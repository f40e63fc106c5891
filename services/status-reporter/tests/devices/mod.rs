//! The real process, and devices of pods.

use std::time::Duration;

use polylet_wire::status::v1::PodStatus;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::peers::facts::{device, filled};
use crate::{Reporter, directory, is_ready, start_peers, status, until, watch};

fn health(pod: &PodStatus) -> Value {
    let container = &status(pod)["containerStatuses"][0];
    container["allocatedResourcesStatus"].clone()
}

fn expected(health: &str) -> Value {
    let devices = json!([{ "resourceID": "7", "health": health }]);
    json!([{ "name": "example.com/device", "resources": devices }])
}

#[tokio::test]
async fn health_of_devices_is_published_and_stays_while_device_manager_is_unavailable() {
    let dir = directory();
    let peers = filled("1");
    peers.devices.upsert("u".into(), device(true));
    peers.mark_all_synced();
    let _serving = start_peers(dir.path(), &peers);
    let device_manager = peers.serve(dir.path(), "device-manager");
    let reporter = Reporter::start(dir.path());
    let mut updates = watch(dir.path());
    until(&mut updates, |pod| health(pod) == expected("Healthy")).await;
    peers.devices.upsert("u".into(), device(false));
    let unhealthy = until(&mut updates, |pod| health(pod) == expected("Unhealthy")).await;
    assert!(is_ready(&unhealthy), "devices decide nothing else");

    drop(device_manager);
    let stale = until(&mut updates, |pod| !pod.stale.is_empty()).await;
    assert_eq!(stale.stale, ["device-manager"]);
    assert_eq!(stale.status, unhealthy.status);

    let file = dir.path().join("status-reporter/statuses.json");
    let persisted = async {
        while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("Unhealthy")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let persisted = timeout(Duration::from_secs(20), persisted).await;
    persisted.expect("a file with the last status");

    // Statuses do not wait for it after a restart, and its absence removes nothing.
    drop(reporter);
    let _reporter = Reporter::start(dir.path());
    let mut fresh = watch(dir.path());
    let first = until(&mut fresh, |_| true).await;
    assert_eq!(first.status, unhealthy.status);
    let restarted = peers.restarted("2");
    restarted.devices.upsert("u".into(), device(true));
    restarted.mark_all_synced();
    let _device_manager = restarted.serve(dir.path(), "device-manager");
    until(&mut fresh, |pod| health(pod) == expected("Healthy")).await;
}
