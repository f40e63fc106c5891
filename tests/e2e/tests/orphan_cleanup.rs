//! Orphaned resources of pods are found and removed, and nothing else is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, PodView};
use serde_json::json;

const ORPHAN_UID: &str = "11111111-2222-3333-4444-555555555555";
/// The directory at the root of every new ext4 file system.
const UNRELATED: &str = "lost+found";

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn orphaned_pod_resources_are_removed() {
    let mut node = node().await;
    let emptydir = json!({
        "volumes": [{ "name": "e", "emptyDir": {} }],
        "container": { "volumeMounts": [{ "name": "e", "mountPath": "/e" }] },
    });
    ok(node.put("stays.json", &pod("stays", RUNS, &emptydir)));
    let crashes = json!({ "restartPolicy": "Always" });
    let script = "echo run; test $(ls /tmp | wc -l) = 0";
    ok(node.put("crashes.json", &pod("crashes", script, &crashes)));
    let stays = ok(node.wait_ready("stays").await);

    let mut steps = Steps::new();
    steps
        .run(
            "the last exited container is kept",
            last_exited_container_is_kept(&node),
        )
        .await;
    let unrelated = steps
        .require("orphaned resources are removed", async {
            node.down();
            let orphans = create_orphans(&node);
            let unrelated = create_unrelated_dir(&node);
            ok(node.up().await);
            let poll = || async {
                let left: Vec<&PathBuf> = orphans
                    .iter()
                    .filter(|r| r.symlink_metadata().is_ok())
                    .collect();
                if left.is_empty() {
                    Poll::Ready(())
                } else {
                    Poll::Pending(format!("{left:?}"))
                }
            };
            ok(until("orphaned resources to be removed", poll).await);
            unrelated
        })
        .await;
    steps
        .run("other resources are kept", async {
            // Unrelated files.
            assert!(unrelated.join("file").is_file(), "{}", unrelated.display());
            let after = ok(node.wait_ready("stays").await);
            assert_eq!(after.identity(), stays.identity());
            assert_resources_exist(&node, &stays);
            let names = ok(node.pods().await);
            assert!(
                names.iter().all(|pod| pod.uid != ORPHAN_UID),
                "an orphan is not reported as a pod"
            );
        })
        .await;
    steps
        .run("pods are removed", async {
            for name in ["stays", "crashes"] {
                ok(node.take(&format!("{name}.json")));
            }
            for name in ["stays", "crashes"] {
                ok(node.wait_gone(name).await);
            }
            assert_eq!(files(&node.dirs().links), Vec::<String>::new());
            assert_eq!(files(&node.dirs().logs), Vec::<String>::new());
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// A start that is given up at the wrong moment leaves containerd with a task of a container that it reports as
/// not running, and that it does not remove because of it.
#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn leftover_task_of_a_container_is_ended() {
    let node = node().await;
    // Exits twice, and waits for the end of its back-off; started by anything else it runs for ever.
    let script = format!("test $(ls /e | wc -l) -ge 2 || {{ mktemp /e/XXXXXX; exit 1; }}; {RUNS}");
    let fields = json!({
        "restartPolicy": "Always",
        "volumes": [{ "name": "e", "emptyDir": {} }],
        "container": { "volumeMounts": [{ "name": "e", "mountPath": "/e" }] },
    });
    ok(node.put("again.json", &pod("again", &script, &fields)));
    let is_waiting = |pod: &PodView| {
        let container = &pod.status["containerStatuses"][0];
        container["restartCount"] == 1
            && container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let waiting = ok(node.wait_pod("again", "to back off", is_waiting).await);
    let id = waiting.container("main").expect("it has exited").id;
    let id = id.trim_start_matches("containerd://");
    ok(node.containerd.start_unknown_task(id));
    assert!(ok(node.containerd.tasks()).contains(&id.to_owned()));
    ok(node.take("again.json"));
    ok(node.wait_gone("again").await);
    assert!(!ok(node.containerd.tasks()).contains(&id.to_owned()));
    ok(node.remove());
}

/// Of a crash-looping container the last instance and its log are kept.
async fn last_exited_container_is_kept(node: &Node) {
    let restarted_twice = |pod: &PodView| {
        pod.container("main")
            .is_some_and(|c| c.restarts >= 2 && c.state != "running")
    };
    let pod = ok(node
        .wait_pod("crashes", "to have ended three times", restarted_twice)
        .await);
    let folder = log_dir(node, &pod).join("main");
    let poll = || async {
        let cri = ok(node.containerd.cri().containers().await);
        let instances = cri
            .iter()
            .filter(|one| one.labels.get("io.kubernetes.pod.uid") == Some(&pod.uid));
        let (records, logs) = (instances.count(), files(&folder));
        if records == 1 && logs.len() == 1 {
            Poll::Ready(())
        } else {
            Poll::Pending(format!("{records} records, {logs:?}"))
        }
    };
    ok(until("one ended container and its log", poll).await);
}

/// Creates the remains of an interrupted removal and returns the paths that must be removed.
fn create_orphans(node: &Node) -> Vec<PathBuf> {
    let dirs = node.dirs();
    let pod = dirs.root.join("pods").join(ORPHAN_UID);
    ok(fs::create_dir_all(pod.join("containers/main")));
    ok(fs::write(
        pod.join("containers/main/12345678"),
        "last words",
    ));
    ok(fs::write(pod.join("etc-hosts"), ""));
    ok(fs::create_dir_all(
        pod.join("volumes/kubernetes.io~empty-dir/e"),
    ));
    let logs = dirs.logs.join(format!("default_lost_{ORPHAN_UID}"));
    ok(fs::create_dir_all(logs.join("main")));
    ok(fs::write(logs.join("main/0.log"), ""));
    let link = dirs.links.join("lost_default_main-0123456789abcdef.log");
    ok(symlink(dirs.logs.join("default_older_x/main/0.log"), &link));
    // A minute old: a younger one may belong to a container that is being created.
    let aged = std::process::Command::new("touch")
        .args(["-h", "-d", "2020-01-01"])
        .arg(&link)
        .status();
    assert!(ok(aged).success());
    let state = dirs
        .state
        .join("sync-coordinator/checkpoints")
        .join(format!("{ORPHAN_UID}.json"));
    ok(fs::copy(orphaned_checkpoint(&state), &state));
    let attempt = dirs
        .run
        .join("sync-coordinator/sandbox_attempts")
        .join(format!("{ORPHAN_UID}.json"));
    ok(fs::create_dir_all(attempt.parent().unwrap()));
    ok(fs::write(&attempt, r#"{"version":1,"data":0}"#));
    let mut orphans = vec![pod, logs, link, state, attempt];
    orphans.extend(cgroups(node));
    orphans
}

/// The checkpoint of another pod, as a template.
fn orphaned_checkpoint(state: &Path) -> PathBuf {
    let folder = state.parent().unwrap();
    let name = files(folder).into_iter().next();
    folder.join(name.expect("a checkpoint of a running pod"))
}

/// Empty cgroups of a pod in this machine's hierarchies.
fn cgroups(node: &Node) -> Vec<PathBuf> {
    let below = format!(
        "{}/kubepods/besteffort",
        node.cgroup().trim_start_matches('/')
    );
    let mounts = ["", "memory", "cpu", "pids"].map(|name| Path::new("/sys/fs/cgroup").join(name));
    let classes = mounts.into_iter().map(|mount| mount.join(&below));
    let existing = classes.filter(|class| class.is_dir());
    let created: Vec<PathBuf> = existing
        .map(|class| class.join(format!("pod{ORPHAN_UID}")))
        .collect();
    for cgroup in &created {
        ok(fs::create_dir_all(cgroup));
    }
    assert!(!created.is_empty(), "no cgroup of pods below {below}");
    created
}

/// An entry of the pods' directory that is not a pod.
fn create_unrelated_dir(node: &Node) -> PathBuf {
    let unrelated = node.dirs().root.join("pods").join(UNRELATED);
    ok(fs::create_dir_all(&unrelated));
    ok(fs::write(unrelated.join("file"), "keep me"));
    unrelated
}

fn assert_resources_exist(node: &Node, pod: &PodView) {
    let dirs = node.dirs();
    let pod_dir = dirs.root.join("pods").join(&pod.uid);
    assert!(pod_dir.join("etc-hosts").is_file());
    assert!(pod_dir.join("volumes/kubernetes.io~empty-dir/e").is_dir());
    assert!(log_dir(node, pod).join("main/0.log").is_file());
    let links = files(&dirs.links);
    assert!(
        links
            .iter()
            .any(|name| name.starts_with("stays-node_default_main-")),
        "{links:?}"
    );
}

fn log_dir(node: &Node, pod: &PodView) -> PathBuf {
    let name = format!("default_{}_{}", pod.name, pod.uid);
    node.dirs().logs.join(name)
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
