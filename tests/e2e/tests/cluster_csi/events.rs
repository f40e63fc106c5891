//! What people are told of volumes.

use polylet_e2e::ok;
use polylet_harness::{Cluster, Node};
use serde_json::Value;

const EVENTS: &str = "/api/v1/namespaces/default/events";

/// Waits for an event: of whom, its reason and its words.
pub(crate) async fn told(cluster: &Cluster, about: (&str, &str), reason: &str, message: &str) {
    let mut events = ok(cluster.client().watch(EVENTS).await);
    let is_it = |event: &Value| {
        let of = &event["involvedObject"];
        let whose = of["kind"] == about.0 && of["name"] == about.1;
        whose && event["reason"] == reason && event["message"] == message
    };
    loop {
        let (_, event) = ok(events.next().await).expect("events are told");
        if is_it(&event) {
            assert!(event["involvedObject"]["uid"].is_string());
            return;
        }
    }
}

/// People are told where a device is.
pub(crate) async fn mapped(cluster: &Cluster, node: &Node, uid: &str) {
    let root = node.dirs().root.display().to_string();
    let places = [
        format!("globalMapPath \"{root}/plugins/kubernetes.io/csi/volumeDevices/pv-raw/dev\""),
        format!("volumeMapPath \"{root}/pods/{uid}/volumeDevices/kubernetes.io~csi\""),
    ];
    for place in places {
        let words = format!("MapVolume.MapPodDevice succeeded for volume \"pv-raw\" {place}");
        told(cluster, ("Pod", "first"), "SuccessfulMountVolume", &words).await;
    }
}
