//! Pods, volumes and claims of the test.

use polylet_harness::image;
use polylet_vm::node::NODE;
use serde_json::{Value, json};

use crate::server::SERVER;

/// Serves its working directory until it is stopped.
pub(crate) const SERVE: &str = "trap 'exit 0' TERM; echo fine > /tmp/index.html; httpd -p 8080 -h /tmp; \
                     while :; do sleep 3600 & wait $!; done";

/// Also uses its volume all the time.
pub(crate) const USE: &str = "trap 'exit 0' TERM; echo \"$HOSTNAME\" > /data/written-by-$HOSTNAME; \
                   (while :; do date > /data/used-by-$HOSTNAME; sleep 1; done) & \
                   echo fine > /tmp/index.html; httpd -p 8080 -h /tmp; \
                   while :; do sleep 3600 & wait $!; done";

/// Serves if its volume can be read and not written.
pub(crate) const READ_ONLY: &str = "trap 'exit 0' TERM; grep -q content /data/file || exit 1; \
                         touch /data/new 2>/dev/null && exit 2; \
                         echo fine > /tmp/index.html; httpd -p 8080 -h /tmp; \
                         while :; do sleep 3600 & wait $!; done";

/// A pod of one container, which is Ready when it serves.
pub(crate) fn pod(name: &str, volume: &Value, script: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": image::TEST, "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script],
                "readinessProbe": {
                    "httpGet": { "port": 8080, "path": "/" },
                    "periodSeconds": 2, "timeoutSeconds": 5,
                },
            }],
        },
    });
    if !volume.is_null() {
        let mut volume = volume.clone();
        volume["name"] = json!("data");
        pod["spec"]["volumes"] = json!([volume]);
        let mount = json!([{ "name": "data", "mountPath": "/data" }]);
        pod["spec"]["containers"][0]["volumeMounts"] = mount;
    }
    pod
}

/// An inline volume.
pub(crate) fn inline(path: &str, read_only: bool) -> Value {
    json!({ "nfs": { "server": SERVER, "path": path, "readOnly": read_only } })
}

/// A persistent volume with mount options.
pub(crate) fn volume() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "share" },
        "spec": {
            "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "mountOptions": ["nfsvers=4.1", "noatime", "timeo=50"],
            "nfs": { "server": SERVER, "path": "/srv/share" },
        },
    })
}

/// The claim of the volume.
pub(crate) fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "share" },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": "share",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })
}
