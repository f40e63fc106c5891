//! Volumes that an earlier boot has set up.

use std::fs;

use polylet_wire::volume::v1::{PodVolumes, VolumePhase};
use serde_json::{Value, json};

use crate::common::{Manager, Root, all_mounted, eventually, is_root, pod, run};
use crate::{four_volumes, set_objects, start_with_pod};

const OTHER_BOOT: &str = "c0ffee00-0000-4000-8000-000000000000";

/// A power loss may leave files without their content, under a marker that is whole.
#[test]
fn files_on_disk_are_written_again_after_a_reboot() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        start_with_pod(&root, "d", four_volumes()).await.stop();
        let pod_dir = root.pod("u1");
        let content = pod_dir.join("volumes/kubernetes.io~configmap/conf/d/f");
        let marker = pod_dir.join("plugins/kubernetes.io~empty-dir/wrapped_conf/ready");
        fs::write(&content, "").unwrap();
        for earlier in [OTHER_BOOT, ""] {
            fs::write(&marker, earlier).unwrap();
            let manager = Manager::start(&root, "e");
            let applied = manager.apply(&pod("u1", four_volumes())).await.unwrap();
            let phase = |name: &str| {
                let volume = applied.volumes.iter().find(|volume| volume.name == name);
                volume.unwrap().phase()
            };
            assert_eq!(phase("conf"), VolumePhase::Waiting, "{earlier:?}");
            // Neither depends on the boot: the content is the pod's, or gone with the memory.
            assert_eq!(phase("tmp"), VolumePhase::Mounted);
            assert_eq!(phase("pass"), VolumePhase::Mounted);
            set_objects(&manager).await;
            manager.wait_mounted("u1").await;
            assert_eq!(fs::read_to_string(&content).unwrap(), "one");
            manager.stop();
        }
        let manager = Manager::start(&root, "f");
        let applied = manager.apply(&pod("u1", four_volumes())).await.unwrap();
        assert!(
            all_mounted(&applied),
            "not valid in the same boot: {applied:?}"
        );
    });
}

/// What a path of the node leads to may not be there yet, although it was before the reboot.
#[test]
fn host_paths_are_checked_again_after_a_reboot() {
    run(async {
        let root = Root::new();
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("late");
        fs::create_dir(&path).unwrap();
        let volumes = json!([{"name": "h", "hostPath": {"path": path, "type": "Directory"}}]);
        let pod = pod("u1", volumes);
        // The coordinator creates it for the pod's containers.
        fs::create_dir_all(root.pod("u1")).unwrap();
        let manager = Manager::start(&root, "d");
        manager.apply(&pod).await.unwrap();
        manager.wait_mounted("u1").await;
        let metadata = root.layout().metadata("u1");
        eventually("the pod's metadata", || metadata.is_file()).await;
        manager.stop();

        let mut stored: Value = serde_json::from_slice(&fs::read(&metadata).unwrap()).unwrap();
        stored["data"]["boot_id"] = OTHER_BOOT.into();
        fs::write(&metadata, stored.to_string()).unwrap();
        fs::remove_dir(&path).unwrap();
        let manager = Manager::start(&root, "e");
        let applied = manager.apply(&pod).await.unwrap();
        assert!(!all_mounted(&applied), "{applied:?}");
        let has_failed = |pod: Option<&PodVolumes>| {
            let mut volumes = pod.into_iter().flat_map(|pod| &pod.volumes);
            volumes.any(|volume| volume.phase() == VolumePhase::Failed)
        };
        manager.wait_for("u1", has_failed).await;
        fs::create_dir(&path).unwrap();
        manager.wait_mounted("u1").await;
        let content = || fs::read_to_string(&metadata).unwrap_or_default();
        eventually("the id of this boot", || !content().contains(OTHER_BOOT)).await;
    });
}
