//! What pods leave behind when nobody is there to clear it away: found and removed, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Node, PodView};
use serde_json::json;

const GONE: &str = "11111111-2222-3333-4444-555555555555";
/// What every new file system of its own has at its root.
const HELD: &str = "lost+found";

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn what_pods_left_is_removed_and_nothing_else() {
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
    one_ended_container_is_kept(&node).await;

    node.down();
    let relics = leave_behind(&node);
    let held = hold(&node);
    ok(node.up().await);
    let look = || async {
        let left: Vec<&PathBuf> = relics
            .iter()
            .filter(|r| r.symlink_metadata().is_ok())
            .collect();
        if left.is_empty() {
            Look::Done(())
        } else {
            Look::NotYet(format!("{left:?}"))
        }
    };
    ok(until("everything of pods that are no more to go", look).await);

    // Something of somebody else's.
    assert!(held.join("file").is_file(), "{}", held.display());
    let after = ok(node.wait_ready("stays").await);
    assert_eq!(after.identity(), stays.identity());
    everything_of(&node, &stays);
    let names = ok(node.pods().await);
    assert!(names.iter().all(|pod| pod.uid != GONE), "it is no pod");

    for name in ["stays", "crashes"] {
        ok(node.take(&format!("{name}.json")));
    }
    for name in ["stays", "crashes"] {
        ok(node.wait_gone(name).await);
    }
    assert_eq!(files(&node.dirs().links), Vec::<String>::new());
    assert_eq!(files(&node.dirs().logs), Vec::<String>::new());
    ok(node.remove());
}

/// Of a container that ends again and again the last end is kept, with its log.
async fn one_ended_container_is_kept(node: &Node) {
    let thrice = |pod: &PodView| {
        pod.container("main")
            .is_some_and(|c| c.restarts >= 2 && c.state != "running")
    };
    let pod = ok(node
        .wait_pod("crashes", "to have ended three times", thrice)
        .await);
    let folder = logs_of(node, &pod).join("main");
    let look = || async {
        let cri = ok(node.containerd.cri().containers().await);
        let mine = cri
            .iter()
            .filter(|one| one.labels.get("io.kubernetes.pod.uid") == Some(&pod.uid));
        let (records, logs) = (mine.count(), files(&folder));
        if records == 1 && logs.len() == 1 {
            Look::Done(())
        } else {
            Look::NotYet(format!("{records} records, {logs:?}"))
        }
    };
    ok(until("one ended container and its log", look).await);
}

/// As a node that lost power would, in the middle of it. Gives what has to go.
fn leave_behind(node: &Node) -> Vec<PathBuf> {
    let dirs = node.dirs();
    let pod = dirs.root.join("pods").join(GONE);
    ok(fs::create_dir_all(pod.join("containers/main")));
    ok(fs::write(
        pod.join("containers/main/12345678"),
        "last words",
    ));
    ok(fs::write(pod.join("etc-hosts"), ""));
    ok(fs::create_dir_all(
        pod.join("volumes/kubernetes.io~empty-dir/e"),
    ));
    let logs = dirs.logs.join(format!("default_lost_{GONE}"));
    ok(fs::create_dir_all(logs.join("main")));
    ok(fs::write(logs.join("main/0.log"), ""));
    let link = dirs.links.join("lost_default_main-0123456789abcdef.log");
    ok(symlink(dirs.logs.join("default_older_x/main/0.log"), &link));
    // A minute old: a younger one may be of a container that is being made.
    let aged = std::process::Command::new("touch")
        .args(["-h", "-d", "2020-01-01"])
        .arg(&link)
        .status();
    assert!(ok(aged).success());
    let state = dirs
        .state
        .join("sync-coordinator/pods")
        .join(format!("{GONE}.json"));
    ok(fs::copy(a_journal(&state), &state));
    let intent = dirs.run.join("sync-coordinator/intents").join(GONE);
    ok(fs::create_dir_all(intent.parent().unwrap()));
    ok(fs::write(&intent, "0"));
    let mut relics = vec![pod, logs, link, state, intent];
    relics.extend(cgroups(node));
    relics
}

/// Any other pod's entry, for its form.
fn a_journal(state: &Path) -> PathBuf {
    let folder = state.parent().unwrap();
    let name = files(folder).into_iter().next();
    folder.join(name.expect("an entry of a pod that runs"))
}

/// Empty cgroups of a pod, where this machine's kernel has them.
fn cgroups(node: &Node) -> Vec<PathBuf> {
    let below = format!(
        "{}/kubepods/besteffort",
        node.cgroup().trim_start_matches('/')
    );
    let mounts = ["", "memory", "cpu", "pids"].map(|name| Path::new("/sys/fs/cgroup").join(name));
    let classes = mounts.into_iter().map(|mount| mount.join(&below));
    let there = classes.filter(|class| class.is_dir());
    let made: Vec<PathBuf> = there
        .map(|class| class.join(format!("pod{GONE}")))
        .collect();
    for cgroup in &made {
        ok(fs::create_dir_all(cgroup));
    }
    assert!(!made.is_empty(), "no cgroup of pods below {below}");
    made
}

/// Something among the pods' directories that is none.
fn hold(node: &Node) -> PathBuf {
    let held = node.dirs().root.join("pods").join(HELD);
    ok(fs::create_dir_all(&held));
    ok(fs::write(held.join("file"), "keep me"));
    held
}

fn everything_of(node: &Node, pod: &PodView) {
    let dirs = node.dirs();
    let own = dirs.root.join("pods").join(&pod.uid);
    assert!(own.join("etc-hosts").is_file());
    assert!(own.join("volumes/kubernetes.io~empty-dir/e").is_dir());
    assert!(logs_of(node, pod).join("main/0.log").is_file());
    let links = files(&dirs.links);
    assert!(
        links
            .iter()
            .any(|name| name.starts_with("stays-node_default_main-")),
        "{links:?}"
    );
}

fn logs_of(node: &Node, pod: &PodView) -> PathBuf {
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
