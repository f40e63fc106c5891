//! Expansion of local volumes.

use super::*;

/// A manager and the published resizes.
struct ResizeTest {
    root: Root,
    manager: Manager,
    sizes: watch::Receiver<WatchClaimSizesResponse>,
}

impl ResizeTest {
    fn new() -> Self {
        let root = Root::new();
        let manager = Manager::start(&root, "d");
        let sizes = manager.drivers.sizes.subscribe();
        Self {
            root,
            manager,
            sizes,
        }
    }

    /// Mounts a volume for a pod; `claim_size` is the capacity in the claim.
    async fn pod(&self, uid: &str, read_only: bool, claim_size: &str, volume: Value) {
        let manager = &self.manager;
        manager.apply(&claim_pod(uid, 9, read_only)).await.unwrap();
        claim(manager, claim_size).await;
        persistent(manager, volume).await;
        manager.wait_mounted(uid).await;
    }

    async fn remove(&self, uid: &str) {
        self.manager.release(uid).await.unwrap();
        self.manager.wait_removed(uid).await;
    }

    /// Waits until the resize to this size is published as finished.
    async fn wait_finished(&self, size: &str) {
        let mut sizes = self.sizes.clone();
        let is_finished = |response: &WatchClaimSizesResponse| {
            let mut claims = response.claims.iter();
            claims.any(|claim| claim.status() == ResizeStatus::Finished && claim.size == size)
        };
        let finished = sizes.wait_for(is_finished);
        let finished = tokio::time::timeout(TIMEOUT, finished).await;
        assert!(finished.is_ok(), "{:?}", self.manager.events.borrow());
    }

    /// The number of events with this message.
    fn events(&self, message: &str) -> usize {
        let events = self.manager.events.borrow();
        events.iter().filter(|event| *event == message).count()
    }

    /// The size of the file system in MiB.
    fn size(&self, uid: &str) -> u64 {
        let is = rustix::fs::statvfs(volume_dir(&self.root, uid)).unwrap();
        (is.f_blocks * is.f_frsize) >> 20
    }
}

const RESIZED: &str = "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n";

/// Whether a mounted ext4 can be resized, which needs CAP_SYS_RESOURCE.
fn can_resize_ext4() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let has = lines.find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(has.trim(), 16).unwrap() & (1 << 24) != 0
}

#[test]
fn a_disk_is_resized_while_mounted_and_when_it_is_mounted() {
    let xfs = Command::new("mkfs.xfs").arg("-V").output().is_ok();
    // The smallest size of each file system in MiB.
    let kinds = [("ext4", 8, can_resize_ext4()), ("xfs", 300, xfs)];
    for (kind, least, _) in kinds.into_iter().filter(|(_, _, can)| *can) {
        let Some(disk) = Some(()).filter(|()| is_root()).and_then(|()| Disk::new()) else {
            return;
        };
        disk.resize(least);
        run(async {
            let test = ResizeTest::new();
            let sizes = [least, least + 50, least + 100];
            let texts = sizes.map(|size| format!("{size}Mi"));
            let [first, second, third] = texts.each_ref().map(String::as_str);
            let volume = |size: &str| {
                let local = json!({"path": disk.device, "fsType": kind});
                json!({"capacity": {"storage": size}, "local": local})
            };
            test.pod("u1", false, first, volume(first)).await;
            fs::write(volume_dir(&test.root, "u1").join("file"), "kept").unwrap();
            let before = test.size("u1");
            disk.resize(sizes[1]);
            persistent(&test.manager, volume(second)).await;
            test.wait_finished(second).await;
            let is = test.size("u1");
            assert!(is > before + 30, "{kind} {is}");
            // One event for the pod, one for the claim.
            assert_eq!(test.events(RESIZED), 2);
            claim(&test.manager, second).await;
            test.remove("u1").await;

            // A read-only pod does not resize it; the next one does when it is mounted.
            disk.resize(sizes[2]);
            test.pod("u2", true, second, volume(third)).await;
            let why = "MountVolume.NodeExpandVolume failed for volume \"pv\" requested read-only file system";
            assert_eq!((test.events(why), test.events(RESIZED)), (2, 2));
            assert_eq!(test.size("u2"), is);
            test.remove("u2").await;
            test.pod("u3", false, second, volume(third)).await;
            test.wait_finished(third).await;
            assert!(test.size("u3") > is + 30, "{kind}");
            assert_eq!(test.events(RESIZED), 4);
            let file = volume_dir(&test.root, "u3").join("file");
            assert_eq!(fs::read_to_string(file).unwrap(), "kept");
            test.remove("u3").await;
        });
    }
}

#[test]
fn a_failed_resize_is_reported_and_the_volume_stays_mounted() {
    if can_resize_ext4() {
        return;
    }
    let Some(disk) = Some(()).filter(|()| is_root()).and_then(|()| Disk::new()) else {
        return;
    };
    run(async {
        let test = ResizeTest::new();
        let volume =
            |size: &str| json!({"capacity": {"storage": size}, "local": {"path": disk.device}});
        test.pod("u1", false, "8Mi", volume("8Mi")).await;
        disk.resize(16);
        persistent(&test.manager, volume("16Mi")).await;
        let device = disk.device.display();
        let message = format!(
            "NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : resize of device {device} failed: exit status 1. resize2fs output: "
        );
        test.manager.wait_event(&message).await;
        test.manager.wait_mounted("u1").await;
        // Failures are not reported in the claims of such volumes.
        assert!(test.sizes.borrow().claims.is_empty() && test.events(RESIZED) == 0);
        test.remove("u1").await;
    });
}

#[test]
fn a_directory_needs_no_resize() {
    if !is_root() {
        return;
    }
    run(async {
        let (test, dir) = (ResizeTest::new(), tempfile::tempdir().unwrap());
        let volume =
            |size: &str| json!({"capacity": {"storage": size}, "local": {"path": dir.path()}});
        test.pod("u1", false, "8Mi", volume("8Mi")).await;
        let before = test.root.mounts();
        persistent(&test.manager, volume("16Mi")).await;
        test.wait_finished("16Mi").await;
        assert_eq!(test.events(RESIZED), 2);
        claim(&test.manager, "16Mi").await;
        let mut sizes = test.sizes.clone();
        sizes
            .wait_for(|response| response.claims.is_empty())
            .await
            .unwrap();
        assert_eq!(test.root.mounts(), before);
        test.remove("u1").await;
    });
}
