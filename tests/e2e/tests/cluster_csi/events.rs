//! Events about volumes.

use polylet_e2e::ok;
use polylet_harness::{Cluster, Node};
use serde_json::Value;

const EVENTS: &str = "/api/v1/namespaces/default/events";

/// Waits for an event by object, reason and message.
pub(crate) async fn wait_for_event(
    cluster: &Cluster,
    subject: (&str, &str),
    reason: &str,
    message: &str,
) {
    let mut events = ok(cluster.client().watch(EVENTS).await);
    let is_it = |event: &Value| {
        let of = &event["involvedObject"];
        let is_subject = of["kind"] == subject.0 && of["name"] == subject.1;
        is_subject && event["reason"] == reason && event["message"] == message
    };
    loop {
        let (_, event) = ok(events.next().await).expect("an open watch of events");
        if is_it(&event) {
            assert!(event["involvedObject"]["uid"].is_string());
            return;
        }
    }
}

/// An event names the path of a block device.
pub(crate) async fn mapped(cluster: &Cluster, node: &Node, uid: &str) {
    let root = node.dirs().root.display().to_string();
    let locations = [
        format!("globalMapPath \"{root}/plugins/kubernetes.io/csi/volumeDevices/pv-raw/dev\""),
        format!("volumeMapPath \"{root}/pods/{uid}/volumeDevices/kubernetes.io~csi\""),
    ];
    for location in locations {
        let words = format!("MapVolume.MapPodDevice succeeded for volume \"pv-raw\" {location}");
        wait_for_event(cluster, ("Pod", "first"), "SuccessfulMountVolume", &words).await;
    }
}
