//! Volumes on file systems that never answer, and large ones. Needs root and FUSE.

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{Manager, Root, cluster_pod, is_root, pod, run};
use polylet_harness::HungFuse;
use polylet_kit::CancellationToken;
use polylet_kit::subprocess::SubprocessError;
use polylet_volume_manager::core::layout::{self, VolumeId};
use polylet_volume_manager::core::reference_key::ObjectKind::{Claim, PersistentVolume};
use polylet_volume_manager::subprocess::Subprocesses;
use polylet_volume_manager::volume::fs_group::SetOwnershipTask;
use polylet_volume_manager::volume::removal::RemoveVolumeTask;
use polylet_volume_manager::volume::tear_down::unmount_all;
use polylet_wire::volume::v1::PodVolumes;
use serde_json::{Value, json};

/// More than the service has threads for blocking work.
const HUNG: usize = 17;

fn subprocesses(deadline: Duration) -> Subprocesses {
    let binary = env!("CARGO_BIN_EXE_polylet-volume-manager");
    Subprocesses::new(&polylet_volume_manager::DESCRIPTOR)
        .with_binary_and_deadline(binary, deadline)
}

async fn bind(manager: &Manager, number: usize, spec: Value) {
    let (claim, volume) = (format!("c{number}"), format!("pv{number}"));
    let mut spec = spec;
    spec["claimRef"] = json!({"uid": claim});
    let status = json!({"phase": "Bound", "capacity": {"storage": "0"}});
    let object =
        json!({"metadata": {"uid": claim}, "spec": {"volumeName": volume}, "status": status});
    manager
        .set_cluster_object(Claim, "ns", &claim, object)
        .await;
    let object = json!({"metadata": {"name": volume}, "spec": spec});
    manager
        .set_cluster_object(PersistentVolume, "", &volume, object)
        .await;
}

fn claim_pod(number: usize) -> Value {
    let claim = json!({"claimName": format!("c{number}")});
    let volume = json!({"name": "v", "persistentVolumeClaim": claim});
    let mut api = cluster_pod(&format!("u{number}"), volume);
    api["spec"]["securityContext"] = json!({"fsGroup": 7});
    api
}

fn has_message(text: &'static str) -> impl Fn(Option<&PodVolumes>) -> bool {
    move |pod| pod.is_some_and(|pod| pod.volumes.iter().any(|v| v.message.contains(text)))
}

#[test]
fn hung_volumes_delay_no_other_pod() {
    if !HungFuse::is_available() {
        return;
    }
    run(async {
        let disk = tempfile::tempdir().unwrap();
        let hung: Vec<HungFuse> = (0..HUNG)
            .map(|number| {
                let at = disk.path().join(number.to_string());
                fs::create_dir(&at).unwrap();
                HungFuse::mount(&at).unwrap()
            })
            .collect();
        let root = Root::new();
        let manager = Manager::with_deadline(&root, "d", Duration::from_secs(4));
        for (number, hung) in hung.iter().enumerate() {
            let spec = match number % 2 {
                0 => json!({"local": {"path": hung.mount_point()}}),
                _ => json!({"hostPath": {"path": hung.mount_point(), "type": "Directory"}}),
            };
            manager.apply(&claim_pod(number)).await.unwrap();
            bind(&manager, number, spec).await;
        }
        let began = Instant::now();
        let volumes = json!([
            {"name": "tmp", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ]);
        manager.apply(&pod("healthy", volumes)).await.unwrap();
        manager.wait_mounted("healthy").await;
        manager.remove("healthy").await;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
        // Each is told, retried, and given up with its pod.
        manager
            .wait_for("u0", has_message("no answer within 4 s"))
            .await;
        for number in 0..HUNG {
            manager.remove(&format!("u{number}")).await;
        }
        assert!(root.mounts().is_empty(), "{:?}", root.mounts());
    });
}

#[test]
fn a_change_of_ownership_that_hangs_is_killed_and_others_go_on() {
    if !HungFuse::is_available() {
        return;
    }
    run(async {
        let disk = tempfile::tempdir().unwrap();
        let task = |name: &str| SetOwnershipTask {
            path: disk.path().join(name),
            gid: 7,
            on_root_mismatch: false,
        };
        for name in ["hung", "healthy"] {
            fs::create_dir(disk.path().join(name)).unwrap();
        }
        let _hung = HungFuse::mount_unkillable(&disk.path().join("hung")).unwrap();
        let pool = subprocesses(Duration::from_secs(2));
        let cancel = CancellationToken::new();
        let (stuck, other) = (task("hung"), task("healthy"));
        let walk = |task| pool.walk("u1", task, &cancel, |_| {});
        let (stuck_done, other_done) = tokio::join!(walk(&stuck), walk(&other));
        assert!(
            matches!(stuck_done, Err(SubprocessError::Deadline(2))),
            "{stuck_done:?}"
        );
        other_done.unwrap().unwrap();
        // The kernel does not let the killed child go: there is no second one beside it.
        let again = walk(&stuck).await;
        assert!(
            matches!(again, Err(SubprocessError::StillRunning)),
            "{again:?}"
        );
    });
}

#[test]
fn a_mount_that_does_not_answer_is_unmounted_by_force() {
    if !HungFuse::is_available() {
        return;
    }
    run(async {
        let disk = tempfile::tempdir().unwrap();
        let at = disk.path().join("hung");
        fs::create_dir(&at).unwrap();
        let mut hung = HungFuse::mount(&at).unwrap();
        hung.disconnect();
        unmount_all(disk.path(), "u1", &subprocesses(Duration::from_secs(5)))
            .await
            .unwrap();
        // Nothing is mounted there any more.
        fs::remove_dir(&at).unwrap();
    });
}

#[test]
fn a_large_volume_is_deleted_by_a_child_process() {
    run(async {
        let temp = tempfile::tempdir().unwrap();
        let id = VolumeId::new("u1", layout::EMPTY_DIR, "v");
        let layout = layout::Layout::new(temp.path());
        let volume = layout.volume(&id);
        fs::create_dir_all(volume.join("deep/er")).unwrap();
        for number in 0..2000 {
            fs::write(volume.join(format!("deep/{number}")), "").unwrap();
        }
        let task = RemoveVolumeTask {
            root: temp.path().to_owned(),
            id,
        };
        let pool = subprocesses(Duration::from_secs(20));
        let cancel = CancellationToken::new();
        let done = pool.walk("u1", &task, &cancel, |()| {}).await;
        done.unwrap().unwrap();
        assert!(!volume.exists());
    });
}

#[test]
fn nfs_is_mounted_by_the_programs_of_the_node() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let manager = Manager::start(&root, "d");
        // Nothing serves NFS here: the message names the command line.
        let nfs = json!({"server": "127.0.0.1", "path": "/export"});
        let spec = json!({"nfs": nfs, "mountOptions": ["soft", "retry=0"]});
        manager.apply(&claim_pod(0)).await.unwrap();
        bind(&manager, 0, spec).await;
        let at = root.pod("u0").join("volumes/kubernetes.io~nfs/pv0");
        let arguments = format!("-t nfs -o retry=0,soft 127.0.0.1:/export {}", at.display());
        let failed = move |pod: Option<&PodVolumes>| {
            pod.is_some_and(|pod| {
                let message = &pod.volumes[0].message;
                message.starts_with("MountVolume.SetUp failed for volume \"pv0\" : mount failed: ")
                    && message.contains(&format!("Mounting arguments: {arguments}\nOutput: "))
            })
        };
        manager.wait_for("u0", failed).await;
        manager.remove("u0").await;
        assert!(!root.pod("u0").exists());
    });
}
