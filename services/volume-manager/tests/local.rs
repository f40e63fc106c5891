//! Local persistent volumes: directories and disks of the node. Needs root, and loop devices.

mod common;
#[path = "local/growth.rs"]
mod growth;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{Life, Root, eventually, is_root, of_cluster, run};
use polylet_volume_manager::core::objects::ObjectKind::{Claim, Persistent};
use polylet_wire::volume::v1::{ClaimGrowth, WatchClaimSizesResponse};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The claim `c`, bound to `pv`.
async fn bound(life: &Life, spec: Value) {
    claim(life, "0").await;
    persistent(life, spec).await;
}

async fn claim(life: &Life, size: &str) {
    let status = json!({"phase": "Bound", "capacity": {"storage": size}});
    let claim = json!({"metadata": {"uid": "c1"}, "spec": {"volumeName": "pv"}, "status": status});
    life.tell(Claim, "ns", "c", claim).await;
}

async fn persistent(life: &Life, spec: Value) {
    let mut spec = spec;
    spec["claimRef"] = json!({"uid": "c1"});
    let pv = json!({"metadata": {"name": "pv"}, "spec": spec});
    life.tell(Persistent, "", "pv", pv).await;
}

fn by_claim(uid: &str, group: u32, read_only: bool) -> Value {
    let claim = json!({"claimName": "c", "readOnly": read_only});
    let mut api = of_cluster(uid, json!({"name": "v", "persistentVolumeClaim": claim}));
    api["spec"]["securityContext"] = json!({"fsGroup": group});
    api
}

/// A disk of 8 MiB; it goes with the test.
struct Disk {
    file: tempfile::NamedTempFile,
    device: PathBuf,
}

impl Disk {
    /// Where there are loop devices.
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

    fn grow(&self, mebibytes: u64) {
        self.file.as_file().set_len(mebibytes << 20).unwrap();
        let told = Command::new("losetup").arg("-c").arg(&self.device).status();
        assert!(told.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
        assert!(self.file.path().exists());
    }
}

fn there(root: &Root, uid: &str) -> PathBuf {
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
fn a_disk_is_given_a_file_system_once_and_shared_by_two_pods() {
    let Some(disk) = Some(()).filter(|()| is_root()).and_then(|()| Disk::new()) else {
        return;
    };
    run(async {
        let root = Root::new();
        let global = root.layout().local_disk("pv");
        let life = Life::start(&root, "d");
        life.apply(&by_claim("u1", 9, false)).await.unwrap();
        // A disk that is not there, and one that must not be written, but has no file system.
        bound(&life, json!({"local": {"path": "/dev/no-such-disk"}})).await;
        let says = |why: &'static str| {
            move |pod: Option<&polylet_wire::volume::v1::PodVolumes>| {
                pod.is_some_and(|pod| pod.volumes.iter().any(|v| v.message == why))
            }
        };
        let why = "MountVolume.NewMounter initialization failed for volume \"pv\" : path \"/dev/no-such-disk\" does not exist";
        life.until("u1", says(why)).await;
        let spec = json!({"local": {"path": disk.device}, "mountOptions": ["noatime"]});
        life.apply(&by_claim("u0", 9, true)).await.unwrap();
        life.release("u1").await.unwrap();
        life.gone("u1").await;
        bound(&life, spec.clone()).await;
        life.until("u0", |pod: Option<&polylet_wire::volume::v1::PodVolumes>| {
            pod.is_some_and(|pod| pod.volumes.iter().any(|v| {
                v.message.starts_with("MountVolume.MountDevice failed for volume \"pv\" : local: failed to mount device")
                    && v.message.contains("as we are manipulating it in read-only mode")
            }))
        })
        .await;
        life.release("u0").await.unwrap();
        life.gone("u0").await;

        life.apply(&by_claim("u1", 9, false)).await.unwrap();
        bound(&life, spec.clone()).await;
        life.mounted("u1").await;
        fs::write(there(&root, "u1").join("file"), "kept").unwrap();
        let is = fs::metadata(there(&root, "u1")).unwrap();
        assert_eq!((is.gid(), is.mode() & 0o7777), (9, 0o2775));
        assert!(options(&there(&root, "u1")).contains("noatime"));
        // Another with a group of its own: the first one's stays, and that is told.
        life.apply(&by_claim("u2", 10, true)).await.unwrap();
        life.mounted("u2").await;
        assert_eq!(
            fs::read_to_string(there(&root, "u2").join("file")).unwrap(),
            "kept"
        );
        assert!(options(&there(&root, "u2")).starts_with("ro,"));
        assert!(!options(&there(&root, "u1")).starts_with("ro,"));
        assert_eq!(fs::metadata(there(&root, "u2")).unwrap().gid(), 9);
        let before = root.mounts();
        assert_eq!(before.len(), 3, "{before:?}");
        life.end();

        // The next process mounts nothing, and the disk goes with its last pod.
        let life = Life::start(&root, "e");
        life.apply(&by_claim("u1", 9, false)).await.unwrap();
        life.apply(&by_claim("u2", 9, true)).await.unwrap();
        bound(&life, spec.clone()).await;
        life.mounted("u1").await;
        life.mounted("u2").await;
        assert_eq!(root.mounts(), before);
        life.release("u1").await.unwrap();
        life.gone("u1").await;
        assert!(global.join("file").exists());
        life.release("u2").await.unwrap();
        life.gone("u2").await;
        assert!(root.mounts().is_empty() && !global.exists());

        // What is on it stays.
        life.apply(&by_claim("u3", 11, false)).await.unwrap();
        bound(&life, spec).await;
        life.mounted("u3").await;
        let file = there(&root, "u3").join("file");
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
        assert_eq!(fs::metadata(&file).unwrap().gid(), 11);
        life.release("u3").await.unwrap();
        life.gone("u3").await;
    });
}

#[test]
fn a_disk_with_another_file_system_is_told_of() {
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
        let life = Life::start(&root, "d");
        life.apply(&by_claim("u1", 9, false)).await.unwrap();
        bound(
            &life,
            json!({"local": {"path": disk.device, "fsType": "vfat"}}),
        )
        .await;
        life.until(
            "u1",
            |pod: Option<&polylet_wire::volume::v1::PodVolumes>| {
                pod.is_some_and(|pod| {
                    pod.volumes
                        .iter()
                        .any(|v| v.message.contains("mount failed"))
                })
            },
        )
        .await;
        let said = life.notices.borrow().clone();
        let first = "MountVolume failed for volume \"pv\" local: failed to mount device";
        assert!(said.iter().any(|said| said.starts_with(first)), "{said:?}");
        life.release("u1").await.unwrap();
        life.gone("u1").await;
    });
}

#[test]
fn the_group_of_a_directory_is_its_first_pods() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        fs::write(disk.path().join("file"), "mine").unwrap();
        let life = Life::start(&root, "d");
        life.apply(&by_claim("u1", 9, false)).await.unwrap();
        bound(&life, json!({"local": {"path": disk.path()}})).await;
        life.mounted("u1").await;
        life.apply(&by_claim("u2", 10, false)).await.unwrap();
        life.mounted("u2").await;
        let gid = || fs::metadata(disk.path().join("file")).unwrap().gid();
        assert_eq!(gid(), 9);
        let told = "The requested fsGroup is 10, but the volume pv has GID 9. The volume may not be shareable.";
        assert!(
            life.notices.borrow().iter().any(|notice| notice == told),
            "{:?}",
            life.notices.borrow()
        );
        for uid in ["u1", "u2"] {
            life.release(uid).await.unwrap();
            life.gone(uid).await;
        }
        // The next is the first again.
        life.apply(&by_claim("u3", 10, false)).await.unwrap();
        bound(&life, json!({"local": {"path": disk.path()}})).await;
        life.mounted("u3").await;
        assert_eq!(gid(), 10);
        life.release("u3").await.unwrap();
        life.gone("u3").await;
    });
}

#[test]
fn a_local_persistent_volume_is_mounted_and_outlives_a_restart() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        fs::write(disk.path().join("file"), "mine").unwrap();
        let api = by_claim("u1", 9, false);
        let life = Life::start(&root, "d");
        life.apply(&api).await.unwrap();
        bound(&life, json!({"local": {"path": disk.path()}})).await;
        life.mounted("u1").await;
        let file = there(&root, "u1").join("file");
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
        let file = disk.path().join("file").metadata().unwrap();
        assert_eq!((file.gid(), file.mode() & 0o7777), (9, 0o664));
        let mounts = root.mounts();
        assert_eq!(mounts.len(), 1, "{mounts:?}");
        // Written aside of everything else.
        let note = root.pod("u1").join("plugins/polylet.dev~volume/pod.json");
        eventually("the pod's note", || note.exists()).await;
        life.end();
        // Nobody tells what the claim is bound to: what is mounted is known all the same.
        let life = Life::start(&root, "e");
        life.apply(&api).await.unwrap();
        life.mounted("u1").await;
        assert_eq!(root.mounts(), mounts);
        life.release("u1").await.unwrap();
        life.gone("u1").await;
        assert!(root.mounts().is_empty());
        assert_eq!(
            fs::read_to_string(disk.path().join("file")).unwrap(),
            "mine"
        );
    });
}
