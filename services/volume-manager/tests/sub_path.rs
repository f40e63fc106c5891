//! Parts of volumes on the real kernel: bound, replaced, taken away, and never from outside the
//! volume. Needs root.

mod common;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Life, Root, eventually, is_root, pod, run};
use polylet_volume_manager::core::objects::ObjectKind::ConfigMap;
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::json;

const NOT_PREPARED: &str = "failed to prepare subPath for volumeMount \"v\" of container \"c\"";
const NOT_MADE: &str =
    "failed to create subPath directory for volumeMount \"v\" of container \"c\"";

async fn with_empty_dir(root: &Root) -> (Life, PathBuf) {
    let life = Life::start(root, "d");
    let volume = json!([{"name": "v", "emptyDir": {}}]);
    life.apply(&pod("u1", volume)).await.unwrap();
    life.mounted("u1").await;
    let dir = root.pod("u1").join("volumes/kubernetes.io~empty-dir/v");
    (life, dir)
}

fn inode(path: &Path) -> u64 {
    path.metadata().unwrap().ino()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn parts_are_made_bound_used_again_and_taken_away() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let (life, dir) = with_empty_dir(&root).await;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o2770)).unwrap();
        fs::write(dir.join("file"), "f").unwrap();
        symlink("made/deep", dir.join("inside")).unwrap();
        let parts = [
            ("v", "made/deep"),
            ("v", "file"),
            ("v", "./inside"),
            ("v", "."),
        ];
        let places = life.sub_paths("u1", &parts).await.unwrap();
        let at = |index: &str| root.pod("u1").join("volume-subpaths/v/c").join(index);
        assert_eq!(places, ["0", "1", "2", "3"].map(at));
        assert_eq!(mode(&dir.join("made")), 0o2770);
        assert_eq!(mode(&dir.join("made/deep")), 0o2770);
        assert_eq!(inode(&places[0]), inode(&dir.join("made/deep")));
        assert_eq!(fs::read_to_string(&places[1]).unwrap(), "f");
        assert_eq!(inode(&places[2]), inode(&places[0]));
        assert_eq!(inode(&places[3]), inode(&dir));
        let mounts = root.mounts();
        assert_eq!(mounts.len(), 4, "{mounts:?}");

        // Asked again, also by another life: nothing changes.
        life.end();
        let life = Life::start(&root, "e");
        let volume = json!([{"name": "v", "emptyDir": {}}]);
        life.apply(&pod("u1", volume)).await.unwrap();
        life.mounted("u1").await;
        assert_eq!(life.sub_paths("u1", &parts).await.unwrap(), places);
        assert_eq!(root.mounts(), mounts);

        // A part that has become another is replaced, also a directory by a file.
        fs::remove_file(dir.join("file")).unwrap();
        fs::write(dir.join("file"), "other").unwrap();
        fs::rename(dir.join("made"), dir.join("away")).unwrap();
        fs::create_dir(dir.join("made")).unwrap();
        fs::write(dir.join("made/deep"), "now a file").unwrap();
        life.sub_paths("u1", &parts).await.unwrap();
        assert_eq!(fs::read_to_string(&places[0]).unwrap(), "now a file");
        assert_eq!(fs::read_to_string(&places[1]).unwrap(), "other");
        assert_eq!(root.mounts().len(), 4);

        life.release("u1").await.unwrap();
        life.gone("u1").await;
        assert!(root.mounts().is_empty() && !root.pod("u1").exists());
    });
}

#[test]
fn a_part_never_comes_from_outside() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let (life, dir) = with_empty_dir(&root).await;
        let outside = root.dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "s").unwrap();
        symlink(&outside, dir.join("out")).unwrap();
        symlink("../../../../../outside", dir.join("up")).unwrap();
        symlink(dir.join("real"), dir.join("absolute")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        symlink("/nowhere", dir.join("dangling")).unwrap();
        fs::create_dir(dir.join("real")).unwrap();
        for (path, said) in [
            ("out", NOT_PREPARED),
            ("out/secret", NOT_PREPARED),
            ("up/secret", NOT_PREPARED),
            ("loop", NOT_PREPARED),
            ("out/new", NOT_MADE),
            ("up/new", NOT_MADE),
            ("dangling", NOT_MADE),
            ("dangling/new", NOT_MADE),
            ("/etc", "error SubPath `/etc` must not be an absolute path"),
            (
                "a/..",
                "unable to provision SubPath `a/..`: must not contain '..'",
            ),
        ] {
            let told = life.sub_paths("u1", &[("v", path)]).await;
            assert_eq!(told, Err(said.to_owned()), "{path}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert!(root.mounts().is_empty());
        // A link by its whole path is fine as long as it stays inside.
        let places = life.sub_paths("u1", &[("v", "absolute")]).await.unwrap();
        assert_eq!(inode(&places[0]), inode(&dir.join("real")));
        let unknown = life.sub_paths("u1", &[("w", "a")]).await;
        let said = "cannot find volume \"w\" to mount into container \"c\"";
        assert_eq!(unknown, Err(said.to_owned()));
        life.release("u1").await.unwrap();
        life.gone("u1").await;
    });
}

/// Somebody in the pod swaps the part for a link that leads out, as fast as it goes.
#[test]
fn a_race_gets_nothing_from_outside() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let (life, dir) = with_empty_dir(&root).await;
        let outside = root.dir.path().join("outside");
        fs::create_dir_all(outside.join("b")).unwrap();
        let known: Vec<_> = [&outside, &outside.join("b")]
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
            match life.sub_paths("u1", &[("v", "a/b"), ("v", "a")]).await {
                Ok(places) => {
                    bound += 1;
                    for place in &places {
                        assert!(!known.contains(&inode(place)), "{place:?} leads out");
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
        // Nothing was made outside, either.
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        life.release("u1").await.unwrap();
        life.gone("u1").await;
        assert!(root.mounts().is_empty());
    });
}

#[test]
fn files_of_objects_and_of_the_node() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let file = root.dir.path().join("file");
        fs::write(&file, "node's").unwrap();
        let life = Life::start(&root, "d");
        let volumes = json!([
            {"name": "v", "hostPath": {"path": file, "type": "File"}},
            {"name": "conf", "configMap": {"name": "c"}},
        ]);
        life.apply(&pod("u1", volumes)).await.unwrap();
        life.object(ConfigMap, "c", Some(json!({"k": "one"}))).await;
        life.mounted("u1").await;
        let below_a_file = life.sub_paths("u1", &[("v", "k")]).await;
        assert_eq!(below_a_file, Err(NOT_PREPARED.to_owned()));
        let parts = [("conf", "k"), ("v", ".")];
        let places = life.sub_paths("u1", &parts).await;
        let places = places.unwrap();
        assert_eq!(fs::read_to_string(&places[0]).unwrap(), "one");
        assert_eq!(fs::read_to_string(&places[1]).unwrap(), "node's");
        // The container that runs keeps what it has; the next one gets what is there then.
        life.object(ConfigMap, "c", Some(json!({"k": "two"}))).await;
        let link = root
            .pod("u1")
            .join("volumes/kubernetes.io~configmap/conf/k");
        let content = || fs::read_to_string(&link).unwrap();
        eventually("the new content", || content() == "two").await;
        assert_eq!(fs::read_to_string(&places[0]).unwrap(), "one");
        life.sub_paths("u1", &parts).await.unwrap();
        assert_eq!(fs::read_to_string(&places[0]).unwrap(), "two");

        // Nobody knows of the pod any more: all of it goes, and nothing of the node's.
        life.end();
        let life = Life::start(&root, "e");
        life.complete(0).await.unwrap();
        life.gone("u1").await;
        assert!(root.mounts().is_empty() && !root.pod("u1").exists());
        assert_eq!(fs::read_to_string(&file).unwrap(), "node's");
    });
}

/// A file system whose server never answers: whoever looks at it waits.
struct Dead {
    at: PathBuf,
    _server: File,
}

impl Dead {
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
        rustix::mount::mount("dead", &at, "fuse", flags, data.as_c_str()).ok()?;
        Some(Self {
            at,
            _server: server,
        })
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }
}

#[test]
fn a_pod_that_goes_waits_for_nothing_that_hangs() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let Some(dead) = Dead::mount(root.dir.path().join("dead")) else {
            return;
        };
        let life = Life::start(&root, "d");
        let hangs = json!([
            {"name": "v", "hostPath": {"path": dead.at.join("x"), "type": "Directory"}},
        ]);
        life.apply(&pod("stuck", hangs)).await.unwrap();
        let begun = Instant::now();
        life.release("stuck").await.unwrap();
        life.gone("stuck").await;
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn a_dead_file_system_holds_back_its_own_pod_alone() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let Some(dead) = Dead::mount(root.dir.path().join("dead")) else {
            return;
        };
        let life = Life::with_patience(&root, "d", Duration::from_secs(2));
        let hangs = json!([
            {"name": "checked", "hostPath": {"path": dead.at.join("x"), "type": "Directory"}},
        ]);
        life.apply(&pod("stuck", hangs)).await.unwrap();
        let plain = json!([{"name": "v", "hostPath": {"path": dead.at}}]);
        life.apply(&pod("part", plain)).await.unwrap();
        life.mounted("part").await;
        let volume = json!([{"name": "v", "emptyDir": {}}]);
        life.apply(&pod("fine", volume)).await.unwrap();
        life.mounted("fine").await;

        let waits = [("v", "x")];
        let begun = Instant::now();
        let (stuck, fine) = tokio::join!(life.sub_paths("part", &waits), async {
            let done = life.sub_paths("fine", &waits).await;
            (done, begun.elapsed())
        });
        assert!(
            fine.0.is_ok() && fine.1 < Duration::from_secs(2),
            "{fine:?}"
        );
        let said = stuck.unwrap_err();
        assert!(said.starts_with(NOT_PREPARED), "{said}");
        assert!(said.ends_with("no answer within 2 s"), "{said}");
        let says = |text: &'static str| {
            life.until("stuck", move |pod| {
                pod.is_some_and(|pod| pod.volumes[0].message.contains(text))
            })
        };
        says("no answer within 2 s").await;
        for uid in ["stuck", "part", "fine"] {
            life.release(uid).await.unwrap();
        }
        for uid in ["stuck", "part", "fine"] {
            life.gone(uid).await;
        }
        drop(dead);
        assert!(root.mounts().is_empty(), "{:?}", root.mounts());
    });
}
