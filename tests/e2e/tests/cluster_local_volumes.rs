//! Local persistent volumes with the real control plane: bound when their pod has a node, a
//! directory, a disk with a file system and one without, shared by pods, and where they cannot be
//! had. Loop devices stand for disks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::cluster::{Patch, pod_path};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// A disk of 8 MiB.
struct Disk(PathBuf);

impl Disk {
    fn new(file: &Path) -> Self {
        ok(ok(fs::File::create(file)).set_len(8 << 20));
        let mut command = Command::new("losetup");
        let made = ok(command.args(["-f", "--show"]).arg(file).output());
        assert!(made.status.success(), "{made:?}");
        Disk(ok(String::from_utf8(made.stdout)).trim().into())
    }

    /// 16 MiB from now on.
    fn grow(&self, file: &Path) {
        ok(ok(fs::File::options().write(true).open(file)).set_len(16 << 20));
        let told = Command::new("losetup").arg("-c").arg(&self.0).status();
        assert!(ok(told).success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// A local volume on a node of this label, and a claim that takes it.
async fn volume(cluster: &Cluster, name: &str, path: &Path, modes: (&str, &str), hostname: &str) {
    let size = json!({ "storage": "8Mi" });
    let (mode, access) = modes;
    // Each claim has a class to itself: otherwise any volume that is large enough would do.
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": name }, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer" });
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    ok(cluster.client().create(classes, &class).await);
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": name },
        "spec": { "capacity": size, "accessModes": [access], "storageClassName": name,
            "volumeMode": mode, "persistentVolumeReclaimPolicy": "Retain",
            "local": { "path": path },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [hostname] }] }] } } } });
    let volumes = "/api/v1/persistentvolumes";
    ok(cluster.client().create(volumes, &volume).await);
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name },
        "spec": { "accessModes": [access], "storageClassName": name, "volumeMode": mode,
            "resources": { "requests": size } } });
    ok(cluster.client().create(CLAIMS, &claim).await);
}

async fn create(cluster: &Cluster, name: &str, script: &str, group: u32, volumes: &[&str]) {
    let block = |name: &&&str| name.starts_with("raw");
    let mounts = volumes.iter().filter(|name| !block(name));
    let mounts: Vec<_> = mounts
        .map(|name| json!({ "name": name, "mountPath": format!("/{name}") }))
        .collect();
    let devices = volumes.iter().filter(block);
    let devices: Vec<_> = devices
        .map(|name| json!({ "name": name, "devicePath": "/dev/data" }))
        .collect();
    let by_claim = volumes
        .iter()
        .map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } }));
    let more = json!({
        "securityContext": { "fsGroup": group },
        "volumes": by_claim.collect::<Vec<_>>(),
        "container": { "volumeMounts": mounts, "volumeDevices": devices },
    });
    let made: Value = serde_json::from_str(&pod(name, script, &more)).unwrap();
    ok(cluster.client().create(PODS, &made).await);
}

/// Waits for an event of a pod or a claim: its reason, and how its words begin.
async fn told(cluster: &Cluster, about: &str, reason: &str, message: &str) {
    let mut events = ok(cluster.client().watch(EVENTS).await);
    loop {
        let (_, event) = ok(events.next().await).expect("events are told");
        let said = event["message"].as_str().unwrap_or_default();
        let whose = event["involvedObject"]["name"] == about && event["reason"] == reason;
        if whose && said.starts_with(message) {
            return;
        }
    }
}

#[tokio::test]
#[ignore = "needs root, containerd, loop devices and the programs of a cluster: cargo verify"]
async fn local_volumes_of_every_kind() {
    let cluster = cluster().await;
    let mut node = cluster_node(&cluster).await;
    let root = node.dirs().root.clone();
    let dir = cluster.scratch().join("shared");
    ok(fs::create_dir_all(&dir));
    ok(fs::write(dir.join("file"), "kept"));
    let formatted = Disk::new(&cluster.scratch().join("formatted"));
    let raw = Disk::new(&cluster.scratch().join("raw"));
    let files = ("Filesystem", "ReadWriteOnce");
    volume(&cluster, "dir", &dir, files, "node").await;
    volume(&cluster, "disk", &formatted.0, files, "node").await;
    volume(&cluster, "raw", &raw.0, ("Block", "ReadWriteOnce"), "node").await;
    let one = ("Filesystem", "ReadWriteOncePod");
    ok(fs::create_dir_all(cluster.scratch().join("one")));
    volume(&cluster, "one", &cluster.scratch().join("one"), one, "node").await;
    volume(
        &cluster,
        "lost",
        &cluster.scratch().join("lost"),
        files,
        "node",
    )
    .await;

    // The scheduler chooses the node by the volumes, and then they are bound.
    let script = format!(
        "grep -q kept /dir/file && (test -e /disk/file || echo kept > /disk/file) && test -d /one && \
         dd if=/dev/zero of=/dev/data bs=4096 count=1 && {RUNS}"
    );
    create(
        &cluster,
        "first",
        &script,
        2000,
        &["dir", "disk", "raw", "one"],
    )
    .await;
    let first = ok(cluster.wait_pod_ready("first").await);
    assert_eq!(first["spec"]["nodeName"], "node");
    let global = root.join("plugins/kubernetes.io/local-volume/mounts/disk");
    assert_eq!(ok(fs::read_to_string(global.join("file"))).trim(), "kept");
    assert_eq!(ok(fs::metadata(&global)).gid(), 2000);
    assert_eq!(ok(fs::metadata(dir.join("file"))).gid(), 2000);

    // A second one shares; its group comes too late, and what is for one pod alone it must wait for.
    create(&cluster, "second", RUNS, 3000, &["dir", "disk"]).await;
    ok(cluster.wait_pod_ready("second").await);
    assert_eq!(ok(fs::metadata(&dir)).gid(), 2000);
    let mut late: Vec<String> = Vec::new();
    let mut events = ok(cluster.client().watch(EVENTS).await);
    while late.len() < 2 {
        let (_, event) = ok(events.next().await).expect("events are told");
        if event["reason"] == "AlreadyMountedVolume" {
            assert_eq!(event["involvedObject"]["name"], "second");
            late.push(event["message"].as_str().unwrap_or_default().to_owned());
        }
    }
    late.sort();
    let says = |name: &str| {
        format!(
            "The requested fsGroup is 3000, but the volume {name} has GID 2000. The volume may not be shareable."
        )
    };
    assert_eq!(late, [says("dir"), says("disk")]);

    // What is not there, and what is another node's, for a pod that nobody asked the scheduler for.
    create(&cluster, "third", RUNS, 2000, &["lost"]).await;
    let lost = cluster.scratch().join("lost");
    let why = format!(
        "MountVolume.NewMounter initialization failed for volume \"lost\" : path \"{}\" does not exist",
        lost.display()
    );
    told(&cluster, "third", "FailedMount", &why).await;
    ok(fs::create_dir_all(&lost));
    ok(cluster.wait_pod_ready("third").await);

    grows(&cluster, &mut node, &formatted, &global).await;

    // Another life of volume-manager, with the pods as they are.
    ok(node.kill("volume-manager").await);
    ok(node.wait_serving().await);
    one_pod_alone(&cluster).await;
    another_nodes(&cluster).await;

    for name in ["first", "second", "third", "stray", "heir"] {
        let now = json!({ "gracePeriodSeconds": 1 });
        let path = pod_path(name);
        if ok(cluster.client().get(&path).await).is_some() {
            ok(cluster.client().delete(&path, &now).await);
        }
        ok(cluster.wait_absent(&path).await);
    }
    assert!(!global.exists());
    let mounts = ok(fs::read_to_string("/proc/self/mountinfo"));
    assert!(!mounts.contains("local-volume"), "mounts are left");
    assert_eq!(ok(fs::read_to_string(dir.join("file"))), "kept");
    drop((formatted, raw));
    ok(node.remove());
    ok(cluster.remove());
}

/// Volumes that are larger, as whoever made them larger tells the cluster: a directory always is, and
/// a disk's file system follows where the machine lets it.
async fn grows(cluster: &Cluster, node: &mut Node, disk: &Disk, mounted: &Path) {
    disk.grow(cluster.scratch().join("formatted").as_path());
    let larger = json!({ "spec": { "capacity": { "storage": "16Mi" } } });
    let client = cluster.client();
    for name in ["dir", "raw", "disk"] {
        let volume = format!("/api/v1/persistentvolumes/{name}");
        ok(client.patch(&volume, Patch::Merge, &larger).await);
    }
    // A node may not watch them: another life of who asks for them asks at once.
    ok(node.kill("pod-config").await);
    ok(node.wait_in_step().await);
    for name in ["dir", "raw"] {
        grown(cluster, name).await;
    }
    if may_grow() {
        grown(cluster, "disk").await;
        let is = ok(rustix::fs::statvfs(mounted));
        assert!(is.f_blocks * is.f_frsize > 12 << 20, "{}", is.f_blocks);
    } else {
        let device = disk.0.display();
        let words = format!(
            "NodeExpandVolume.NodeExpandVolume failed for volume \"disk\" : resize of device {device} failed: exit status 1. resize2fs output: "
        );
        told(cluster, "first", "VolumeResizeFailed", &words).await;
    }
}

/// Waits until the claim is told, and people are.
async fn grown(cluster: &Cluster, name: &str) {
    let is_larger = |object: &Value| object["status"]["capacity"]["storage"] == "16Mi";
    let claim = format!("{CLAIMS}/{name}");
    ok(cluster
        .wait(&claim, "is as large as its volume", is_larger)
        .await);
    let words = format!("MountVolume.NodeExpandVolume succeeded for volume \"{name}\" node");
    for about in ["first", name] {
        told(cluster, about, "FileSystemResizeSuccessful", &words).await;
    }
}

/// Whether ext4 may be made larger while it is mounted: that takes CAP_SYS_RESOURCE.
fn may_grow() -> bool {
    let status = ok(fs::read_to_string("/proc/self/status"));
    let mut lines = status.lines();
    let has = lines.find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    ok(u64::from_str_radix(has.trim(), 16)) & (1 << 24) != 0
}

/// A pod waits for a volume that one pod alone may have, and gets it when that goes. It is bound to
/// its node by hand: the scheduler would not.
async fn one_pod_alone(cluster: &Cluster) {
    let more = json!({
        "nodeName": "node",
        "volumes": [{ "name": "one", "persistentVolumeClaim": { "claimName": "one" } }],
        "container": { "volumeMounts": [{ "name": "one", "mountPath": "/one" }] },
    });
    let heir: Value = serde_json::from_str(&pod("heir", RUNS, &more)).unwrap();
    ok(cluster.client().create(PODS, &heir).await);
    let why = "MountVolume.SetUp failed for volume \"one\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    told(cluster, "heir", "FailedMount", why).await;
    let now = json!({ "gracePeriodSeconds": 1 });
    ok(cluster.client().delete(&pod_path("first"), &now).await);
    ok(cluster.wait_pod_ready("heir").await);
}

async fn another_nodes(cluster: &Cluster) {
    let dir = cluster.scratch().join("far");
    let files = ("Filesystem", "ReadWriteOnce");
    volume(cluster, "far", &dir, files, "elsewhere").await;
    // As the volume's controller binds what a scheduler chose.
    let bound =
        json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "node" } } });
    let merge = Patch::Merge;
    let claim = format!("{CLAIMS}/far");
    ok(cluster.client().patch(&claim, merge, &bound).await);
    let is_bound = |object: &Value| object["status"]["phase"] == "Bound";
    let taken = json!({ "spec": { "volumeName": "far" } });
    ok(cluster.client().patch(&claim, merge, &taken).await);
    ok(cluster.wait(&claim, "is bound", is_bound).await);
    let more = json!({
        "nodeName": "node",
        "volumes": [{ "name": "far", "persistentVolumeClaim": { "claimName": "far" } }],
        "container": { "volumeMounts": [{ "name": "far", "mountPath": "/far" }] },
    });
    let stray: Value = serde_json::from_str(&pod("stray", RUNS, &more)).unwrap();
    ok(cluster.client().create(PODS, &stray).await);
    let why =
        "MountVolume.NodeAffinity check failed for volume \"far\" : no matching NodeSelectorTerms";
    told(cluster, "stray", "FailedMount", why).await;
}
