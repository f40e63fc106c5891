//! Volumes of the node that grow, and are told of when they cannot.

use super::*;

/// What a test of growth looks at.
struct Grows {
    root: Root,
    life: Life,
    sizes: watch::Receiver<WatchClaimSizesResponse>,
}

impl Grows {
    fn new() -> Self {
        let root = Root::new();
        let life = Life::start(&root, "d");
        let sizes = life.csi.sizes.subscribe();
        Self { root, life, sizes }
    }

    /// The pod has the volume, which is so large by its claim, and so large in truth.
    async fn pod(&self, uid: &str, read_only: bool, is: &str, volume: Value) {
        let life = &self.life;
        life.apply(&by_claim(uid, 9, read_only)).await.unwrap();
        claim(life, is).await;
        persistent(life, volume).await;
        life.mounted(uid).await;
    }

    async fn leave(&self, uid: &str) {
        self.life.release(uid).await.unwrap();
        self.life.gone(uid).await;
    }

    /// The claim is to be told that this is done.
    async fn finished(&self, size: &str) {
        let mut sizes = self.sizes.clone();
        let is_it = |told: &WatchClaimSizesResponse| {
            let mut claims = told.claims.iter();
            claims.any(|of| of.growth() == ClaimGrowth::Finished && of.size == size)
        };
        let told = sizes.wait_for(is_it);
        let told = tokio::time::timeout(Duration::from_secs(20), told).await;
        assert!(told.is_ok(), "{:?}", self.life.notices.borrow());
    }

    /// How often people were told this.
    fn told(&self, words: &str) -> usize {
        let said = self.life.notices.borrow();
        said.iter().filter(|said| *said == words).count()
    }

    /// In MiB.
    fn size(&self, uid: &str) -> u64 {
        let is = rustix::fs::statvfs(there(&self.root, uid)).unwrap();
        (is.f_blocks * is.f_frsize) >> 20
    }
}

const GROWN: &str = "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n";

/// Whether ext4 may be made larger while it is mounted: that takes CAP_SYS_RESOURCE.
fn may_grow() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let has = lines.find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(has.trim(), 16).unwrap() & (1 << 24) != 0
}

#[test]
fn a_disk_grows_under_its_pod_and_when_it_is_mounted() {
    let xfs = Command::new("mkfs.xfs").arg("-V").output().is_ok();
    // The least that such a file system can be, in MiB.
    let kinds = [("ext4", 8, may_grow()), ("xfs", 300, xfs)];
    for (kind, least, _) in kinds.into_iter().filter(|(_, _, can)| *can) {
        let Some(disk) = Some(()).filter(|()| is_root()).and_then(|()| Disk::new()) else {
            return;
        };
        disk.grow(least);
        run(async {
            let here = Grows::new();
            let sizes = [least, least + 50, least + 100];
            let texts = sizes.map(|size| format!("{size}Mi"));
            let [first, second, third] = texts.each_ref().map(String::as_str);
            let volume = |size: &str| {
                let local = json!({"path": disk.device, "fsType": kind});
                json!({"capacity": {"storage": size}, "local": local})
            };
            here.pod("u1", false, first, volume(first)).await;
            fs::write(there(&here.root, "u1").join("file"), "kept").unwrap();
            let before = here.size("u1");
            disk.grow(sizes[1]);
            persistent(&here.life, volume(second)).await;
            here.finished(second).await;
            let is = here.size("u1");
            assert!(is > before + 30, "{kind} {is}");
            // The pod is told, and the claim.
            assert_eq!(here.told(GROWN), 2);
            claim(&here.life, second).await;
            here.leave("u1").await;

            // A pod that may not write does not make it larger; the next one does when it is mounted.
            disk.grow(sizes[2]);
            here.pod("u2", true, second, volume(third)).await;
            let why = "MountVolume.NodeExpandVolume failed for volume \"pv\" requested read-only file system";
            assert_eq!((here.told(why), here.told(GROWN)), (2, 2));
            assert_eq!(here.size("u2"), is);
            here.leave("u2").await;
            here.pod("u3", false, second, volume(third)).await;
            here.finished(third).await;
            assert!(here.size("u3") > is + 30, "{kind}");
            assert_eq!(here.told(GROWN), 4);
            let file = there(&here.root, "u3").join("file");
            assert_eq!(fs::read_to_string(file).unwrap(), "kept");
            here.leave("u3").await;
        });
    }
}

#[test]
fn a_disk_that_cannot_grow_is_told_of_and_its_pod_is_not_disturbed() {
    if may_grow() {
        return;
    }
    let Some(disk) = Some(()).filter(|()| is_root()).and_then(|()| Disk::new()) else {
        return;
    };
    run(async {
        let here = Grows::new();
        let volume =
            |size: &str| json!({"capacity": {"storage": size}, "local": {"path": disk.device}});
        here.pod("u1", false, "8Mi", volume("8Mi")).await;
        disk.grow(16);
        persistent(&here.life, volume("16Mi")).await;
        let device = disk.device.display();
        let why = format!(
            "NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : resize of device {device} failed: exit status 1. resize2fs output: "
        );
        eventually("the failure", || {
            let said = here.life.notices.borrow();
            said.iter().any(|said| said.starts_with(&why))
        })
        .await;
        here.life.mounted("u1").await;
        // Nobody tells of failures in the claims of such volumes.
        assert!(here.sizes.borrow().claims.is_empty() && here.told(GROWN) == 0);
        here.leave("u1").await;
    });
}

#[test]
fn a_directory_is_as_large_as_its_claim_shall_be() {
    if !is_root() {
        return;
    }
    run(async {
        let (here, dir) = (Grows::new(), tempfile::tempdir().unwrap());
        let volume =
            |size: &str| json!({"capacity": {"storage": size}, "local": {"path": dir.path()}});
        here.pod("u1", false, "8Mi", volume("8Mi")).await;
        let before = here.root.mounts();
        persistent(&here.life, volume("16Mi")).await;
        here.finished("16Mi").await;
        assert_eq!(here.told(GROWN), 2);
        claim(&here.life, "16Mi").await;
        let mut sizes = here.sizes.clone();
        sizes.wait_for(|told| told.claims.is_empty()).await.unwrap();
        assert_eq!(here.root.mounts(), before);
        here.leave("u1").await;
    });
}
