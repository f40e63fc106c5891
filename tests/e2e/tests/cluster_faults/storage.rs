//! Volumes that do not answer, and one with very many files.

use std::fs::{self, File};
use std::path::PathBuf;

use polylet_e2e::{RUNS, ok};
use polylet_harness::csi::{NAME, TestCsiDriver};
use polylet_harness::hung_fuse::HungFuse;
use serde_json::{Value, json};

use crate::faulty_node::{FaultyNode, bound};

/// Number of files; `POLYLET_TEST_FILES` changes it.
const FILES: usize = 1_000_000;
/// Files of one directory.
const FILES_PER_DIRECTORY: usize = 250_000;

/// Pods with an emptyDir in which a file system hangs.
pub(crate) async fn hung_file_systems(node: &FaultyNode) -> Vec<HungFuse> {
    let mut mounted = Vec::new();
    for number in 0..3 {
        let volume = pod_with_volume(node, &format!("hung-mount-{number}")).await;
        let at = volume.join("mounted");
        ok(fs::create_dir(&at));
        mounted.push(ok(HungFuse::mount(&at)));
    }
    mounted
}

/// Starts a pod with an emptyDir and returns its directory on the node.
async fn pod_with_volume(node: &FaultyNode, name: &str) -> PathBuf {
    let more = json!({
        "volumes": [{ "name": "data", "emptyDir": {} }],
        "container": { "volumeMounts": [{ "name": "data", "mountPath": "/data" }] },
    });
    node.create(&bound(name, RUNS, &more)).await;
    let pod = ok(node.cluster.wait_pod_ready(name).await);
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let volumes = node.node.dirs().root.join("pods").join(uid);
    volumes.join("volumes/kubernetes.io~empty-dir/data")
}

/// Has the driver answer again on drop.
pub(crate) struct SilentDriver(TestCsiDriver);

impl Drop for SilentDriver {
    fn drop(&mut self) {
        self.0.never_answer("no call of this name");
    }
}

/// A registered CSI driver that never answers a call for a volume, and a pod with one.
pub(crate) async fn silent_csi_driver(node: &FaultyNode) -> SilentDriver {
    let disks = node.cluster.scratch().join("disks");
    let driver = ok(TestCsiDriver::new(&node.node.dirs().root, &disks));
    driver.never_answer("publish");
    // Its volumes are unmounted at the end.
    node.keep(ok(driver.start()));
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
        "metadata": { "name": NAME },
        "spec": { "attachRequired": false, "volumeLifecycleModes": ["Ephemeral"] } });
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    ok(node.cluster.client().create(drivers, &object).await);
    let registered = |object: &Value| object["spec"]["drivers"][0]["name"] == NAME;
    let path = "/apis/storage.k8s.io/v1/csinodes/node";
    ok(node.cluster.wait(path, "has the driver", registered).await);
    let more = json!({
        "volumes": [{ "name": "data", "csi": { "driver": NAME } }],
        "container": { "volumeMounts": [{ "name": "data", "mountPath": "/data" }] },
    });
    node.create(&bound("silent-driver", RUNS, &more)).await;
    SilentDriver(driver)
}

/// How many files [`many_files`] creates.
pub(crate) fn files() -> usize {
    let count = std::env::var("POLYLET_TEST_FILES").ok();
    count.and_then(|text| text.parse().ok()).unwrap_or(FILES)
}

/// A pod with an emptyDir of very many files.
pub(crate) async fn many_files(node: &FaultyNode) {
    let volume = pod_with_volume(node, "many-files").await;
    let made = tokio::task::spawn_blocking(move || {
        for number in 0..files() {
            let dir = volume.join((number / FILES_PER_DIRECTORY).to_string());
            if number % FILES_PER_DIRECTORY == 0 {
                fs::create_dir(&dir)?;
            }
            File::create(dir.join(number.to_string()))?;
        }
        Ok::<_, std::io::Error>(())
    });
    ok(ok(made.await));
}
