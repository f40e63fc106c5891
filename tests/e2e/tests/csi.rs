//! Volumes of upstream's CSI test driver (`hostpathplugin` with `csi-node-driver-registrar`) in a pod of
//! a real cluster: file system, block device, restart, expansion, statistics, removal. Skipped unless
//! both programs are found in KUBEBUILDER_ASSETS or PATH; `cluster_csi` and volume-manager's own tests
//! use a CSI driver of the tests.

#[path = "csi/driver.rs"]
mod driver;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::Cluster;
use polylet_harness::cluster::{Patch, pod_path};
use serde_json::{Value, json};

const NAME: &str = "hostpath.csi.k8s.io";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";

/// A program of the driver, if installed.
fn program(name: &str) -> Option<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = assets.into_iter().chain(std::env::split_paths(&path));
    all.find_map(|dir| Some(dir.join(name)).filter(|path| path.is_file()))
}

/// A process that is killed at the end of the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &Path, arguments: &[String], log: &Path) -> Ends {
    let log = ok(std::fs::File::create(log));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(ok(log.try_clone())).stderr(log);
    Ends(ok(command.spawn()))
}

/// Creates a volume, as the external provisioner does.
async fn make_volume(socket: &Path, name: &str, block: bool) -> String {
    use polylet_wire::csi::v1::VolumeCapability;
    use polylet_wire::csi::v1::volume_capability::{
        AccessMode, AccessType, BlockVolume, MountVolume,
    };
    let access_type = match block {
        true => AccessType::Block(BlockVolume {}),
        false => AccessType::Mount(MountVolume::default()),
    };
    let capability = VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(AccessMode { mode: 1 }),
    };
    driver::create(socket, name, capability).await
}

async fn objects(cluster: &Cluster, name: &str, handle: &str, mode: &str) {
    let size = json!({ "storage": "8Mi" });
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": name },
        "spec": { "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "volumeMode": mode, "persistentVolumeReclaimPolicy": "Retain",
            "csi": { "driver": NAME, "volumeHandle": handle },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "topology.hostpath.csi/node", "operator": "In", "values": ["node"] }] }] } } } });
    ok(cluster.client().create(VOLUMES, &volume).await);
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "volumeMode": mode, "resources": { "requests": size } } });
    ok(cluster.client().create(CLAIMS, &claim).await);
}

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn hostpath_csi_driver_volumes() {
    let mut steps = Steps::new();
    let (Some(plugin), Some(registrar)) = (
        program("hostpathplugin"),
        program("csi-node-driver-registrar"),
    ) else {
        eprintln!("no hostpathplugin and csi-node-driver-registrar: not tested");
        return;
    };
    let cluster = cluster().await;
    let mut node = cluster_node(&cluster).await;
    let root = node.dirs().root.clone();
    let plugins = root.join("plugins/csi-hostpath");
    ok(std::fs::create_dir_all(&plugins));
    let socket = plugins.join("csi.sock");
    let states = cluster.scratch().join("csi-data");
    ok(std::fs::create_dir_all(&states));
    let arguments = [
        "--nodeid=node".to_owned(),
        format!("--endpoint=unix://{}", socket.display()),
        format!("--statedir={}", states.display()),
        "--v=5".to_owned(),
    ];
    let driver = start(&plugin, &arguments, &cluster.scratch().join("driver.log"));
    let arguments = [
        format!("--csi-address={}", socket.display()),
        format!("--kubelet-registration-path={}", socket.display()),
        format!(
            "--plugin-registration-path={}",
            root.join("plugins_registry").display()
        ),
    ];
    let registrar = start(
        &registrar,
        &arguments,
        &cluster.scratch().join("registrar.log"),
    );
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
        "metadata": { "name": NAME }, "spec": { "attachRequired": false, "podInfoOnMount": true,
            "volumeLifecycleModes": ["Persistent", "Ephemeral"], "fsGroupPolicy": "File" } });
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    ok(cluster.client().create(drivers, &object).await);
    let registered = |object: &Value| object["spec"]["drivers"][0]["name"] == NAME;
    let csi_node = "/apis/storage.k8s.io/v1/csinodes/node";
    ok(cluster.wait(csi_node, "has the driver", registered).await);
    let mut handles = Vec::new();
    for (name, block, mode) in [("files", false, "Filesystem"), ("device", true, "Block")] {
        let handle = make_volume(&socket, name, block).await;
        objects(&cluster, name, &handle, mode).await;
        handles.push(handle);
    }

    // A pod with a file system, a block device and an inline ephemeral volume.
    let script = format!(
        "grep -q kept /files/file || echo kept > /files/file; test -b /dev/data && test -d /own && \
         dd if=/dev/zero of=/dev/data bs=4096 count=1 && {RUNS}"
    );
    let more = json!({
        "securityContext": { "fsGroup": 2000, "fsGroupChangePolicy": "OnRootMismatch" },
        "volumes": [
            { "name": "files", "persistentVolumeClaim": { "claimName": "files" } },
            { "name": "device", "persistentVolumeClaim": { "claimName": "device" } },
            { "name": "own", "csi": { "driver": NAME } },
        ],
        "container": {
            "volumeMounts": [{ "name": "files", "mountPath": "/files" }, { "name": "own", "mountPath": "/own" }],
            "volumeDevices": [{ "name": "device", "devicePath": "/dev/data" }],
        },
    });
    let mut first: Value = serde_json::from_str(&pod("first", &script, &more)).unwrap();
    first["spec"]["nodeName"] = "node".into();
    ok(cluster.client().create(PODS, &first).await);
    let up = ok(cluster.wait_pod_ready("first").await);
    let uid = up["metadata"]["uid"].as_str().unwrap().to_owned();
    let mounted = root
        .join("pods")
        .join(&uid)
        .join("volumes/kubernetes.io~csi/files/mount");
    let written = ok(std::fs::read_to_string(mounted.join("file")));
    assert_eq!(written.trim(), "kept");
    assert_eq!(ok(std::fs::metadata(&mounted)).gid(), 2000);

    // A restart of volume-manager disturbs nothing; then the volume is expanded.
    ok(node.kill("volume-manager").await);
    steps
        .run("volume is expanded", volume_is_expanded(&cluster))
        .await;
    steps
        .run(
            "statistics name the claim",
            statistics_name_the_claim(&mut node, &uid),
        )
        .await;

    // Graceful deletion: the pod is removed from the API after its volumes are unmounted.
    let now = json!({ "gracePeriodSeconds": 1 });
    ok(cluster.client().delete(&pod_path("first"), &now).await);
    ok(cluster.wait_absent(&pod_path("first")).await);
    let unmounted = || {
        let mounts = ok(std::fs::read_to_string("/proc/self/mountinfo"));
        !mounts.contains(&uid) && !mounts.contains("kubernetes.io/csi")
    };
    assert!(unmounted(), "mounts are left");
    let left = |dir: &str| {
        let all = std::fs::read_dir(root.join(dir))
            .into_iter()
            .flatten()
            .flatten();
        all.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let devices = "plugins/kubernetes.io/csi/volumeDevices";
    assert!(left(&format!("{devices}/publish")).is_empty());
    assert!(left(&format!("{devices}/staging")).is_empty());
    assert!(!root.join(devices).join("device").exists());
    for handle in handles {
        driver::delete(&socket, &handle).await;
    }
    drop((driver, registrar));
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// Controller expansion followed by node expansion.
async fn volume_is_expanded(cluster: &Cluster) {
    let claim = format!("{CLAIMS}/files");
    let client = cluster.client();
    let size = json!({ "storage": "16Mi" });
    let volume = json!({ "spec": { "capacity": size } });
    ok(client
        .patch(&format!("{VOLUMES}/files"), Patch::Merge, &volume)
        .await);
    let status = json!({ "status": { "allocatedResources": size,
        "allocatedResourceStatuses": { "storage": "NodeResizePending" },
        "conditions": [{ "type": "FileSystemResizePending", "status": "True" }] } });
    ok(client
        .patch(&format!("{claim}/status"), Patch::Merge, &status)
        .await);
    let grown = |object: &Value| {
        let status = &object["status"];
        status["capacity"]["storage"] == "16Mi"
            && status["allocatedResourceStatuses"].is_null()
            && status["conditions"].as_array().is_none_or(Vec::is_empty)
    };
    ok(cluster
        .wait(&claim, "is as large as its volume", grown)
        .await);
}

/// The node's statistics name the claim.
async fn statistics_name_the_claim(node: &mut polylet_harness::Node, uid: &str) {
    use polylet_wire::stats::v1::GetSummaryRequest;
    use polylet_wire::stats::v1::stats_service_client::StatsServiceClient;
    ok(node.wait_serving().await);
    let mut client = StatsServiceClient::new(ok(node.channel("eviction")));
    let answer = ok(client.get_summary(GetSummaryRequest::default()).await);
    let summary: Value = serde_json::from_slice(&answer.into_inner().summary).unwrap();
    let pods = summary["pods"].as_array().unwrap();
    let pod = pods.iter().find(|pod| pod["podRef"]["uid"] == uid).unwrap();
    let volumes = pod["volume"].as_array().unwrap();
    let named = |name: &str| volumes.iter().find(|volume| volume["name"] == name);
    let files = named("files").unwrap_or_else(|| panic!("{volumes:?}"));
    assert_eq!(
        files["pvcRef"],
        json!({ "name": "files", "namespace": "default" })
    );
    assert!(
        files["capacityBytes"]
            .as_i64()
            .is_some_and(|bytes| bytes > 0),
        "{files}"
    );
}
