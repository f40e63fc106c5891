//! Volumes of API pods with a real control plane: tokens, objects created late, claims.

use std::fs;

use polylet_e2e::{cluster, cluster_node, ok, pod};
use polylet_harness::cluster::pod_path;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVENTS: &str = "/api/v1/namespaces/default/events";
/// A script that prints the token and the requested volumes, and then runs until SIGTERM.
const SCRIPT: &str = "cd /var/run/secrets/kubernetes.io/serviceaccount && test -s token && \
    grep -q BEGIN ca.crt && test \"$(cat namespace)\" = default && \
    test \"$(cat /data/file)\" = kept && test \"$(cat /conf/key)\" = late && \
    id -G | grep -qw 4321 && ! touch /shown/file && touch /data/file && exec sleep 1000000";

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn token_claim_and_late_objects_are_mounted() {
    let cluster = cluster().await;
    let node = cluster_node(&cluster).await;
    let disk = cluster.scratch().join("disk");
    ok(fs::create_dir_all(&disk));
    ok(fs::write(disk.join("file"), "kept"));
    let size = json!({ "storage": "1Mi" });
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": "disk", "annotations": { "pv.beta.kubernetes.io/gid": "4321" } },
        "spec": { "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": disk } } });
    ok(cluster
        .client()
        .create("/api/v1/persistentvolumes", &volume)
        .await);
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "disk",
            "resources": { "requests": size } } });
    ok(cluster.client().create(CLAIMS, &claim).await);
    let more = json!({
        "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
            { "name": "shown", "persistentVolumeClaim": { "claimName": "data", "readOnly": true } },
            { "name": "conf", "configMap": { "name": "tardy" } },
        ],
        "container": { "volumeMounts": [
            { "name": "data", "mountPath": "/data" },
            { "name": "shown", "mountPath": "/shown" },
            { "name": "conf", "mountPath": "/conf" },
        ] },
    });
    let mut web: Value = serde_json::from_str(&pod("web", SCRIPT, &more)).unwrap();
    web["spec"]["nodeName"] = "node".into();
    ok(cluster.client().create(PODS, &web).await);
    // An event with upstream's message names the missing object; then the pod starts at once.
    let mut events = ok(cluster.client().watch(EVENTS).await);
    let message = "MountVolume.SetUp failed for volume \"conf\" : configmap \"tardy\" not found";
    loop {
        let (_, event) = ok(events.next().await).expect("an open watch of events");
        if event["reason"] == "FailedMount" && event["message"] == message {
            break;
        }
    }
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "tardy" },
        "data": { "key": "late" } });
    ok(cluster.client().create(MAPS, &map).await);
    ok(cluster.wait_pod_ready("web").await);
    let now = json!({ "gracePeriodSeconds": 0 });
    ok(cluster.client().delete(&pod_path("web"), &now).await);
    ok(cluster.wait_absent(&pod_path("web")).await);
    assert_eq!(ok(fs::read_to_string(disk.join("file"))), "kept");
    ok(node.remove());
    ok(cluster.remove());
}
