//! The controllers of a CSI driver (provisioner, attacher, resizer), played by the test.

use polylet_e2e::ok;
use polylet_harness::Cluster;
use polylet_harness::cluster::Patch;
use polylet_harness::csi::NAME;
use serde_json::{Value, json};

use super::events::wait_for_event;

const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

/// Provisions a volume once the claim exists.
pub(crate) async fn provision(cluster: &Cluster, claim: &str, mode: &str) {
    let selected = |object: &Value| {
        object["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] == NAME
    };
    let path = format!("{CLAIMS}/{claim}");
    let made = ok(cluster.wait(&path, "asks for a volume", selected).await);
    let uid = &made["metadata"]["uid"];
    let name = format!("pv-{claim}");
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": name, "annotations": { "pv.kubernetes.io/provisioned-by": NAME } },
        "spec": { "capacity": { "storage": "8Mi" }, "accessModes": ["ReadWriteOnce"],
            "volumeMode": mode, "storageClassName": "test", "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": { "namespace": "default", "name": claim, "uid": uid },
            "csi": { "driver": NAME, "volumeHandle": claim, "fsType": "ext4" } } });
    ok(cluster.client().create(VOLUMES, &volume).await);
}

/// The VolumeAttachment created by the attach-detach controller.
pub(crate) async fn attachment(cluster: &Cluster, claim: &str) -> String {
    let volume = format!("pv-{claim}");
    loop {
        let all = ok(cluster.client().get(ATTACHMENTS).await).unwrap();
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let of = |one: &&Value| one["spec"]["source"]["persistentVolumeName"] == volume.as_str();
        if let Some(one) = all.iter().find(of) {
            assert_eq!(one["spec"]["attacher"], NAME);
            let name = one["metadata"]["name"].as_str().unwrap_or_default();
            return format!("{ATTACHMENTS}/{name}");
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Attaches the volume and adds the attacher's finalizer.
pub(crate) async fn attach(cluster: &Cluster, attachment: &str) {
    let finalizers = json!({ "metadata": { "finalizers": [format!("external-attacher/{NAME}")] } });
    let client = cluster.client();
    ok(client.patch(attachment, Patch::Merge, &finalizers).await);
    let status = json!({ "status": { "attached": true,
        "attachmentMetadata": { "device": "vdb" } } });
    let path = format!("{attachment}/status");
    ok(client.patch(&path, Patch::Merge, &status).await);
}

/// Waits for the request to detach, and detaches. Returns whether the node still used the volume.
pub(crate) async fn detach(cluster: &Cluster, attachment: &str, claim: &str) -> bool {
    let leaves = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
    ok(cluster.wait(attachment, "is to be detached", leaves).await);
    let used = in_use(cluster).await.contains(&in_use_name(claim));
    let free = json!({ "metadata": { "finalizers": null } });
    ok(cluster
        .client()
        .patch(attachment, Patch::Merge, &free)
        .await);
    ok(cluster.wait_absent(attachment).await);
    used
}

pub(crate) fn in_use_name(claim: &str) -> String {
    format!("kubernetes.io/csi/{NAME}^{claim}")
}

pub(crate) async fn in_use(cluster: &Cluster) -> Vec<String> {
    let node = ok(cluster.client().get("/api/v1/nodes/node").await).unwrap();
    let names = node["status"]["volumesInUse"].as_array().cloned();
    let names = names.unwrap_or_default();
    names
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

/// The user requests more, and the controller expands the volume.
pub(crate) async fn grow(cluster: &Cluster, claim: &str) {
    let client = cluster.client();
    let size = json!({ "storage": "16Mi" });
    let path = format!("{CLAIMS}/{claim}");
    let resize = json!({ "spec": { "resources": { "requests": size } } });
    ok(client.patch(&path, Patch::Merge, &resize).await);
    let larger = json!({ "spec": { "capacity": size } });
    let volume = format!("{VOLUMES}/pv-{claim}");
    ok(client.patch(&volume, Patch::Merge, &larger).await);
    let status = json!({ "status": { "allocatedResources": size,
        "allocatedResourceStatuses": { "storage": "NodeResizePending" },
        "conditions": [{ "type": "FileSystemResizePending", "status": "True" }] } });
    let status_path = format!("{path}/status");
    ok(client.patch(&status_path, Patch::Merge, &status).await);
}

/// Waits until the claim's status shows the new capacity.
pub(crate) async fn grown(cluster: &Cluster, claim: &str) {
    let path = format!("{CLAIMS}/{claim}");
    let grown = |object: &Value| {
        let status = &object["status"];
        status["capacity"]["storage"] == "16Mi"
            && status["allocatedResourceStatuses"].is_null()
            && status["conditions"].as_array().is_none_or(Vec::is_empty)
    };
    ok(cluster
        .wait(&path, "is as large as its volume", grown)
        .await);
    let message = format!("MountVolume.NodeExpandVolume succeeded for volume \"pv-{claim}\" node");
    for about in [("Pod", "first"), ("PersistentVolumeClaim", claim)] {
        wait_for_event(cluster, about, "FileSystemResizeSuccessful", &message).await;
    }
}
