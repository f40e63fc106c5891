//! Local volumes on one node: content, permissions, subPaths, and updates, restarts, kills and
//! removal.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node, ok, pod, try_exec};
use polylet_harness::wait::{self, Poll};
use polylet_harness::{Node, PodView};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn local_volume_types() {
    let mut steps = Steps::new();
    let mut node = node().await;
    let host = node.scratch().join("host");
    ok(fs::create_dir_all(host.join("dir")));
    ok(fs::write(host.join("file"), "node"));
    settings(&node, Some("one"));
    let pods = [
        ("types", types()),
        ("parts", sub_paths(&host)),
        ("optional", optional()),
    ];
    for (name, text) in &pods {
        ok(node.put(&format!("{name}.json"), text));
    }
    steps
        .run(
            "invalid host paths are reported",
            invalid_host_paths_are_reported(&node, &host),
        )
        .await;
    ok(node.wait_ready("types").await);
    ok(node.wait_ready("optional").await);
    steps
        .run(
            "sub paths survive restarts",
            sub_paths_survive_restarts(&mut node),
        )
        .await;
    steps
        .run(
            "objects are updated and deleted",
            objects_are_updated_and_deleted(&node),
        )
        .await;
    steps
        .run("busy mount is retried", busy_mount_is_retried(&node))
        .await;
    for name in ["parts", "optional"] {
        ok(node.take(&format!("{name}.json")));
    }
    for name in ["parts", "optional"] {
        ok(node.wait_gone(name).await);
    }
    assert_eq!(node.mounts(), Vec::<PathBuf>::new());
    // Paths of the node are unchanged.
    assert_eq!(ok(fs::read_to_string(host.join("file"))), "node");
    steps.finish();
    ok(node.remove());
}

fn settings(node: &Node, value: Option<&str>) {
    let Some(value) = value else {
        return ok(node.take("settings.json"));
    };
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
        "data": { "key": value, "other": "same" },
    });
    ok(node.put("settings.json", &map.to_string()));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "login" },
        "stringData": { "user": "me" },
    });
    ok(node.put("login.json", &secret.to_string()));
}

fn mount(name: &str) -> Value {
    json!({ "name": name, "mountPath": format!("/{name}") })
}

fn mounts(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| mount(name)).collect()
}

/// Modes, owners, sizes and formats, as seen by a user with an fsGroup.
fn types() -> String {
    let check = [
        "set -e",
        "is() { test \"$1\" = \"$2\" || { echo \"$3: $1, not $2\"; exit 1; }; }",
        "of() { stat -Lc '%a %g' \"$1\"; }",
        "is \"$(of /disk)\" '2777 2000' disk",
        "is \"$(of /mem)\" '3777 2000' mem",
        "is \"$(df -k /mem | tail -1 | awk '{print $2}')\" 1024 size",
        "is \"$(df -k /bounded | tail -1 | awk '{print $2}')\" 65536 bounded",
        "is \"$(of /conf/key)\" '440 2000' mode",
        "is \"$(of /conf/deep/other)\" '640 2000' item",
        "is \"$(of /pass/user)\" '440 2000' secret",
        "is \"$(readlink /conf/key)\" ..data/key link",
        "is \"$(cat /down/labels)\" 'app=\"t\"' labels",
        "is \"$(cat /down/limit)\" 64 limit",
        "is \"$(cat /all/user)\" me projected",
        "touch /disk/mine /mem/mine",
        "for v in conf pass down all; do ! touch /$v/x 2>/dev/null; done",
    ];
    let items = json!([{ "key": "key", "path": "key" }, { "key": "other", "path": "deep/other", "mode": 416 }]);
    let down = json!([
        { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
        { "path": "limit", "resourceFieldRef": {
            "containerName": "main", "resource": "limits.memory", "divisor": "1Mi" } },
    ]);
    let more = json!({
        "securityContext": { "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000 },
        "volumes": [
            { "name": "disk", "emptyDir": {} },
            { "name": "mem", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
            { "name": "bounded", "emptyDir": { "medium": "Memory" } },
            { "name": "conf", "configMap": { "name": "settings", "defaultMode": 256, "items": items } },
            { "name": "pass", "secret": { "secretName": "login", "defaultMode": 256 } },
            { "name": "down", "downwardAPI": { "items": down } },
            { "name": "all", "projected": { "sources": [
                { "secret": { "name": "login" } }, { "configMap": { "name": "settings" } } ] } },
        ],
        "container": {
            "resources": { "limits": { "memory": "64Mi" } },
            "volumeMounts": mounts(&["disk", "mem", "bounded", "conf", "pass", "down", "all"]),
        },
    });
    let script = format!("( {} ) && {RUNS}", check.join("\n"));
    let mut pod: Value = ok(serde_json::from_str(&pod("types", &script, &more)));
    pod["metadata"]["labels"] = json!({ "app": "t" });
    pod["spec"]["restartPolicy"] = json!("Never");
    pod.to_string()
}

/// subPaths: created by an init container, by subPathExpr, of a file, and read-only.
fn sub_paths(host: &Path) -> String {
    let script = format!(
        "test \"$(cat /d/f)\" = init && test \"$(cat /file)\" = node && \
         test \"$(cat /key)\" = one && ! touch /whole/x 2>/dev/null && \
         ! touch /d-ro/x 2>/dev/null && echo run >> /logs/l && touch /d/kept && {RUNS}"
    );
    let more = json!({
        "volumes": [
            { "name": "data", "emptyDir": {} },
            { "name": "host", "hostPath": { "path": host } },
            { "name": "conf", "configMap": { "name": "settings" } },
        ],
        "initContainers": [{
            "name": "init", "image": "polylet-test:1", "command": ["sh", "-c", "echo init > /d/f"],
            "volumeMounts": [{ "name": "data", "mountPath": "/d", "subPath": "made/deep" }],
        }],
        "container": {
            "env": [{ "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
            "volumeMounts": [
                { "name": "data", "mountPath": "/d", "subPath": "made/deep" },
                { "name": "data", "mountPath": "/logs", "subPathExpr": "$(POD)/logs" },
                { "name": "data", "mountPath": "/whole", "readOnly": true },
                { "name": "host", "mountPath": "/file", "subPath": "file" },
                { "name": "conf", "mountPath": "/key", "subPath": "key" },
                { "name": "data", "mountPath": "/d-ro", "subPath": "made", "readOnly": true },
            ],
        },
    });
    pod("parts", &script, &more)
}

/// Optional objects that do not exist.
fn optional() -> String {
    let more = json!({
        "volumes": [
            { "name": "conf", "configMap": { "name": "nowhere", "optional": true } },
            { "name": "keys", "secret": { "secretName": "login", "optional": true,
                "items": [{ "key": "nothing", "path": "x" }] } },
        ],
        "container": { "volumeMounts": mounts(&["conf", "keys"]) },
    });
    let script = format!("test -z \"$(ls /conf /keys | grep -v :)\" && {RUNS}");
    pod("optional", &script, &more)
}

/// Each invalid hostPath is reported, delays no other pod, and is retried after a correction.
async fn invalid_host_paths_are_reported(node: &Node, host: &Path) {
    let path = |name: &str| host.join(name).display().to_string();
    let not = |name: &str, type_name: &str| {
        let path = path(name);
        format!("hostPath type check failed: {path} is not a {type_name}")
    };
    // A missing path is reported like one of the wrong type.
    let invalid = [
        ("hp-dir", "file", "Directory", not("file", "directory")),
        ("hp-file", "dir", "File", not("dir", "file")),
        ("hp-socket", "dir", "Socket", not("dir", "socket file")),
        (
            "hp-none",
            "none",
            "BlockDevice",
            not("none", "block device"),
        ),
        ("hp-late", "late", "Directory", not("late", "directory")),
    ];
    for (name, below, kind, _) in &invalid {
        let more = json!({
            "volumes": [{ "name": "h", "hostPath": { "path": path(below), "type": kind } }],
            "container": { "volumeMounts": [mount("h")] },
        });
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, &more)));
    }
    for (name, _, _, message) in &invalid {
        let reported = |pod: &PodView| pod.waiting_for.iter().any(|line| line.contains(message));
        ok(node
            .wait_pod(name, "to report its volume error", reported)
            .await);
    }
    ok(fs::create_dir(host.join("late")));
    ok(node.wait_ready("hp-late").await);
    for (name, ..) in &invalid {
        ok(node.take(&format!("{name}.json")));
    }
    for (name, ..) in &invalid {
        ok(node.wait_gone(name).await);
    }
}

/// subPath mounts survive restarts of the container and of the services.
async fn sub_paths_survive_restarts(node: &mut Node) {
    let before = ok(node.wait_ready("parts").await);
    let dir = node.dirs().root.join("pods").join(&before.uid);
    let places = [
        "data/init/0",
        "data/main/0",
        "data/main/1",
        "host/main/3",
        "conf/main/4",
        "data/main/5",
    ];
    let part_paths = |node: &Node| -> Vec<PathBuf> {
        let all = node.mounts().into_iter();
        let mut parts: Vec<_> = all
            .filter(|at| at.starts_with(dir.join("volume-subpaths")))
            .collect();
        parts.sort();
        parts
    };
    let mut expected = places
        .map(|directory| dir.join("volume-subpaths").join(directory))
        .to_vec();
    expected.sort();
    assert_eq!(part_paths(node), expected);
    let data = dir.join("volumes/kubernetes.io~empty-dir/data");
    let made = ok(fs::metadata(data.join("parts-node/logs")));
    assert_eq!(made.mode() & 0o7777, 0o777);

    // The call may fail, since it ends its own container.
    let _ = try_exec(node, &before, "main", "kill -TERM 1").await;
    let restarted =
        |pod: &PodView| pod.is_ready() && pod.container("main").is_some_and(|c| c.restarts == 1);
    let before = ok(node.wait_pod("parts", "to be restarted", restarted).await);
    assert_eq!(part_paths(node), expected);
    for service in ["volume-manager", "sync-coordinator"] {
        ok(node.kill(service).await);
    }
    ok(node.wait_in_step().await);
    let after = ok(node.wait_ready("parts").await);
    assert_eq!(after.identity(), before.identity());
    assert_eq!(part_paths(node), expected);
    assert_eq!(
        ok(fs::read_to_string(data.join("parts-node/logs/l"))),
        "run\nrun\n"
    );
    assert!(data.join("made/deep/kept").is_file());
}

/// Updates are applied at once; deleted objects stay mounted; new pods wait for them.
async fn objects_are_updated_and_deleted(node: &Node) {
    let before = ok(node.wait_ready("types").await);
    let dir = node
        .dirs()
        .root
        .join("pods")
        .join(&before.uid)
        .join("volumes");
    let file = dir.join("kubernetes.io~configmap/conf/key");
    let started = Instant::now();
    settings(node, Some("two"));
    let poll = || async {
        match fs::read_to_string(&file) {
            Ok(text) if text == "two" => Poll::Ready(()),
            seen => Poll::Pending(format!("{seen:?}")),
        }
    };
    ok(wait::until("the changed ConfigMap in the pod", poll).await);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(3), "it took {took:?}");

    settings(node, None);
    let more = json!({
        "volumes": [{ "name": "conf", "configMap": { "name": "tardy" } }],
        "container": { "volumeMounts": [mount("conf")] },
    });
    ok(node.put("late.json", &pod("late", RUNS, &more)));
    let waits = |pod: &PodView| {
        let missing = "configmap \"tardy\" not found";
        pod.waiting_for.iter().any(|line| line.contains(missing))
    };
    ok(node
        .wait_pod("late", "to wait for its ConfigMap", waits)
        .await);
    let tardy = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "tardy" } });
    ok(node.put("tardy.json", &tardy.to_string()));
    ok(node.wait_ready("late").await);
    // The earlier deletion has been received by now.
    assert_eq!(ok(fs::read_to_string(&file)), "two");
    let after = ok(node.wait_ready("types").await);
    assert_eq!(after.identity(), before.identity());
    ok(node.take("late.json"));
    ok(node.wait_gone("late").await);
}

/// A busy volume of a removed pod is unmounted once it is no longer in use.
async fn busy_mount_is_retried(node: &Node) {
    let types = ok(node.wait_ready("types").await);
    let dir = node
        .dirs()
        .root
        .join("pods")
        .join(&types.uid)
        .join("volumes");
    let open_file = ok(fs::File::open(dir.join("kubernetes.io~secret/pass")));
    ok(node.take("types.json"));
    let reported = |pod: &PodView| {
        pod.waiting_for
            .iter()
            .any(|line| line.contains("unmounting"))
    };
    let waits = ok(node
        .wait_pod("types", "to report the busy volume", reported)
        .await);
    assert!(
        waits.waiting_for.iter().any(|line| line.contains("pass")),
        "{:?}",
        waits.waiting_for
    );
    drop(open_file);
    ok(node.wait_gone("types").await);
    assert!(!dir.exists());
}
