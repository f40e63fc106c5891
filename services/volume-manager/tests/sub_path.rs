//! subPaths on the real kernel: bound, replaced, unmounted, and never outside of the volume. Needs
//! root.

mod common;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Manager, Root, eventually, is_root, pod, run};
use polylet_volume_manager::core::reference_key::ObjectKind::ConfigMap;
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::json;

const NOT_PREPARED: &str = "failed to prepare subPath for volumeMount \"v\" of container \"c\"";
const NOT_CREATED: &str =
    "failed to create subPath directory for volumeMount \"v\" of container \"c\"";

async fn with_empty_dir(root: &Root) -> (Manager, PathBuf) {
    let manager = Manager::start(root, "d");
    let volume = json!([{"name": "v", "emptyDir": {}}]);
    manager.apply(&pod("u1", volume)).await.unwrap();
    manager.wait_mounted("u1").await;
    let dir = root.pod("u1").join("volumes/kubernetes.io~empty-dir/v");
    (manager, dir)
}

fn inode(path: &Path) -> u64 {
    path.metadata().unwrap().ino()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn sub_paths_are_created_bound_replaced_and_unmounted() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let (manager, dir) = with_empty_dir(&root).await;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o2770)).unwrap();
        fs::write(dir.join("file"), "f").unwrap();
        symlink("made/deep", dir.join("inside")).unwrap();
        let sub_paths = [
            ("v", "made/deep"),
            ("v", "file"),
            ("v", "./inside"),
            ("v", "."),
        ];
        let paths = manager.sub_paths("u1", &sub_paths).await.unwrap();
        let at = |index: &str| root.pod("u1").join("volume-subpaths/v/c").join(index);
        assert_eq!(paths, ["0", "1", "2", "3"].map(at));
        assert_eq!(mode(&dir.join("made")), 0o2770);
        assert_eq!(mode(&dir.join("made/deep")), 0o2770);
        assert_eq!(inode(&paths[0]), inode(&dir.join("made/deep")));
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "f");
        assert_eq!(inode(&paths[2]), inode(&paths[0]));
        assert_eq!(inode(&paths[3]), inode(&dir));
        let mounts = root.mounts();
        assert_eq!(mounts.len(), 4, "{mounts:?}");

        // Asked again, also after a restart: nothing changes.
        manager.stop();
        let manager = Manager::start(&root, "e");
        let volume = json!([{"name": "v", "emptyDir": {}}]);
        manager.apply(&pod("u1", volume)).await.unwrap();
        manager.wait_mounted("u1").await;
        assert_eq!(manager.sub_paths("u1", &sub_paths).await.unwrap(), paths);
        assert_eq!(root.mounts(), mounts);

        // A replaced subPath is bound again, also a file in place of a directory.
        fs::remove_file(dir.join("file")).unwrap();
        fs::write(dir.join("file"), "other").unwrap();
        fs::rename(dir.join("made"), dir.join("away")).unwrap();
        fs::create_dir(dir.join("made")).unwrap();
        fs::write(dir.join("made/deep"), "now a file").unwrap();
        manager.sub_paths("u1", &sub_paths).await.unwrap();
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "now a file");
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "other");
        assert_eq!(root.mounts().len(), 4);

        manager.remove("u1").await;
        assert!(root.mounts().is_empty() && !root.pod("u1").exists());
    });
}

#[test]
fn a_sub_path_never_leads_out_of_the_volume() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let (manager, dir) = with_empty_dir(&root).await;
        let outside = root.dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "s").unwrap();
        symlink(&outside, dir.join("out")).unwrap();
        symlink("../../../../../outside", dir.join("up")).unwrap();
        symlink(dir.join("real"), dir.join("absolute")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        symlink("/nowhere", dir.join("dangling")).unwrap();
        fs::create_dir(dir.join("real")).unwrap();
        for (path, message) in [
            ("out", NOT_PREPARED),
            ("out/secret", NOT_PREPARED),
            ("up/secret", NOT_PREPARED),
            ("loop", NOT_PREPARED),
            ("out/new", NOT_CREATED),
            ("up/new", NOT_CREATED),
            ("dangling", NOT_CREATED),
            ("dangling/new", NOT_CREATED),
            ("/etc", "error SubPath `/etc` must not be an absolute path"),
            (
                "a/..",
                "unable to provision SubPath `a/..`: must not contain '..'",
            ),
        ] {
            let result = manager.sub_paths("u1", &[("v", path)]).await;
            assert_eq!(result, Err(message.to_owned()), "{path}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert!(root.mounts().is_empty());
        // An absolute link is followed as long as it stays in the volume.
        let paths = manager.sub_paths("u1", &[("v", "absolute")]).await.unwrap();
        assert_eq!(inode(&paths[0]), inode(&dir.join("real")));
        let unknown = manager.sub_paths("u1", &[("w", "a")]).await;
        let message = "cannot find volume \"w\" to mount into container \"c\"";
        assert_eq!(unknown, Err(message.to_owned()));
        manager.remove("u1").await;
    });
}

/// A process swaps the directory for a link that leads out, as fast as it can.
#[test]
fn a_race_with_links_never_leads_out_of_the_volume() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let (manager, dir) = with_empty_dir(&root).await;
        let outside = root.dir.path().join("outside");
        fs::create_dir_all(outside.join("b")).unwrap();
        let outside_inodes: Vec<_> = [&outside, &outside.join("b")]
            .map(|path| inode(path))
            .into();
        fs::create_dir_all(dir.join("a/b")).unwrap();
        symlink(&outside, dir.join("link")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (swapping, until) = (dir.clone(), stop.clone());
        let swapper = std::thread::spawn(move || {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            let (a, link) = (swapping.join("a"), swapping.join("link"));
            let mut swaps = 0_u64;
            while !until.load(Ordering::Relaxed) {
                renameat_with(CWD, &a, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        });
        let (mut bound, mut refused) = (0, 0);
        let deadline = Instant::now() + Duration::from_secs(10);
        while (bound < 20 || refused < 20) && Instant::now() < deadline {
            match manager.sub_paths("u1", &[("v", "a/b"), ("v", "a")]).await {
                Ok(paths) => {
                    bound += 1;
                    for path in &paths {
                        assert!(!outside_inodes.contains(&inode(path)), "{path:?} leads out");
                    }
                }
                Err(_) => refused += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
        let swaps = swapper.join().unwrap();
        assert!(
            bound > 0 && refused > 0 && swaps > 100,
            "{bound} {refused} {swaps}"
        );
        // Nothing was created outside, either.
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        manager.remove("u1").await;
        assert!(root.mounts().is_empty());
    });
}

#[test]
fn sub_paths_of_config_maps_and_host_paths() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let file = root.dir.path().join("file");
        fs::write(&file, "node's").unwrap();
        let manager = Manager::start(&root, "d");
        let volumes = json!([
            {"name": "v", "hostPath": {"path": file, "type": "File"}},
            {"name": "conf", "configMap": {"name": "c"}},
        ]);
        manager.apply(&pod("u1", volumes)).await.unwrap();
        manager
            .set_object(ConfigMap, "c", json!({"k": "one"}))
            .await;
        manager.wait_mounted("u1").await;
        let below_a_file = manager.sub_paths("u1", &[("v", "k")]).await;
        assert_eq!(below_a_file, Err(NOT_PREPARED.to_owned()));
        let sub_paths = [("conf", "k"), ("v", ".")];
        let paths = manager.sub_paths("u1", &sub_paths).await;
        let paths = paths.unwrap();
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "one");
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "node's");
        // A running container keeps its file; the next one gets the new one.
        manager
            .set_object(ConfigMap, "c", json!({"k": "two"}))
            .await;
        let link = root
            .pod("u1")
            .join("volumes/kubernetes.io~configmap/conf/k");
        let content = || fs::read_to_string(&link).unwrap();
        eventually("the new content", || content() == "two").await;
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "one");
        manager.sub_paths("u1", &sub_paths).await.unwrap();
        assert_eq!(fs::read_to_string(&paths[0]).unwrap(), "two");

        // An orphaned pod is removed, but not the node's files.
        manager.stop();
        let manager = Manager::start(&root, "e");
        manager.complete(0).await.unwrap();
        manager.wait_removed("u1").await;
        assert!(root.mounts().is_empty() && !root.pod("u1").exists());
        assert_eq!(fs::read_to_string(&file).unwrap(), "node's");
    });
}

/// A FUSE file system whose server never answers.
struct HangingFs {
    at: PathBuf,
    _server: File,
}

impl HangingFs {
    fn mount(at: PathBuf) -> Option<Self> {
        let mut options = File::options();
        let server = options.read(true).write(true).open("/dev/fuse").ok()?;
        fs::create_dir_all(&at).unwrap();
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            server.as_raw_fd()
        );
        let data = std::ffi::CString::new(data).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("hanging", &at, "fuse", flags, data.as_c_str()).ok()?;
        Some(Self {
            at,
            _server: server,
        })
    }
}

impl Drop for HangingFs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }
}

#[test]
fn tear_down_cancels_a_hanging_set_up() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let Some(hanging) = HangingFs::mount(root.dir.path().join("hanging")) else {
            return;
        };
        let manager = Manager::start(&root, "d");
        let hangs = json!([
            {"name": "v", "hostPath": {"path": hanging.at.join("x"), "type": "Directory"}},
        ]);
        manager.apply(&pod("stuck", hangs)).await.unwrap();
        let begun = Instant::now();
        manager.remove("stuck").await;
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn a_hanging_file_system_delays_only_its_pod() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let Some(hanging) = HangingFs::mount(root.dir.path().join("hanging")) else {
            return;
        };
        let manager = Manager::with_deadline(&root, "d", Duration::from_secs(2));
        let hangs = json!([
            {"name": "checked", "hostPath": {"path": hanging.at.join("x"), "type": "Directory"}},
        ]);
        manager.apply(&pod("stuck", hangs)).await.unwrap();
        let plain = json!([{"name": "v", "hostPath": {"path": hanging.at}}]);
        manager.apply(&pod("bound", plain)).await.unwrap();
        manager.wait_mounted("bound").await;
        let volume = json!([{"name": "v", "emptyDir": {}}]);
        manager.apply(&pod("fine", volume)).await.unwrap();
        manager.wait_mounted("fine").await;

        let waits = [("v", "x")];
        let begun = Instant::now();
        let (stuck, fine) = tokio::join!(manager.sub_paths("bound", &waits), async {
            let done = manager.sub_paths("fine", &waits).await;
            (done, begun.elapsed())
        });
        assert!(
            fine.0.is_ok() && fine.1 < Duration::from_secs(2),
            "{fine:?}"
        );
        let error = stuck.unwrap_err();
        assert!(error.starts_with(NOT_PREPARED), "{error}");
        assert!(error.ends_with("no answer within 2 s"), "{error}");
        let has_message = |text: &'static str| {
            manager.wait_for("stuck", move |pod| {
                pod.is_some_and(|pod| pod.volumes[0].message.contains(text))
            })
        };
        has_message("no answer within 2 s").await;
        for uid in ["stuck", "bound", "fine"] {
            manager.release(uid).await.unwrap();
        }
        for uid in ["stuck", "bound", "fine"] {
            manager.wait_removed(uid).await;
        }
        drop(hanging);
        assert!(root.mounts().is_empty(), "{:?}", root.mounts());
    });
}
