//! Local persistent volumes with a real control plane: delayed binding, directories, disks with and
//! without a file system, sharing, and failures. Loop devices act as disks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::cluster::{Patch, is_ready, pod_path};
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

    /// Grows the disk to 16 MiB.
    fn grow(&self, file: &Path) {
        ok(ok(fs::File::options().write(true).open(file)).set_len(16 << 20));
        let exit_status = Command::new("losetup").arg("-c").arg(&self.0).status();
        assert!(ok(exit_status).success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// A local volume on nodes with this label, and a claim for it.
async fn volume(cluster: &Cluster, name: &str, path: &Path, modes: (&str, &str), hostname: &str) {
    let size = json!({ "storage": "8Mi" });
    let (mode, access) = modes;
    // One storage class per claim, otherwise any volume that is large enough would match.
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

/// Waits for an event of a pod or a claim by its reason and the start of its message.
async fn wait_for_event(cluster: &Cluster, object_name: &str, reason: &str, message: &str) {
    let mut events = ok(cluster.client().watch(EVENTS).await);
    loop {
        let (_, event) = ok(events.next().await).expect("an open watch of events");
        let message_text = event["message"].as_str().unwrap_or_default();
        let is_subject =
            event["involvedObject"]["name"] == object_name && event["reason"] == reason;
        if is_subject && message_text.starts_with(message) {
            return;
        }
    }
}

#[tokio::test]
#[ignore = "needs root, containerd, loop devices and the programs of a cluster: cargo verify"]
async fn local_persistent_volumes() {
    let mut steps = Steps::new();
    let cluster = cluster().await;
    let mut node = cluster_node(&cluster).await;
    let root = node.dirs().root.clone();
    let dir = cluster.scratch().join("shared");
    ok(fs::create_dir_all(&dir));
    ok(fs::write(dir.join("file"), "kept"));
    let formatted = Disk::new(&cluster.scratch().join("formatted"));
    let raw = Disk::new(&cluster.scratch().join("raw"));
    let files = ("Filesystem", "ReadWriteOnce");
    steps
        .run("volume", volume(&cluster, "dir", &dir, files, "node"))
        .await;
    steps
        .run(
            "volume",
            volume(&cluster, "disk", &formatted.0, files, "node"),
        )
        .await;
    steps
        .run(
            "volume",
            volume(&cluster, "raw", &raw.0, ("Block", "ReadWriteOnce"), "node"),
        )
        .await;
    let one = ("Filesystem", "ReadWriteOncePod");
    ok(fs::create_dir_all(cluster.scratch().join("one")));
    steps
        .run(
            "volume",
            volume(&cluster, "one", &cluster.scratch().join("one"), one, "node"),
        )
        .await;
    steps
        .run(
            "volume",
            volume(
                &cluster,
                "lost",
                &cluster.scratch().join("lost"),
                files,
                "node",
            ),
        )
        .await;

    // The scheduler selects the node by the volumes, then they are bound.
    let script = format!(
        "grep -q kept /dir/file && (test -e /disk/file || echo kept > /disk/file) && test -d /one && \
         dd if=/dev/zero of=/dev/data bs=4096 count=1 && {RUNS}"
    );
    steps
        .run(
            "create",
            create(
                &cluster,
                "first",
                &script,
                2000,
                &["dir", "disk", "raw", "one"],
            ),
        )
        .await;
    let first = ok(cluster.wait_pod_ready("first").await);
    assert_eq!(first["spec"]["nodeName"], "node");
    let global = root.join("plugins/kubernetes.io/local-volume/mounts/disk");
    assert_eq!(ok(fs::read_to_string(global.join("file"))).trim(), "kept");
    assert_eq!(ok(fs::metadata(&global)).gid(), 2000);
    assert_eq!(ok(fs::metadata(dir.join("file"))).gid(), 2000);

    // A second pod shares the volumes; its fsGroup has no effect, and it waits for ReadWriteOncePod.
    steps
        .run(
            "create",
            create(&cluster, "second", RUNS, 3000, &["dir", "disk"]),
        )
        .await;
    ok(cluster.wait_pod_ready("second").await);
    assert_eq!(ok(fs::metadata(&dir)).gid(), 2000);
    let mut late: Vec<String> = Vec::new();
    let mut events = ok(cluster.client().watch(EVENTS).await);
    while late.len() < 2 {
        let (_, event) = ok(events.next().await).expect("an open watch of events");
        if event["reason"] == "AlreadyMountedVolume" {
            assert_eq!(event["involvedObject"]["name"], "second");
            late.push(event["message"].as_str().unwrap_or_default().to_owned());
        }
    }
    late.sort();
    let not_found = |name: &str| {
        format!(
            "The requested fsGroup is 3000, but the volume {name} has GID 2000. The volume may not be shareable."
        )
    };
    assert_eq!(late, [not_found("dir"), not_found("disk")]);

    steps
        .run("annotation changes", annotation_changes(&cluster))
        .await;

    // A missing directory and another node's volume, for pods that bypass the scheduler.
    steps
        .run("create", create(&cluster, "third", RUNS, 2000, &["lost"]))
        .await;
    let lost = cluster.scratch().join("lost");
    let expected = format!(
        "MountVolume.NewMounter initialization failed for volume \"lost\" : path \"{}\" does not exist",
        lost.display()
    );
    steps
        .run(
            "wait for event",
            wait_for_event(&cluster, "third", "FailedMount", &expected),
        )
        .await;
    ok(fs::create_dir_all(&lost));
    ok(cluster.wait_pod_ready("third").await);

    steps
        .run(
            "volumes are expanded",
            volumes_are_expanded(&cluster, &mut node, &formatted, &global),
        )
        .await;

    // Restart of volume-manager with running pods.
    ok(node.kill("volume-manager").await);
    ok(node.wait_serving().await);
    steps
        .run("read write once pod", read_write_once_pod(&cluster))
        .await;
    steps
        .run("volume of another node", volume_of_another_node(&cluster))
        .await;

    for name in ["first", "second", "noted", "third", "stray", "heir"] {
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
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// A container gets the volume of a claim again after an annotation has changed that a volume of its pod shows.
async fn annotation_changes(cluster: &Cluster) {
    let dir = cluster.scratch().join("noted");
    ok(fs::create_dir_all(&dir));
    // Used by this pod alone: the others keep what is known of theirs.
    let files = ("Filesystem", "ReadWriteOnce");
    volume(cluster, "noted", &dir, files, "node").await;
    let script = format!(
        "until grep -q two /pod/note; do sleep 0.1; done; \
         test -e /dir/again || {{ touch /dir/again; exit 1; }}; {RUNS}"
    );
    let note = json!({ "path": "note",
        "fieldRef": { "fieldPath": "metadata.annotations['note']" } });
    let more = json!({
        "volumes": [
            { "name": "dir", "persistentVolumeClaim": { "claimName": "noted" } },
            { "name": "pod", "downwardAPI": { "items": [note] } },
        ],
        "container": { "volumeMounts": [
            { "name": "dir", "mountPath": "/dir" }, { "name": "pod", "mountPath": "/pod" }] },
    });
    let mut noted: Value = serde_json::from_str(&pod("noted", &script, &more)).unwrap();
    noted["metadata"]["annotations"] = json!({ "note": "one" });
    let client = cluster.client();
    ok(client.create(PODS, &noted).await);
    ok(cluster.wait_pod_ready("noted").await);
    let change = json!({ "metadata": { "annotations": { "note": "two" } } });
    ok(client
        .patch(&pod_path("noted"), Patch::Merge, &change)
        .await);
    let runs_again =
        |pod: &Value| is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1;
    ok(cluster
        .wait(&pod_path("noted"), "runs again", runs_again)
        .await);
}

/// Expansion of volumes whose PersistentVolume grew: directories need nothing, the file system of a
/// disk is grown where the machine permits it.
async fn volumes_are_expanded(cluster: &Cluster, node: &mut Node, disk: &Disk, mounted: &Path) {
    disk.grow(cluster.scratch().join("formatted").as_path());
    let larger = json!({ "spec": { "capacity": { "storage": "16Mi" } } });
    let client = cluster.client();
    for name in ["dir", "raw", "disk"] {
        let volume = format!("/api/v1/persistentvolumes/{name}");
        ok(client.patch(&volume, Patch::Merge, &larger).await);
    }
    // Nodes may not watch PersistentVolumes: a restart of pod-config reads them at once.
    ok(node.kill("pod-config").await);
    ok(node.wait_in_step().await);
    for name in ["dir", "raw"] {
        wait_expanded(cluster, name).await;
    }
    if can_resize_ext4() {
        wait_expanded(cluster, "disk").await;
        let is = ok(rustix::fs::statvfs(mounted));
        assert!(is.f_blocks * is.f_frsize > 12 << 20, "{}", is.f_blocks);
    } else {
        let device = disk.0.display();
        let expected_message = format!(
            "NodeExpandVolume.NodeExpandVolume failed for volume \"disk\" : resize of device {device} failed: exit status 1. resize2fs output: "
        );
        wait_for_event(cluster, "first", "VolumeResizeFailed", &expected_message).await;
    }
}

/// Waits for the claim's status and the event.
async fn wait_expanded(cluster: &Cluster, name: &str) {
    let is_larger = |object: &Value| object["status"]["capacity"]["storage"] == "16Mi";
    let claim = format!("{CLAIMS}/{name}");
    ok(cluster
        .wait(&claim, "is as large as its volume", is_larger)
        .await);
    let expected_message =
        format!("MountVolume.NodeExpandVolume succeeded for volume \"{name}\" node");
    for object_name in ["first", name] {
        wait_for_event(
            cluster,
            object_name,
            "FileSystemResizeSuccessful",
            &expected_message,
        )
        .await;
    }
}

/// Whether a mounted ext4 may be grown, which takes CAP_SYS_RESOURCE.
fn can_resize_ext4() -> bool {
    let status = ok(fs::read_to_string("/proc/self/status"));
    let mut lines = status.lines();
    let capabilities = lines.find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    ok(u64::from_str_radix(capabilities.trim(), 16)) & (1 << 24) != 0
}

/// A pod waits for a ReadWriteOncePod volume until the other pod is gone. The test binds it, because
/// the scheduler would not.
async fn read_write_once_pod(cluster: &Cluster) {
    let more = json!({
        "nodeName": "node",
        "volumes": [{ "name": "one", "persistentVolumeClaim": { "claimName": "one" } }],
        "container": { "volumeMounts": [{ "name": "one", "mountPath": "/one" }] },
    });
    let heir: Value = serde_json::from_str(&pod("heir", RUNS, &more)).unwrap();
    ok(cluster.client().create(PODS, &heir).await);
    let expected = "MountVolume.SetUp failed for volume \"one\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    wait_for_event(cluster, "heir", "FailedMount", expected).await;
    let now = json!({ "gracePeriodSeconds": 1 });
    ok(cluster.client().delete(&pod_path("first"), &now).await);
    ok(cluster.wait_pod_ready("heir").await);
}

async fn volume_of_another_node(cluster: &Cluster) {
    let dir = cluster.scratch().join("far");
    let files = ("Filesystem", "ReadWriteOnce");
    volume(cluster, "far", &dir, files, "elsewhere").await;
    // As the persistent volume controller binds the scheduler's choice.
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
    let expected =
        "MountVolume.NodeAffinity check failed for volume \"far\" : no matching NodeSelectorTerms";
    wait_for_event(cluster, "stray", "FailedMount", expected).await;
}
