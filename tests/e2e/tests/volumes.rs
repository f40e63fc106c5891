//! Volumes of pods on one node: what they hold, who may read it, parts of them, and what becomes
//! of them when objects change, containers restart, services are killed and pods go.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::wait::{self, Look};
use polylet_harness::{Node, PodView};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn volumes_of_every_local_type() {
    let mut node = node().await;
    let host = node.scratch().join("host");
    ok(fs::create_dir_all(host.join("dir")));
    ok(fs::write(host.join("file"), "node"));
    settings(&node, Some("one"));
    let pods = [
        ("types", types()),
        ("parts", parts(&host)),
        ("optional", optional()),
    ];
    for (name, text) in &pods {
        ok(node.put(&format!("{name}.json"), text));
    }
    wrong_host_paths(&node, &host).await;
    ok(node.wait_ready("types").await);
    ok(node.wait_ready("optional").await);
    parts_stay(&mut node).await;
    objects_change_and_go(&node).await;
    a_busy_mount_is_waited_for(&node).await;
    for name in ["parts", "optional"] {
        ok(node.take(&format!("{name}.json")));
    }
    for name in ["parts", "optional"] {
        ok(node.wait_gone(name).await);
    }
    assert_eq!(node.mounts(), Vec::<PathBuf>::new());
    // What was the node's before is the node's still.
    assert_eq!(ok(fs::read_to_string(host.join("file"))), "node");
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

/// Modes, owners, sizes and forms, as a user with a group of their own sees them.
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

/// Parts of volumes: of an init container's making, by expression, a file, and read-only.
fn parts(host: &Path) -> String {
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

/// What may be missing, is.
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

/// Each says what is wrong, and holds back nobody else; what is put right is taken up.
async fn wrong_host_paths(node: &Node, host: &Path) {
    let path = |name: &str| host.join(name).display().to_string();
    let not = |name: &str, wanted: &str| {
        let path = path(name);
        format!("hostPath type check failed: {path} is not a {wanted}")
    };
    // What is not there is told as what is something else.
    let wrong = [
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
    for (name, below, kind, _) in &wrong {
        let more = json!({
            "volumes": [{ "name": "h", "hostPath": { "path": path(below), "type": kind } }],
            "container": { "volumeMounts": [mount("h")] },
        });
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, &more)));
    }
    for (name, _, _, said) in &wrong {
        let says = |pod: &PodView| pod.waiting_for.iter().any(|line| line.contains(said));
        ok(node.wait_pod(name, "to say what is wrong", says).await);
    }
    ok(fs::create_dir(host.join("late")));
    ok(node.wait_ready("hp-late").await);
    for (name, ..) in &wrong {
        ok(node.take(&format!("{name}.json")));
    }
    for (name, ..) in &wrong {
        ok(node.wait_gone(name).await);
    }
}

/// Restarts of the container and of the services find the same parts mounted.
async fn parts_stay(node: &mut Node) {
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
    let of_parts = |node: &Node| -> Vec<PathBuf> {
        let all = node.mounts().into_iter();
        let mut parts: Vec<_> = all
            .filter(|at| at.starts_with(dir.join("volume-subpaths")))
            .collect();
        parts.sort();
        parts
    };
    let mut expected = places
        .map(|place| dir.join("volume-subpaths").join(place))
        .to_vec();
    expected.sort();
    assert_eq!(of_parts(node), expected);
    let data = dir.join("volumes/kubernetes.io~empty-dir/data");
    let made = ok(fs::metadata(data.join("parts-node/logs")));
    assert_eq!(made.mode() & 0o7777, 0o777);

    end(node, &before);
    let again =
        |pod: &PodView| pod.is_ready() && pod.container("main").is_some_and(|c| c.restarts == 1);
    let before = ok(node.wait_pod("parts", "to be restarted", again).await);
    assert_eq!(of_parts(node), expected);
    for service in ["volume-manager", "sync-coordinator"] {
        ok(node.kill(service).await);
    }
    ok(node.wait_in_step().await);
    let after = ok(node.wait_ready("parts").await);
    assert_eq!(after.identity(), before.identity());
    assert_eq!(of_parts(node), expected);
    assert_eq!(
        ok(fs::read_to_string(data.join("parts-node/logs/l"))),
        "run\nrun\n"
    );
    assert!(data.join("made/deep/kept").is_file());
}

/// A change arrives at once; what is taken away stays where it is mounted; who comes late waits.
async fn objects_change_and_go(node: &Node) {
    let before = ok(node.wait_ready("types").await);
    let dir = node
        .dirs()
        .root
        .join("pods")
        .join(&before.uid)
        .join("volumes");
    let file = dir.join("kubernetes.io~configmap/conf/key");
    let begun = Instant::now();
    settings(node, Some("two"));
    let look = || async {
        match fs::read_to_string(&file) {
            Ok(text) if text == "two" => Look::Done(()),
            seen => Look::NotYet(format!("{seen:?}")),
        }
    };
    ok(wait::until("the changed ConfigMap in the pod", look).await);
    let took = begun.elapsed();
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
    // What was taken away before has been heard of by now.
    assert_eq!(ok(fs::read_to_string(&file)), "two");
    let after = ok(node.wait_ready("types").await);
    assert_eq!(after.identity(), before.identity());
    ok(node.take("late.json"));
    ok(node.wait_gone("late").await);
}

/// Somebody on the node looks into a volume of a pod that goes: it is unmounted when they leave.
async fn a_busy_mount_is_waited_for(node: &Node) {
    let types = ok(node.wait_ready("types").await);
    let dir = node
        .dirs()
        .root
        .join("pods")
        .join(&types.uid)
        .join("volumes");
    let held = ok(fs::File::open(dir.join("kubernetes.io~secret/pass")));
    ok(node.take("types.json"));
    let says = |pod: &PodView| {
        pod.waiting_for
            .iter()
            .any(|line| line.contains("unmounting"))
    };
    let waits = ok(node.wait_pod("types", "to say what is busy", says).await);
    assert!(
        waits.waiting_for.iter().any(|line| line.contains("pass")),
        "{:?}",
        waits.waiting_for
    );
    drop(held);
    ok(node.wait_gone("types").await);
    assert!(!dir.exists());
}

/// Ends the container as its own process would.
fn end(node: &Node, pod: &PodView) {
    let Some(main) = pod.container("main") else {
        panic!("{} has no container main", pod.name);
    };
    let id = main.id.trim_start_matches("containerd://");
    // The shell goes with the container, which looks like a failure.
    let _ = node.containerd.exec(id, &["sh", "-c", "kill -TERM 1"]);
}
