//! Pods and their volumes.

use polylet_volume_manager::core::pod::PodName;
use polylet_wire::volume::v1::{PodVolumes, VolumePhase};
use serde_json::{Value, json};

pub fn all_mounted(pod: &PodVolumes) -> bool {
    let mounted = i32::from(VolumePhase::Mounted);
    !pod.volumes.is_empty() && pod.volumes.iter().all(|volume| volume.phase == mounted)
}

pub fn pod_name(uid: &str) -> PodName {
    PodName {
        uid: uid.into(),
        namespace: "ns".into(),
        name: format!("pod-{uid}"),
    }
}

/// A static pod that mounts these volumes.
pub fn pod(uid: &str, volumes: Value) -> Value {
    let names = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["name"].clone());
    let mounts: Vec<_> = names
        .map(|name| json!({"name": name, "mountPath": "/m"}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{uid}"), "namespace": "ns", "uid": uid, "labels": {"a": "1"},
            "annotations": {"kubernetes.io/config.source": "file"}},
        "spec": {"volumes": volumes, "containers": [{"name": "c", "volumeMounts": mounts}]},
    })
}

/// A pod of the API server that mounts one volume.
pub fn cluster_pod(uid: &str, volume: Value) -> Value {
    let mut pod = pod(uid, json!([volume]));
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "api"});
    pod
}

/// Whether a volume of the pod has exactly this message.
pub fn message_is(message: &'static str) -> impl Fn(Option<&PodVolumes>) -> bool {
    move |pod| pod.is_some_and(|pod| pod.volumes.iter().any(|volume| volume.message == message))
}
