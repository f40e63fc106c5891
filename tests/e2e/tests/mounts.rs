//! Mounts and the node's own mounts: propagation, recursive read-only, symlinks that escape, and a
//! file system whose server is dead.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, exec, node, ok, pod};
use polylet_harness::{Flavour, Node, PodView};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount_change};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn mount_propagation_and_read_only_mounts() {
    let mut steps = Steps::new();
    let node = node().await;
    let host = node.scratch().join("host");
    ok(fs::create_dir_all(&host));
    let dead = Dead::mount(host.join("dead"));
    if let Some(dead) = &dead {
        pods_on_a_dead_file_system(&node, &dead.0);
    }
    let shared = OnNode::tmpfs(host.join("shared"));
    ok(mount_change(&shared.0, MountPropagationFlags::SHARED));
    let nested = host.join("nested");
    ok(fs::create_dir_all(&nested));
    let below = OnNode::tmpfs(nested.join("below"));

    steps
        .run("propagation", propagation(&node, &shared.0))
        .await;
    steps
        .run("recursive read only", recursive_read_only(&node, &nested))
        .await;
    steps
        .run(
            "escaping sub paths are rejected",
            escaping_sub_paths_are_rejected(&node, &host),
        )
        .await;
    if dead.is_some() {
        dead_file_system_affects_its_pods_only(&node).await;
    }
    drop((below, shared, dead));
    assert_eq!(node.mounts(), Vec::<PathBuf>::new());
    steps.finish();
    ok(node.remove());
}

/// A mount of the node, unmounted when dropped.
struct OnNode(PathBuf);

impl OnNode {
    fn tmpfs(at: PathBuf) -> Self {
        ok(fs::create_dir_all(&at));
        ok(rustix::mount::mount(
            "tmpfs",
            &at,
            "tmpfs",
            MountFlags::empty(),
            None,
        ));
        Self(at)
    }
}

impl Drop for OnNode {
    fn drop(&mut self) {
        // Mounts that pods made below it remain after their end.
        while rustix::mount::unmount(self.0.join("inner"), UnmountFlags::DETACH).is_ok() {}
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A FUSE file system whose server never responds; the open file is the server.
struct Dead(PathBuf, #[allow(dead_code)] File);

impl Dead {
    /// `None` where the kernel has no FUSE.
    fn mount(at: PathBuf) -> Option<Self> {
        let server = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .ok()?;
        ok(fs::create_dir_all(&at));
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            server.as_raw_fd()
        );
        let data = ok(CString::new(data));
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("dead", &at, "fuse", flags, data.as_c_str()).ok()?;
        Some(Self(at, server))
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn put(node: &Node, name: &str, script: &str, path: &Path, kind: &str, mount: &Value) {
    let mut mount = mount.clone();
    mount["name"] = json!("h");
    mount["mountPath"] = json!("/h");
    let more = json!({
        "volumes": [{ "name": "h", "hostPath": { "path": path, "type": kind } }],
        "container": {
            "volumeMounts": [mount],
            "securityContext": { "privileged": mount["mountPropagation"] == "Bidirectional" },
        },
    });
    ok(node.put(&format!("{name}.json"), &pod(name, script, &more)));
}

async fn take(node: &Node, names: &[&str]) {
    for name in names {
        ok(node.take(&format!("{name}.json")));
    }
    for name in names {
        ok(node.wait_gone(name).await);
    }
}

/// A pod's mounts are visible to the node and to pods with mount propagation.
async fn propagation(node: &Node, shared: &Path) {
    let modes = [("alone", "None"), ("sees", "HostToContainer")];
    for (name, mode) in modes {
        put(
            node,
            name,
            RUNS,
            shared,
            "",
            &json!({ "mountPropagation": mode }),
        );
    }
    for (name, _) in modes {
        ok(node.wait_ready(name).await);
    }
    let script =
        format!("mkdir /h/inner && mount -t tmpfs t /h/inner && echo hi > /h/inner/f && {RUNS}");
    put(
        node,
        "shares",
        &script,
        shared,
        "",
        &json!({ "mountPropagation": "Bidirectional" }),
    );
    let shares = ok(node.wait_ready("shares").await);
    let file = shared.join("inner/f");
    let poll = || async {
        match fs::read_to_string(&file) {
            Ok(text) if text == "hi\n" => polylet_harness::wait::Poll::Ready(()),
            seen => polylet_harness::wait::Poll::Pending(format!("{seen:?}")),
        }
    };
    ok(polylet_harness::wait::until("the pod's mount on the node", poll).await);
    assert_eq!(in_pod(node, "sees", "cat /h/inner/f").await.trim(), "hi");
    assert_eq!(
        in_pod(node, "alone", "cat /h/inner/f 2>/dev/null; true").await,
        ""
    );
    assert!(shares.is_ready());
    propagation_within_a_pod(node).await;
    take(node, &["alone", "sees", "shares"]).await;
}

/// The same through an emptyDir between containers of a pod.
async fn propagation_within_a_pod(node: &Node) {
    let mount = |mode: &str| json!({ "name": "e", "mountPath": "/e", "mountPropagation": mode });
    let script =
        format!("mkdir /e/inner && mount -t tmpfs t /e/inner && echo hi > /e/inner/f && {RUNS}");
    let more = json!({
        "volumes": [{ "name": "e", "emptyDir": {} }],
        "initContainers": [{
            "name": "beside", "image": "polylet-test:1", "restartPolicy": "Always",
            "command": ["sh", "-c", script], "volumeMounts": [mount("Bidirectional")],
            "securityContext": { "privileged": true },
        }],
        "container": {
            "volumeMounts": [mount("HostToContainer")],
            "readinessProbe": { "exec": { "command": ["grep", "hi", "/e/inner/f"] }, "periodSeconds": 1 },
        },
    });
    ok(node.put("within.json", &pod("within", RUNS, &more)));
    ok(node.wait_ready("within").await);
    // Mounts made inside a pod's volume are removed with the pod.
    take(node, &["within"]).await;
}

/// Recursive read-only mounts where the runtime supports them; otherwise `Enabled` is an error.
async fn recursive_read_only(node: &Node, nested: &Path) {
    let print_mounts = format!(
        "touch /h/below/x 2>/dev/null && touch /tmp/soft; ! touch /h/x 2>/dev/null && {RUNS}"
    );
    for (name, mode) in [
        ("plain", "Disabled"),
        ("if", "IfPossible"),
        ("must", "Enabled"),
    ] {
        let mount = json!({ "readOnly": true, "recursiveReadOnly": mode });
        put(node, name, &print_mounts, nested, "Directory", &mount);
    }
    let can = Flavour::from_env() == Flavour::V2;
    let rro_status = |pod: &PodView| {
        let mounts = &pod.status["containerStatuses"][0]["volumeMounts"];
        mounts[0]["recursiveReadOnly"].clone()
    };
    let hard = "test -e /tmp/soft && echo soft || echo hard";
    ok(node.wait_ready("plain").await);
    assert_eq!(in_pod(node, "plain", hard).await.trim(), "soft");
    let possible = ok(node.wait_ready("if").await);
    assert_eq!(
        rro_status(&possible),
        if can { "Enabled" } else { "Disabled" }
    );
    assert_eq!(
        in_pod(node, "if", hard).await.trim(),
        if can { "hard" } else { "soft" }
    );
    if can {
        ok(node.wait_ready("must").await);
        assert_eq!(in_pod(node, "must", hard).await.trim(), "hard");
    } else {
        let expected = "failed to resolve recursive read-only mode: volume \"h\" requested recursive \
                    read-only mode, but it is not supported by the runtime";
        config_error(node, "must", expected).await;
    }
    take(node, &["plain", "if", "must"]).await;
}

/// A subPath that escapes its volume is rejected without disclosing the target, and mounted once it is
/// corrected.
async fn escaping_sub_paths_are_rejected(node: &Node, host: &Path) {
    let volume = host.join("volume");
    ok(fs::create_dir(&volume));
    ok(symlink("/etc", volume.join("out")));
    ok(symlink("in", volume.join("inside")));
    ok(fs::create_dir(volume.join("in")));
    put(
        node,
        "out",
        RUNS,
        &volume,
        "",
        &json!({ "subPath": "out/passwd" }),
    );
    put(
        node,
        "new",
        RUNS,
        &volume,
        "",
        &json!({ "subPath": "out/polylet-was-here" }),
    );
    put(
        node,
        "unset",
        RUNS,
        &volume,
        "",
        &json!({ "subPathExpr": "$(NOPE)" }),
    );
    put(
        node,
        "inside",
        &format!("touch /h/x && {RUNS}"),
        &volume,
        "",
        &json!({ "subPath": "inside" }),
    );
    let refused =
        |what: &str| format!("failed to {what} for volumeMount \"h\" of container \"main\"");
    config_error(node, "out", &refused("prepare subPath")).await;
    config_error(node, "new", &refused("create subPath directory")).await;
    config_error(node, "unset", "missing value for NOPE").await;
    ok(node.wait_ready("inside").await);
    assert!(volume.join("in/x").is_file());
    assert!(!Path::new("/etc/polylet-was-here").exists());
    ok(fs::remove_file(volume.join("out")));
    ok(fs::create_dir(volume.join("out")));
    ok(node.wait_ready("new").await);
    assert!(volume.join("out/polylet-was-here").is_dir());
    take(node, &["out", "new", "unset", "inside"]).await;
    // The node's own file remains.
    assert!(volume.join("in/x").is_file());
}

fn pods_on_a_dead_file_system(node: &Node, dead: &Path) {
    put(
        node,
        "dead-type",
        RUNS,
        &dead.join("x"),
        "Directory",
        &json!({}),
    );
    put(
        node,
        "dead-part",
        RUNS,
        dead,
        "",
        &json!({ "subPath": "x" }),
    );
}

/// Pods on the dead file system report what they wait for and can be removed; other pods are not
/// affected.
async fn dead_file_system_affects_its_pods_only(node: &Node) {
    let waits = |pod: &PodView| pod.waiting_for.iter().any(|line| line.contains("volume h"));
    ok(node
        .wait_pod("dead-type", "to wait for its volume", waits)
        .await);
    let expected =
        "failed to prepare subPath for volumeMount \"h\" of container \"main\": no answer";
    config_error_starts(node, "dead-part", expected).await;
    take(node, &["dead-type", "dead-part"]).await;
}

async fn config_error(node: &Node, name: &str, message: &str) {
    let seen = config_error_starts(node, name, message).await;
    assert_eq!(seen, message, "{name}");
}

/// Waits for a message of the container with this prefix and returns it.
async fn config_error_starts(node: &Node, name: &str, message: &str) -> String {
    let main = |pod: &PodView| pod.container("main");
    let reported = |pod: &PodView| {
        main(pod).is_some_and(|main| {
            main.reason == "CreateContainerConfigError" && main.message.starts_with(message)
        })
    };
    let pod = ok(node
        .wait_pod(name, "to report its mount error", reported)
        .await);
    main(&pod).map(|main| main.message).unwrap_or_default()
}

/// The output of a shell script in the pod's container.
async fn in_pod(node: &Node, name: &str, script: &str) -> String {
    let pod = ok(node.wait_ready(name).await);
    exec(node, &pod, "main", script).await
}
