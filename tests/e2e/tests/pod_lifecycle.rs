//! One static pod through every service: start, restart, change and removal with all its resources.

use std::fs;
use std::path::Path;

use polylet_e2e::steps::Steps;
use polylet_e2e::{EXAMPLE, RUNS, example, node, ok};
use polylet_harness::{Node, PodView, cgroup, http, machine, procs};
use rustix::process::Signal;
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn static_pod_starts_restarts_and_is_removed() {
    let mut node = node().await;
    let mut steps = Steps::new();
    let pod = steps.require("the pod starts", example(&node)).await;
    steps
        .run("status is complete", async { status_is_complete(&pod) })
        .await;
    steps.run("server responds", server_responds(&pod)).await;
    steps
        .run("directories exist", async {
            directories_exist(&node, &pod)
        })
        .await;
    let pod = steps
        .require("container restarts", container_restarts(&node, &pod))
        .await;
    let pod = steps
        .require(
            "pod changes with its manifest",
            pod_changes_with_its_manifest(&node, &pod),
        )
        .await;
    steps
        .run(
            "pod whose manifest is written again starts over",
            pod_starts_over(&mut node, &pod),
        )
        .await;
    steps
        .run("all resources are removed", async {
            ok(node.take("beside.json"));
            ok(node.wait_gone("beside").await);
            ok(node.take("pod.yaml"));
            ok(node.wait_gone("web").await);
            all_resources_are_removed(&node, &pod);
        })
        .await;
    steps.finish();
    ok(node.remove());
}

fn status_is_complete(pod: &PodView) {
    assert_eq!(pod.phase(), "Running");
    assert_eq!(pod.status["qosClass"], "Burstable");
    assert_eq!(pod.status["podIPs"][0]["ip"], pod.ip());
    assert!(pod.status["startTime"].is_string(), "{}", pod.status);
    for kind in [
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodReadyToStartContainers",
    ] {
        let condition = pod
            .condition(kind)
            .unwrap_or_else(|| panic!("no condition {kind}"));
        assert_eq!(condition["status"], "True", "{condition}");
        assert!(condition["lastTransitionTime"].is_string(), "{condition}");
    }
    let page = pod.container("page").unwrap();
    assert_eq!(
        (page.state.as_str(), page.exit_code),
        ("terminated", Some(0)),
        "{page:?}"
    );
    assert_eq!(page.reason, "Completed");
    let server = pod.container("server").unwrap();
    assert!(server.ready && server.restarts == 0, "{server:?}");
    assert!(server.id.starts_with("containerd://"), "{server:?}");
}

async fn server_responds(pod: &PodView) {
    let answer = ok(http::get(pod.ip(), 8080, "/").await);
    assert_eq!(answer.code(), 200, "{answer:?}");
    for part in ["Hello from a pod", "web-node", "28 bytes"] {
        assert!(answer.body.contains(part), "no {part:?} in {}", answer.body);
    }
}

/// Directories have upstream's names, which other tools on a node rely on.
fn directories_exist(node: &Node, pod: &PodView) {
    let dirs = node.dirs();
    let files = dirs.root.join("pods").join(&pod.uid);
    let volumes = files.join("volumes");
    let greeting = volumes.join("kubernetes.io~configmap/config/greeting");
    assert!(ok(fs::read_to_string(greeting)).starts_with("Hello"));
    assert!(
        volumes
            .join("kubernetes.io~secret/secret/password")
            .exists()
    );
    assert!(
        volumes
            .join("kubernetes.io~empty-dir/www/index.html")
            .exists()
    );
    assert!(files.join("etc-hosts").exists());

    let logs = dirs.logs.join(format!("default_{}_{}", pod.name, pod.uid));
    assert!(logs.join("server/0.log").exists(), "{}", logs.display());
    let links = entries(&dirs.links);
    let link = format!("{}_default_server-", pod.name);
    assert!(
        links.iter().any(|name| name.starts_with(&link)),
        "{links:?}"
    );
    assert!(!cgroups_of(node, &pod.uid).is_empty());
}

/// The server is killed; the pod gets a new container and becomes Ready again.
async fn container_restarts(node: &Node, pod: &PodView) -> PodView {
    let before = pod.container("server").unwrap();
    kill_container(node, pod, "httpd");
    let restarted = |pod: &PodView| {
        let server = pod.container("server");
        pod.is_ready() && server.is_some_and(|server| server.restarts == 1)
    };
    let after = ok(node
        .wait_pod("web", "to be restarted and Ready", restarted)
        .await);
    let server = after.container("server").unwrap();
    assert_ne!(server.id, before.id);
    assert_eq!(after.uid, pod.uid);
    assert_eq!(after.ip(), pod.ip());
    assert_eq!(after.container("page"), pod.container("page"));
    after
}

/// A changed static pod is a new pod that starts after the old one is gone.
async fn pod_changes_with_its_manifest(node: &Node, pod: &PodView) -> PodView {
    let (_, text) = EXAMPLE[2];
    ok(node.put("pod.yaml", &text.replace("app: web", "app: web2")));
    let changed = |now: &PodView| now.is_ready() && now.uid != pod.uid;
    let after = ok(node
        .wait_pod("web", "to be a new pod and Ready", changed)
        .await);
    assert_eq!(after.manifest["metadata"]["labels"]["app"], "web2");
    assert_eq!(after.container("server").unwrap().restarts, 0);
    all_resources_are_removed(node, pod);
    after
}

/// A manifest that is deleted and written again at once: its pod has new containers with the next restart
/// count, once, while another pod goes on.
async fn pod_starts_over(node: &mut Node, pod: &PodView) {
    ok(node.put("beside.json", &polylet_e2e::pod("beside", RUNS, &json!({}))));
    let beside = ok(node.wait_ready("beside").await);
    let manifest = node.dirs().manifests.join("pod.yaml");
    let text = ok(fs::read_to_string(&manifest));
    ok(fs::remove_file(&manifest));
    ok(fs::write(&manifest, text));
    let is_again = |now: &PodView| {
        let server = now.container("server");
        now.is_ready() && server.is_some_and(|server| server.restarts == 1)
    };
    let after = ok(node
        .wait_pod("web", "to have started over and be Ready", is_again)
        .await);
    assert_eq!(after.uid, pod.uid);
    let ids = |pod: &PodView| -> Vec<_> { pod.containers().into_iter().map(|c| c.id).collect() };
    let former = ids(pod);
    assert!(ids(&after).iter().all(|id| !former.contains(id)));
    // Not once more by services that did not see it.
    for service in ["pod-config", "sync-coordinator"] {
        ok(node.kill(service).await);
    }
    ok(node.wait_in_step().await);
    let later = ok(node.wait_ready("web").await);
    assert_eq!(ids(&later), ids(&after));
    assert_eq!(ids(&ok(node.wait_ready("beside").await)), ids(&beside));
}

fn all_resources_are_removed(node: &Node, pod: &PodView) {
    let remaining = || {
        let dirs = node.dirs();
        let mut left: Vec<String> = node
            .mounts()
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        left.retain(|path| path.contains(&pod.uid));
        left.extend(cgroups_of(node, &pod.uid));
        let files = [dirs.root.join("pods").join(&pod.uid)];
        left.extend(
            files
                .iter()
                .filter(|path| path.exists())
                .map(|path| path.display().to_string()),
        );
        left
    };
    // The status is removed first, the last directories a moment later.
    polylet_harness::wait::until_blocking(polylet_harness::wait::timeout(), || {
        remaining().is_empty()
    });
    assert_eq!(remaining(), Vec::<String>::new());
}

/// Cgroups named after the pod's uid, with dashes or, for systemd, underscores.
fn cgroups_of(node: &Node, uid: &str) -> Vec<String> {
    let names = [uid.to_owned(), uid.replace('-', "_")];
    let mut found = Vec::new();
    let mut queue = cgroup::existing(node.cgroup());
    while let Some(dir) = queue.pop() {
        let text = dir.display().to_string();
        if names.iter().any(|name| text.contains(name)) {
            found.push(text);
        }
        let below = fs::read_dir(&dir).into_iter().flatten().flatten();
        queue.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    found
}

/// Kills the processes of that name in the pod's cgroups.
fn kill_container(node: &Node, pod: &PodView, name: &str) {
    let mut killed = 0;
    for dir in cgroups_of(node, &pod.uid) {
        let pids = fs::read_to_string(Path::new(&dir).join("cgroup.procs")).unwrap_or_default();
        for pid in pids.lines().filter_map(|pid| pid.parse().ok()) {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if comm.trim() == name && procs::alive(pid) {
                machine::signal(pid, Signal::KILL);
                killed += 1;
            }
        }
    }
    assert!(killed > 0, "no process {name} in the pod's cgroups");
}

fn entries(dir: &Path) -> Vec<String> {
    let all = fs::read_dir(dir).into_iter().flatten().flatten();
    all.map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
