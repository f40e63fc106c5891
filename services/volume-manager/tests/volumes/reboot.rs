//! Volumes that an earlier boot has set up.

use std::fs;

use polylet_wire::volume::v1::VolumePhase;

use crate::common::{Manager, Root, all_mounted, is_root, pod, run};
use crate::{four_volumes, set_objects, start_with_pod};

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
        for earlier in ["c0ffee00-0000-4000-8000-000000000000", ""] {
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
