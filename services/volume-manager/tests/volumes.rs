//! Volumes on the real kernel: tmpfs mounts, files, restarts, orphaned pods. Needs root.

mod common;
#[path = "volumes/reboot.rs"]
mod reboot;
#[path = "volumes/tokens.rs"]
mod tokens;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Instant;

use common::{Manager, Root, all_mounted, eventually, is_root, message_is, pod, run};
use polylet_volume_manager::core::reference_key::ObjectKind::{ConfigMap, Secret};
use polylet_volume_manager::core::references::ObjectState;
use polylet_wire::volume::v1::VolumePhase;
use serde_json::{Value, json};

fn four_volumes() -> Value {
    json!([
        {"name": "conf", "configMap": {"name": "c", "items": [{"key": "k", "path": "d/f", "mode": 256}]}},
        {"name": "pass", "secret": {"secretName": "s", "defaultMode": 256}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "me", "projected": {"sources": [
            {"configMap": {"name": "c"}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]}},
    ])
}

async fn start_with_pod(root: &Root, client_id: &str, volumes: Value) -> Manager {
    let manager = Manager::start(root, client_id);
    manager.apply(&pod("u1", volumes)).await.unwrap();
    set_objects(&manager).await;
    manager.wait_mounted("u1").await;
    manager
}

async fn set_objects(manager: &Manager) {
    manager
        .set_object(ConfigMap, "c", json!({"k": "one"}))
        .await;
    manager
        .set_object(Secret, "s", json!({"p": "c2VjcmV0"}))
        .await;
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn volumes_are_set_up_and_torn_down() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let manager = start_with_pod(&root, "d", four_volumes()).await;
        let volumes = root.pod("u1").join("volumes");
        let conf = volumes.join("kubernetes.io~configmap/conf");
        let pass = volumes.join("kubernetes.io~secret/pass");
        let me = volumes.join("kubernetes.io~projected/me");
        let tmp = volumes.join("kubernetes.io~empty-dir/tmp");
        assert_eq!(fs::read_to_string(conf.join("d/f")).unwrap(), "one");
        assert_eq!(mode(&conf.join("d/f")), 0o400);
        assert_eq!(fs::read_to_string(pass.join("p")).unwrap(), "secret");
        assert_eq!(mode(&pass.join("p")), 0o400);
        assert_eq!(fs::read_to_string(me.join("labels")).unwrap(), "a=\"1\"");
        assert_eq!(mode(&me.join("k")), 0o644);
        assert_eq!((mode(&tmp), mode(&root.pod("u1"))), (0o777, 0o750));
        assert_eq!(
            fs::read_link(pass.join("p")).unwrap(),
            Path::new("..data/p")
        );
        let mounts = root.mounts();
        assert_eq!(mounts.len(), 2, "{mounts:?}");
        assert!(mounts.iter().all(|m| m.contains(" - tmpfs ")), "{mounts:?}");
        assert!(
            root.pod("u1")
                .join("plugins/kubernetes.io~empty-dir/wrapped_pass/ready")
                .is_file()
        );
        fs::write(tmp.join("left"), "x").unwrap();
        fs::create_dir_all(root.pod("u1").join("containers/c")).unwrap();
        fs::write(root.pod("u1").join("etc-hosts"), "").unwrap();

        manager.remove("u1").await;
        assert!(root.mounts().is_empty());
        assert!(!root.pod("u1").exists());
        assert!(
            manager
                .objects
                .borrow()
                .values()
                .all(|token| token.is_cancelled())
        );
    });
}

#[test]
fn changed_objects_update_files_atomically() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let manager = start_with_pod(&root, "d", four_volumes()).await;
        let me = root.pod("u1").join("volumes/kubernetes.io~projected/me");
        let before = fs::read_link(me.join("..data")).unwrap();
        manager
            .set_object(ConfigMap, "c", json!({"k": "two", "new": "n"}))
            .await;
        eventually("the new key", || me.join("new").exists()).await;
        assert_eq!(fs::read_to_string(me.join("k")).unwrap(), "two");
        assert_ne!(fs::read_link(me.join("..data")).unwrap(), before);
        // The old files go last.
        eventually("the old files to go", || !me.join(&before).exists()).await;
        // Labels are updated, too.
        let mut changed = pod("u1", four_volumes());
        changed["metadata"]["labels"]["a"] = json!("2");
        manager.apply(&changed).await.unwrap();
        let labels = || fs::read_to_string(me.join("labels")).unwrap();
        eventually("the new labels", || labels() == "a=\"2\"").await;
    });
}

#[test]
fn a_restart_changes_no_file() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let volumes = |mut all: Value| {
            all.as_array_mut()
                .unwrap()
                .push(json!({"name": "etc", "hostPath": {"path": "/etc"}}));
            all
        };
        let manager = start_with_pod(&root, "d", volumes(four_volumes())).await;
        let metadata = root.layout().metadata("u1");
        eventually("the pod's metadata", || metadata.is_file()).await;
        let tmp = root.pod("u1").join("volumes/kubernetes.io~empty-dir/tmp");
        fs::set_permissions(&tmp, fs::Permissions::from_mode(0o700)).unwrap();
        manager.stop();
        let (files, mounts) = (root.files(), root.mounts());

        let manager = Manager::start(&root, "e");
        // Published before it is declared, with its name and every volume.
        manager.wait_mounted("u1").await;
        let shown = manager.store.get("u1".to_owned().as_str()).unwrap();
        assert_eq!(shown.volumes.len(), 5);
        assert_eq!(shown.r#ref.unwrap().name, "pod-u1");
        manager
            .apply(&pod("u1", volumes(four_volumes())))
            .await
            .unwrap();
        assert!(all_mounted(
            &manager.store.get("u1".to_owned().as_str()).unwrap()
        ));
        set_objects(&manager).await;
        manager.complete(1).await.unwrap();
        // All operations have ended when a later pod is mounted.
        manager
            .apply(&pod("u2", json!([{"name": "tmp", "emptyDir": {}}])))
            .await
            .unwrap();
        manager.wait_mounted("u2").await;
        manager.remove("u2").await;
        assert_eq!(root.mounts(), mounts);
        let mut now = root.files();
        let mut then = files;
        // The directory of pods has changed for u2.
        now.retain(|path, _| path.starts_with(root.pod("u1")));
        then.retain(|path, _| path.starts_with(root.pod("u1")));
        assert_eq!(now, then);
    });
}

#[test]
fn orphaned_pods_are_removed_only_after_complete() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        start_with_pod(&root, "d", four_volumes()).await.stop();
        fs::create_dir_all(root.pod("orphan").join("volumes/kubernetes.io~csi/x")).unwrap();
        let manager = Manager::start(&root, "e");
        manager
            .apply(&pod("u2", json!([{"name": "tmp", "emptyDir": {}}])))
            .await
            .unwrap();
        manager.wait_mounted("u2").await;
        assert!(manager.complete(2).await.is_err());
        assert!(root.pod("u1").exists() && root.mounts().len() == 2);
        manager.complete(1).await.unwrap();
        manager.wait_removed("u1").await;
        manager.wait_removed("orphan").await;
        assert!(
            !root.pod("u1").exists() && !root.pod("orphan").exists() && root.pod("u2").exists()
        );
        assert!(root.mounts().is_empty());
    });
}

#[test]
fn content_of_foreign_volumes_is_never_deleted() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let foreign = root.pod("u1").join("volumes/kubernetes.io~nfs/data");
        fs::create_dir_all(&foreign).unwrap();
        fs::write(foreign.join("precious"), "x").unwrap();
        let outside = root.dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        symlink(&outside, root.pod("u1").join("link")).unwrap();
        let manager = Manager::start(&root, "d");
        manager.complete(0).await.unwrap();
        manager
            .wait_for("u1", |pod| {
                let volumes = pod.map(|pod| pod.volumes.as_slice()).unwrap_or_default();
                volumes
                    .iter()
                    .any(|volume| volume.message.contains("not empty"))
            })
            .await;
        assert!(foreign.join("precious").exists() && outside.join("precious").exists());
    });
}

#[test]
fn a_failure_affects_only_its_volume() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let manager = Manager::start(&root, "d");
        let volumes = json!([
            {"name": "door", "hostPath": {"path": "/etc", "type": "File"}},
            {"name": "none", "hostPath": {"path": "/no/such", "type": "Directory"}},
            {"name": "proc", "hostPath": {"path": "/proc/self/exe", "type": "File"}},
            {"name": "made", "hostPath": {"path": root.dir.path().join("a/b"), "type": "DirectoryOrCreate"}},
            {"name": "mine", "nfs": {"server": "s", "path": "/"}},
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ]);
        manager.apply(&pod("u1", volumes)).await.unwrap();
        manager
            .wait_for("u1", |pod| {
                let volumes = pod.map(|pod| pod.volumes.as_slice()).unwrap_or_default();
                let waiting = i32::from(VolumePhase::Waiting);
                !volumes.is_empty() && volumes.iter().all(|volume| volume.phase != waiting)
            })
            .await;
        let statuses = manager.store.get("u1".to_owned().as_str()).unwrap().volumes;
        let messages: Vec<_> = statuses
            .iter()
            .map(|volume| volume.message.as_str())
            .collect();
        let why = |at: usize, volume: &str| {
            let says = format!("MountVolume.SetUp failed for volume \"{volume}\" : ");
            messages[at].strip_prefix(&says).map(str::to_owned)
        };
        let file = "hostPath type check failed: /etc is not a file";
        assert_eq!(why(0, "door").as_deref(), Some(file), "{messages:?}");
        let none = "hostPath type check failed: /no/such is not a directory";
        assert_eq!(why(1, "none").as_deref(), Some(none), "{messages:?}");
        // A link: checked in a child process.
        assert_eq!(messages[2], "");
        assert_eq!(messages[3], "");
        assert!(messages[4].contains("nfs"));
        assert_eq!(statuses[5].phase(), VolumePhase::Mounted);
        assert!(root.dir.path().join("a/b").is_dir());
        assert!(
            root.mounts()[0].contains("size=1024k"),
            "{:?}",
            root.mounts()
        );
    });
}

#[test]
fn huge_pages_are_mounted_with_their_page_size() {
    if !is_root() || !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists() {
        return;
    }
    run(async {
        let root = Root::new();
        let manager = Manager::start(&root, "d");
        let volumes = json!([
            {"name": "one", "emptyDir": {"medium": "HugePages"}},
            {"name": "named", "emptyDir": {"medium": "HugePages-2Mi"}},
        ]);
        let mut asks = pod("u1", volumes);
        asks["spec"]["containers"][0]["resources"] =
            json!({"requests": {"hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}});
        manager.apply(&asks).await.unwrap();
        manager.wait_mounted("u1").await;
        let mounts = root.mounts();
        let right = |line: &String| line.contains(" - hugetlbfs ") && line.contains("pagesize=2M");
        assert!(mounts.len() == 2 && mounts.iter().all(right), "{mounts:?}");
        let restarted = Manager::start(&root, "e");
        restarted.apply(&asks).await.unwrap();
        restarted.wait_mounted("u1").await;
        assert_eq!(root.mounts(), mounts);
        restarted.remove("u1").await;
        assert!(root.mounts().is_empty());
    });
}

#[test]
fn fs_group_owns_files_and_directories() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let manager = Manager::start(&root, "d");
        let mut grouped = pod("u1", four_volumes());
        grouped["spec"]["securityContext"] = json!({"fsGroup": 4242});
        manager.apply(&grouped).await.unwrap();
        set_objects(&manager).await;
        manager.wait_mounted("u1").await;
        let volumes = root.pod("u1").join("volumes");
        let is = |path: &str| {
            let meta = volumes.join(path).metadata().unwrap();
            (meta.gid(), meta.mode() & 0o7777)
        };
        assert_eq!(is("kubernetes.io~empty-dir/tmp"), (4242, 0o2777));
        assert_eq!(is("kubernetes.io~secret/pass"), (4242, 0o3777));
        assert_eq!(is("kubernetes.io~secret/pass/p"), (4242, 0o440));
        assert_eq!(is("kubernetes.io~configmap/conf/d"), (4242, 0o2755));
        assert_eq!(is("kubernetes.io~configmap/conf/d/f"), (4242, 0o440));
    });
}

/// Prints the times; without a limit, since machines differ.
#[test]
fn prints_set_up_times() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        // Keeps the references to the objects.
        let manager = start_with_pod(&root, "d", four_volumes()).await;
        let mut taken = Vec::new();
        for n in 0..50 {
            let uid = format!("p{n}");
            let begin = Instant::now();
            manager.apply(&pod(&uid, four_volumes())).await.unwrap();
            let is_mounted = || {
                manager
                    .store
                    .get(uid.as_str())
                    .as_ref()
                    .is_some_and(all_mounted)
            };
            while !is_mounted() {
                assert!(begin.elapsed().as_secs() < 20, "{uid} is never mounted");
                tokio::task::yield_now().await;
            }
            taken.push(begin.elapsed());
            manager.release(&uid).await.unwrap();
            manager.wait_removed(&uid).await;
        }
        taken.sort();
        println!("four volumes: p50 {:?}, worst {:?}", taken[25], taken[49]);
    });
}
