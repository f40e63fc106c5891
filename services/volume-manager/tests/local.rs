//! Local persistent volumes: directories and disks of the node. Needs root, and loop devices.

mod common;
#[path = "local/resize.rs"]
mod resize;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Manager, Root, TIMEOUT, cluster_pod, eventually, is_root, message_is, run};
use polylet_volume_manager::core::reference_key::ObjectKind::{Claim, PersistentVolume};
use polylet_wire::volume::v1::{PodVolumes, ResizeStatus, WatchClaimSizesResponse};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The claim `c`, bound to `pv`.
async fn bind(manager: &Manager, spec: Value) {
    claim(manager, "0").await;
    persistent(manager, spec).await;
}

async fn claim(manager: &Manager, size: &str) {
    let status = json!({"phase": "Bound", "capacity": {"storage": size}});
    let claim = json!({"metadata": {"uid": "c1"}, "spec": {"volumeName": "pv"}, "status": status});
    manager.set_cluster_object(Claim, "ns", "c", claim).await;
}

async fn persistent(manager: &Manager, spec: Value) {
    let mut spec = spec;
    spec["claimRef"] = json!({"uid": "c1"});
    let pv = json!({"metadata": {"name": "pv"}, "spec": spec});
    manager
        .set_cluster_object(PersistentVolume, "", "pv", pv)
        .await;
}

fn claim_pod(uid: &str, group: u32, read_only: bool) -> Value {
    let claim = json!({"claimName": "c", "readOnly": read_only});
    let mut api = cluster_pod(uid, json!({"name": "v", "persistentVolumeClaim": claim}));
    api["spec"]["securityContext"] = json!({"fsGroup": group});
    api
}

/// A loop device of 8 MiB, removed with the test.
struct Disk {
    file: tempfile::NamedTempFile,
    device: PathBuf,
}

impl Disk {
    /// `None` without loop devices.
    fn new() -> Option<Self> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 << 20).unwrap();
        let made = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(file.path())
            .output();
        let made = made.ok().filter(|made| made.status.success())?;
        let device = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
        Some(Self { file, device })
    }

    fn resize(&self, mebibytes: u64) {
        self.file.as_file().set_len(mebibytes << 20).unwrap();
        let status = Command::new("losetup").arg("-c").arg(&self.device).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
        assert!(self.file.path().exists());
    }
}

fn volume_dir(root: &Root, uid: &str) -> PathBuf {
    root.pod(uid).join("volumes/kubernetes.io~local-volume/pv")
}

fn options(at: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut lines = table.lines().map(|line| line.split(' '));
    let found = lines.find(|line| line.clone().nth(4) == at.to_str());
    found
        .and_then(|mut line| line.nth(5))
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_disk_is_formatted_once_and_shared_by_two_pods() {
    let Some(disk) = Some(()).filter(|()| is_root()).and_then(|()| Disk::new()) else {
        return;
    };
    run(async {
        let root = Root::new();
        let global = root.layout().local_disk("pv");
        let manager = Manager::start(&root, "d");
        manager.apply(&claim_pod("u1", 9, false)).await.unwrap();
        // A missing disk, and an empty one that is mounted read-only.
        bind(&manager, json!({"local": {"path": "/dev/no-such-disk"}})).await;
        let message = "MountVolume.NewMounter initialization failed for volume \"pv\" : path \"/dev/no-such-disk\" does not exist";
        manager.wait_for("u1", message_is(message)).await;
        let spec = json!({"local": {"path": disk.device}, "mountOptions": ["noatime"]});
        manager.apply(&claim_pod("u0", 9, true)).await.unwrap();
        manager.remove("u1").await;
        bind(&manager, spec.clone()).await;
        manager.wait_for("u0", |pod: Option<&PodVolumes>| {
            pod.is_some_and(|pod| pod.volumes.iter().any(|v| {
                v.message.starts_with("MountVolume.MountDevice failed for volume \"pv\" : local: failed to mount device")
                    && v.message.contains("as we are manipulating it in read-only mode")
            }))
        })
        .await;
        manager.remove("u0").await;

        manager.apply(&claim_pod("u1", 9, false)).await.unwrap();
        bind(&manager, spec.clone()).await;
        manager.wait_mounted("u1").await;
        fs::write(volume_dir(&root, "u1").join("file"), "kept").unwrap();
        let is = fs::metadata(volume_dir(&root, "u1")).unwrap();
        assert_eq!((is.gid(), is.mode() & 0o7777), (9, 0o2775));
        assert!(options(&volume_dir(&root, "u1")).contains("noatime"));
        // A second pod with another group: ownership stays, and an event is emitted.
        manager.apply(&claim_pod("u2", 10, true)).await.unwrap();
        manager.wait_mounted("u2").await;
        assert_eq!(
            fs::read_to_string(volume_dir(&root, "u2").join("file")).unwrap(),
            "kept"
        );
        assert!(options(&volume_dir(&root, "u2")).starts_with("ro,"));
        assert!(!options(&volume_dir(&root, "u1")).starts_with("ro,"));
        assert_eq!(fs::metadata(volume_dir(&root, "u2")).unwrap().gid(), 9);
        let before = root.mounts();
        assert_eq!(before.len(), 3, "{before:?}");
        manager.stop();

        // A restarted process mounts nothing; the disk is unmounted with its last pod.
        let manager = Manager::start(&root, "e");
        manager.apply(&claim_pod("u1", 9, false)).await.unwrap();
        manager.apply(&claim_pod("u2", 9, true)).await.unwrap();
        bind(&manager, spec.clone()).await;
        manager.wait_mounted("u1").await;
        manager.wait_mounted("u2").await;
        assert_eq!(root.mounts(), before);
        manager.remove("u1").await;
        assert!(global.join("file").exists());
        manager.remove("u2").await;
        assert!(root.mounts().is_empty() && !global.exists());

        // The content stays.
        manager.apply(&claim_pod("u3", 11, false)).await.unwrap();
        bind(&manager, spec).await;
        manager.wait_mounted("u3").await;
        let file = volume_dir(&root, "u3").join("file");
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
        assert_eq!(fs::metadata(&file).unwrap().gid(), 11);
        manager.remove("u3").await;
    });
}

#[test]
fn a_disk_with_another_file_system_is_reported() {
    let Some(disk) = Some(()).filter(|()| is_root()).and_then(|()| Disk::new()) else {
        return;
    };
    run(async {
        let made = Command::new("mkfs.ext4")
            .args(["-q"])
            .arg(&disk.device)
            .status();
        assert!(made.unwrap().success());
        let root = Root::new();
        let manager = Manager::start(&root, "d");
        manager.apply(&claim_pod("u1", 9, false)).await.unwrap();
        bind(
            &manager,
            json!({"local": {"path": disk.device, "fsType": "vfat"}}),
        )
        .await;
        manager
            .wait_for("u1", |pod: Option<&PodVolumes>| {
                pod.is_some_and(|pod| {
                    pod.volumes
                        .iter()
                        .any(|v| v.message.contains("mount failed"))
                })
            })
            .await;
        let events = manager.events.borrow().clone();
        let prefix = "MountVolume failed for volume \"pv\" local: failed to mount device";
        assert!(
            events.iter().any(|event| event.starts_with(prefix)),
            "{events:?}"
        );
        manager.remove("u1").await;
    });
}

#[test]
fn ownership_follows_the_first_pod() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        fs::write(disk.path().join("file"), "mine").unwrap();
        let manager = Manager::start(&root, "d");
        manager.apply(&claim_pod("u1", 9, false)).await.unwrap();
        bind(&manager, json!({"local": {"path": disk.path()}})).await;
        manager.wait_mounted("u1").await;
        manager.apply(&claim_pod("u2", 10, false)).await.unwrap();
        manager.wait_mounted("u2").await;
        let gid = || fs::metadata(disk.path().join("file")).unwrap().gid();
        assert_eq!(gid(), 9);
        let message = "The requested fsGroup is 10, but the volume pv has GID 9. The volume may not be shareable.";
        manager.wait_event(message).await;
        for uid in ["u1", "u2"] {
            manager.remove(uid).await;
        }
        // The next pod is the first again.
        manager.apply(&claim_pod("u3", 10, false)).await.unwrap();
        bind(&manager, json!({"local": {"path": disk.path()}})).await;
        manager.wait_mounted("u3").await;
        assert_eq!(gid(), 10);
        manager.remove("u3").await;
    });
}

#[test]
fn a_local_volume_stays_mounted_across_a_restart() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        fs::write(disk.path().join("file"), "mine").unwrap();
        let api = claim_pod("u1", 9, false);
        let manager = Manager::start(&root, "d");
        manager.apply(&api).await.unwrap();
        bind(&manager, json!({"local": {"path": disk.path()}})).await;
        manager.wait_mounted("u1").await;
        let file = volume_dir(&root, "u1").join("file");
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
        let file = disk.path().join("file").metadata().unwrap();
        assert_eq!((file.gid(), file.mode() & 0o7777), (9, 0o664));
        let mounts = root.mounts();
        assert_eq!(mounts.len(), 1, "{mounts:?}");
        // Stored in the background.
        let metadata = root.pod("u1").join("plugins/polylet.dev~volume/pod.json");
        eventually("the pod's metadata", || metadata.exists()).await;
        manager.stop();
        // The claim has not been received: the mount is known all the same.
        let manager = Manager::start(&root, "e");
        manager.apply(&api).await.unwrap();
        manager.wait_mounted("u1").await;
        assert_eq!(root.mounts(), mounts);
        manager.remove("u1").await;
        assert!(root.mounts().is_empty());
        assert_eq!(
            fs::read_to_string(disk.path().join("file")).unwrap(),
            "mine"
        );
    });
}
