//! Volumes on the real kernel: tmpfs mounts, files, restarts, orphans. Needs root.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Instant;

use common::{Life, Root, all_mounted, eventually, is_root, pod, run};
use polylet_volume_manager::core::objects::ObjectKind::{ConfigMap, Secret};
use polylet_wire::volume::v1::VolumePhase;
use serde_json::{Value, json};

fn four() -> Value {
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

async fn started(root: &Root, declarer: &str, volumes: Value) -> Life {
    let life = Life::start(root, declarer);
    life.apply(&pod("u1", volumes)).await.unwrap();
    objects(&life).await;
    life.mounted("u1").await;
    life
}

async fn objects(life: &Life) {
    life.object(ConfigMap, "c", Some(json!({"k": "one"}))).await;
    life.object(Secret, "s", Some(json!({"p": "c2VjcmV0"})))
        .await;
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn volumes_come_and_go() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let life = started(&root, "d", four()).await;
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

        life.release("u1").await.unwrap();
        life.gone("u1").await;
        assert!(root.mounts().is_empty());
        assert!(!root.pod("u1").exists());
        assert!(
            life.watched
                .borrow()
                .values()
                .all(|token| token.is_cancelled())
        );
    });
}

#[test]
fn a_change_is_swapped_in() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let life = started(&root, "d", four()).await;
        let me = root.pod("u1").join("volumes/kubernetes.io~projected/me");
        let before = fs::read_link(me.join("..data")).unwrap();
        life.object(ConfigMap, "c", Some(json!({"k": "two", "new": "n"})))
            .await;
        eventually("the new key", || me.join("new").exists()).await;
        assert_eq!(fs::read_to_string(me.join("k")).unwrap(), "two");
        assert_ne!(fs::read_link(me.join("..data")).unwrap(), before);
        assert!(!me.join(before).exists());
        // Labels change in place, too.
        let mut changed = pod("u1", four());
        changed["metadata"]["labels"]["a"] = json!("2");
        life.apply(&changed).await.unwrap();
        let labels = || fs::read_to_string(me.join("labels")).unwrap();
        eventually("the new labels", || labels() == "a=\"2\"").await;
    });
}

#[test]
fn a_restart_changes_nothing() {
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
        let life = started(&root, "d", volumes(four())).await;
        let note = root.layout().note("u1");
        eventually("the pod's note", || note.is_file()).await;
        let tmp = root.pod("u1").join("volumes/kubernetes.io~empty-dir/tmp");
        fs::set_permissions(&tmp, fs::Permissions::from_mode(0o700)).unwrap();
        life.end();
        let (files, mounts) = (root.everything(), root.mounts());

        let life = Life::start(&root, "e");
        // Known before anybody declares it, by name and with every volume.
        life.mounted("u1").await;
        let shown = life.store.get(&"u1".to_owned()).unwrap();
        assert_eq!(shown.volumes.len(), 5);
        assert_eq!(shown.r#ref.unwrap().name, "pod-u1");
        life.apply(&pod("u1", volumes(four()))).await.unwrap();
        assert!(all_mounted(&life.store.get(&"u1".to_owned()).unwrap()));
        objects(&life).await;
        life.complete(1).await.unwrap();
        // Every step has ended when the next pod, set up after them, is there.
        life.apply(&pod("u2", json!([{"name": "tmp", "emptyDir": {}}])))
            .await
            .unwrap();
        life.mounted("u2").await;
        life.release("u2").await.unwrap();
        life.gone("u2").await;
        assert_eq!(root.mounts(), mounts);
        let mut now = root.everything();
        let mut then = files;
        // The directory of pods itself has seen u2.
        now.retain(|path, _| path.starts_with(root.pod("u1")));
        then.retain(|path, _| path.starts_with(root.pod("u1")));
        assert_eq!(now, then);
    });
}

#[test]
fn orphans_go_only_after_all_is_declared() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        started(&root, "d", four()).await.end();
        fs::create_dir_all(root.pod("stray").join("volumes/kubernetes.io~csi/x")).unwrap();
        let life = Life::start(&root, "e");
        life.apply(&pod("u2", json!([{"name": "tmp", "emptyDir": {}}])))
            .await
            .unwrap();
        life.mounted("u2").await;
        assert!(life.complete(2).await.is_err());
        assert!(root.pod("u1").exists() && root.mounts().len() == 2);
        life.complete(1).await.unwrap();
        life.gone("u1").await;
        life.gone("stray").await;
        assert!(!root.pod("u1").exists() && !root.pod("stray").exists() && root.pod("u2").exists());
        assert!(root.mounts().is_empty());
    });
}

#[test]
fn what_is_not_ours_is_never_deleted() {
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
        let life = Life::start(&root, "d");
        life.complete(0).await.unwrap();
        life.until("u1", |pod| {
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
fn each_failure_stays_with_its_volume() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let life = Life::start(&root, "d");
        let volumes = json!([
            {"name": "door", "hostPath": {"path": "/etc", "type": "File"}},
            {"name": "none", "hostPath": {"path": "/no/such", "type": "Directory"}},
            {"name": "proc", "hostPath": {"path": "/proc/self/exe", "type": "File"}},
            {"name": "made", "hostPath": {"path": root.dir.path().join("a/b"), "type": "DirectoryOrCreate"}},
            {"name": "mine", "nfs": {"server": "s", "path": "/"}},
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ]);
        life.apply(&pod("u1", volumes)).await.unwrap();
        life.until("u1", |pod| {
            let volumes = pod.map(|pod| pod.volumes.as_slice()).unwrap_or_default();
            let waiting = i32::from(VolumePhase::Waiting);
            !volumes.is_empty() && volumes.iter().all(|volume| volume.phase != waiting)
        })
        .await;
        let told = life.store.get(&"u1".to_owned()).unwrap().volumes;
        let messages: Vec<_> = told.iter().map(|volume| volume.message.as_str()).collect();
        let why = |at: usize, volume: &str| {
            let says = format!("MountVolume.SetUp failed for volume \"{volume}\" : ");
            messages[at].strip_prefix(&says).map(str::to_owned)
        };
        let file = "hostPath type check failed: /etc is not a file";
        assert_eq!(why(0, "door").as_deref(), Some(file), "{messages:?}");
        let none = "hostPath type check failed: /no/such is not a directory";
        assert_eq!(why(1, "none").as_deref(), Some(none), "{messages:?}");
        // A link: looked at in a child.
        assert_eq!(messages[2], "");
        assert_eq!(messages[3], "");
        assert!(messages[4].contains("nfs"));
        assert_eq!(told[5].phase(), VolumePhase::Mounted);
        assert!(root.dir.path().join("a/b").is_dir());
        assert!(
            root.mounts()[0].contains("size=1024k"),
            "{:?}",
            root.mounts()
        );
    });
}

#[test]
fn huge_pages_are_mounted_by_their_size() {
    if !is_root() || !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists() {
        return;
    }
    run(async {
        let root = Root::new();
        let life = Life::start(&root, "d");
        let volumes = json!([
            {"name": "one", "emptyDir": {"medium": "HugePages"}},
            {"name": "named", "emptyDir": {"medium": "HugePages-2Mi"}},
        ]);
        let mut asks = pod("u1", volumes);
        asks["spec"]["containers"][0]["resources"] =
            json!({"requests": {"hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}});
        life.apply(&asks).await.unwrap();
        life.mounted("u1").await;
        let mounts = root.mounts();
        let right = |line: &String| line.contains(" - hugetlbfs ") && line.contains("pagesize=2M");
        assert!(mounts.len() == 2 && mounts.iter().all(right), "{mounts:?}");
        let again = Life::start(&root, "e");
        again.apply(&asks).await.unwrap();
        again.mounted("u1").await;
        assert_eq!(root.mounts(), mounts);
        again.release("u1").await.unwrap();
        again.gone("u1").await;
        assert!(root.mounts().is_empty());
    });
}

#[test]
fn groups_own_what_they_should() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let life = Life::start(&root, "d");
        let mut grouped = pod("u1", four());
        grouped["spec"]["securityContext"] = json!({"fsGroup": 4242});
        life.apply(&grouped).await.unwrap();
        objects(&life).await;
        life.mounted("u1").await;
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

/// Told for people; a shared machine sets no limit.
#[test]
fn setting_up_is_quick() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        // Refers to the objects all the time, so that they are known.
        let life = started(&root, "d", four()).await;
        let mut taken = Vec::new();
        for n in 0..50 {
            let uid = format!("p{n}");
            let begin = Instant::now();
            life.apply(&pod(&uid, four())).await.unwrap();
            let is_there = || life.store.get(&uid).as_ref().is_some_and(all_mounted);
            while !is_there() {
                assert!(begin.elapsed().as_secs() < 20, "{uid} is never mounted");
                tokio::task::yield_now().await;
            }
            taken.push(begin.elapsed());
            life.release(&uid).await.unwrap();
            life.gone(&uid).await;
        }
        taken.sort();
        println!("four volumes: p50 {:?}, worst {:?}", taken[25], taken[49]);
    });
}

#[test]
fn a_token_is_kept_fresh_and_what_is_missing_is_told() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let life = Life::start(&root, "d");
        let mut api = pod(
            "u1",
            json!([{"name": "access", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt"}},
            ]}}]),
        );
        api["spec"]["securityContext"] = json!({"runAsUser": 7, "fsGroup": 9});
        api["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "api"});
        life.apply(&api).await.unwrap();
        let keys = || life.tokens.borrow().keys().cloned().collect::<Vec<_>>();
        let map = life.watched.borrow().keys().next().cloned().unwrap();
        assert!(map.cluster, "{map}");
        let key = keys().pop().unwrap();
        life.token(&key, Err("the API server is away"), 0).await;
        let why = "MountVolume.SetUp failed for volume \"access\" : failed to fetch token: the API server is away";
        let says = |why: &'static str| {
            move |pod: Option<&polylet_wire::volume::v1::PodVolumes>| {
                pod.is_some_and(|pod| pod.volumes.iter().any(|v| v.message == why))
            }
        };
        life.until("u1", says(why)).await;
        life.token(&key, Ok("one"), 3600).await;
        life.known(
            map.clone(),
            polylet_volume_manager::core::objects::ObjectState::Absent,
        )
        .await;
        let missing = "MountVolume.SetUp failed for volume \"access\" : configmap \"kube-root-ca.crt\" not found";
        life.until("u1", says(missing)).await;
        assert_eq!(*life.notices.borrow(), [why, missing]);
        let there = br#"{"data": {"ca.crt": "x"}}"#;
        let there = polylet_volume_manager::core::objects::ObjectState::from_json(ConfigMap, there);
        life.known(map.clone(), there).await;
        life.mounted("u1").await;
        let file = root
            .pod("u1")
            .join("volumes/kubernetes.io~projected/access/token");
        let is = file.metadata().unwrap();
        assert_eq!((mode(&file), is.uid(), is.gid()), (0o640, 7, 9));
        assert_eq!(fs::read_to_string(&file).unwrap(), "one");
        // While a new one cannot be had the old one stays; then it is replaced in one move.
        life.token(&key, Err("away again"), 0).await;
        life.token(&key, Ok("two"), 3600).await;
        let token = || fs::read_to_string(&file).unwrap();
        eventually("the new token", || token() == "two").await;
        life.release("u1").await.unwrap();
        life.gone("u1").await;
        assert!(life.tokens.borrow()[&key].is_cancelled());
    });
}
