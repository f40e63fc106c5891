//! Security contexts, read back inside the containers: users, capabilities, profiles, and those that
//! cannot be applied.

use std::fs;
use std::path::PathBuf;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, exec, node_with, ok, pod, try_exec};
use polylet_harness::{Flavour, Node, NodeOptions, PodView, image};
use serde_json::{Value, json};

/// A seccomp profile that denies mkdir only.
const PROFILE: &str = r#"{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
    { "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO" } ] }"#;

/// Images with a user.
const NUMERIC_USER_IMAGE: &str = "docker.io/library/polylet-of-number:1";
const NAMED_USER_IMAGE: &str = "docker.io/library/polylet-of-name:1";

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn security_contexts_are_enforced() {
    let node = node_with(NodeOptions {
        kubelet: json!({ "allowedUnsafeSysctls": ["kernel.msg*", "net.core.somaxconn"] }),
        ..NodeOptions::default()
    })
    .await;
    for (image_name, user) in [
        (NUMERIC_USER_IMAGE, "1234:2000"),
        (NAMED_USER_IMAGE, "user"),
    ] {
        let config = json!({ "Env": ["PATH=/bin"], "User": user });
        let archive = ok(image::write(node.scratch(), image_name, &config));
        ok(node.containerd.import(&archive));
    }
    let profiles = node.dirs().root.join("seccomp");
    fs::create_dir_all(&profiles).unwrap();
    fs::write(profiles.join("no-mkdir.json"), PROFILE).unwrap();

    let good = granted();
    for (name, fields, ..) in &good {
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, fields)));
    }
    let supports_user_namespaces = ok(node.containerd.cri().user_namespaces().await);
    let bad = pods_that_cannot_run(supports_user_namespaces);
    for (name, fields, ..) in &bad {
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, fields)));
    }
    let mut steps = Steps::new();
    steps
        .run("granted security contexts apply", async {
            for (name, _, script, expected) in &good {
                let pod = ok(node.wait_ready(name).await);
                let output = exec(&node, &pod, "main", script).await;
                assert_eq!(output.trim(), *expected, "{name}: {script}");
            }
        })
        .await;
    steps
        .run("pods that cannot run report the reason", async {
            for (name, _, reason, fragments) in &bad {
                let reported = |pod: &PodView| {
                    let line = pod.line();
                    line.contains(reason)
                        && fragments.iter().all(|field_text| line.contains(field_text))
                };
                let what = format!("to report {reason} with {fragments:?}");
                ok(node.wait_pod(name, &what, reported).await);
            }
        })
        .await;
    steps
        .run("pods are removed", async {
            let names = good
                .iter()
                .map(|one| one.0)
                .chain(bad.iter().map(|one| one.0));
            let names: Vec<&str> = names.collect();
            for name in &names {
                ok(node.take(&format!("{name}.json")));
            }
            for name in &names {
                ok(node.wait_gone(name).await);
            }
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// A field of the first process's status.
fn status(field: &str) -> String {
    format!("sed -n 's/^{field}:[ \\t]*//p' /proc/1/status | tr '\\t' ' ' | sed 's/ *$//'")
}

/// Pods, a script to run in them, and its expected output.
fn granted() -> Vec<(&'static str, Value, String, &'static str)> {
    let container_context = |context: Value| json!({ "container": { "securityContext": context } });
    let pod = |context: Value| json!({ "securityContext": context });
    let mut all = vec![
        (
            "user",
            pod(json!({ "runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000,
                "supplementalGroups": [4000], "runAsNonRoot": true })),
            format!("{}; {}; {}", status("Uid"), status("Gid"), status("Groups")),
            "1000 1000 1000 1000\n3000 3000 3000 3000\n2000 3000 4000",
        ),
        (
            "own-user",
            json!({ "securityContext": { "runAsUser": 1000, "runAsGroup": 3000 },
                "container": { "securityContext": { "runAsUser": 1001 } } }),
            format!("{}; {}", status("Uid"), status("Gid")),
            "1001 1001 1001 1001\n3000 3000 3000 3000",
        ),
        (
            "group",
            container_context(json!({ "runAsGroup": 3000 })),
            format!("{}; {}", status("Uid"), status("Gid")),
            "0 0 0 0\n3000 3000 3000 3000",
        ),
        // The numeric uid applies, not the group named by the image.
        (
            "image-user",
            json!({ "container": { "image": NUMERIC_USER_IMAGE } }),
            format!("{}; {}", status("Uid"), status("Gid")),
            "1234 1234 1234 1234\n0 0 0 0",
        ),
        (
            "image-name",
            json!({ "container": { "image": NAMED_USER_IMAGE } }),
            format!("{}; {}", status("Uid"), status("Gid")),
            "1000 1000 1000 1000\n1000 1000 1000 1000",
        ),
        (
            "caps",
            container_context(json!({ "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE", "SYS_TIME"] } })),
            status("CapBnd"),
            // Bits 10 and 25.
            "0000000002000400",
        ),
        (
            "default-caps",
            json!({}),
            status("CapBnd"),
            "00000000a80425fb",
        ),
        (
            "no-new-privs",
            container_context(json!({ "allowPrivilegeEscalation": false })),
            status("NoNewPrivs"),
            "1",
        ),
        ("new-privs", json!({}), status("NoNewPrivs"), "0"),
        (
            "read-only",
            container_context(json!({ "readOnlyRootFilesystem": true })),
            "touch /x 2>/dev/null || echo refused".to_owned(),
            "refused",
        ),
        ("unconfined", json!({}), status("Seccomp"), "0"),
        (
            "runtime-default",
            pod(json!({ "seccompProfile": { "type": "RuntimeDefault" } })),
            status("Seccomp"),
            "2",
        ),
        (
            "own-seccomp",
            json!({ "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
                "container": { "securityContext": { "seccompProfile": { "type": "Unconfined" } } } }),
            status("Seccomp"),
            "0",
        ),
        (
            "localhost",
            pod(json!({ "seccompProfile": { "type": "Localhost", "localhostProfile": "no-mkdir.json" } })),
            "touch /a && echo made; mkdir /b 2>/dev/null || echo refused".to_owned(),
            "made\nrefused",
        ),
        (
            "hidden",
            json!({}),
            "wc -c < /proc/timer_list; echo 1 2>/dev/null > /proc/sys/kernel/sysrq || echo refused".to_owned(),
            "0\nrefused",
        ),
        (
            "sysctls",
            json!({ "securityContext": { "sysctls": [
                { "name": "kernel.shm_rmid_forced", "value": "1" },
                { "name": "kernel/msgmax", "value": "9000" },
                { "name": "net.core.somaxconn", "value": "77" },
                { "name": "net.ipv4.ip_unprivileged_port_start", "value": "80" },
            ] } }),
            "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/kernel/msgmax /proc/sys/net/core/somaxconn \
             /proc/sys/net/ipv4/ip_unprivileged_port_start".to_owned(),
            "1\n9000\n77\n80",
        ),
    ];
    if can_be_privileged() {
        let privileged = container_context(json!({ "privileged": true }));
        let script = format!(
            "{}; test -w /proc/sys/kernel/hostname && echo writes",
            status("Seccomp")
        );
        all.push(("privileged", privileged, script, "0\nwrites"));
    }
    if Flavour::from_env() == Flavour::V2 {
        let strict = pod(
            json!({ "supplementalGroupsPolicy": "Strict", "runAsUser": 0,
            "supplementalGroups": [4000] }),
        );
        all.push(("strict", strict, status("Groups"), "0 4000"));
    }
    all
}

/// Whether this machine grants a privileged container every capability.
fn can_be_privileged() -> bool {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let bound = text.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let last = fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap();
    let all = (1_u64 << (last.trim().parse::<u32>().unwrap() + 1)) - 1;
    u64::from_str_radix(bound.unwrap().trim(), 16).unwrap() == all
}

/// Pods that cannot run, with the expected reason and message.
fn pods_that_cannot_run(
    supports_user_namespaces: bool,
) -> Vec<(&'static str, Value, &'static str, Vec<&'static str>)> {
    let pod = |context: Value| json!({ "securityContext": context });
    let config = "CreateContainerConfigError";
    let mut all = vec![
        (
            "root-user",
            pod(json!({ "runAsNonRoot": true, "runAsUser": 0 })),
            config,
            vec!["container's runAsUser breaks non-root policy"],
        ),
        (
            "root-image",
            pod(json!({ "runAsNonRoot": true })),
            config,
            vec!["container has runAsNonRoot and image will run as root"],
        ),
        (
            "no-profile",
            pod(
                json!({ "seccompProfile": { "type": "Localhost", "localhostProfile": "absent.json" } }),
            ),
            "CreateContainerError",
            vec!["absent.json"],
        ),
        (
            "no-class",
            json!({ "runtimeClassName": "absent" }),
            "runtimeclass.node.k8s.io \"absent\" not found",
            vec![],
        ),
    ];
    if !supports_user_namespaces {
        all.push((
            "own-users",
            json!({ "hostUsers": false }),
            "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
            vec![],
        ));
    }
    all
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn pods_get_distinct_user_namespaces() {
    let mut node = node_with(NodeOptions::default()).await;
    if !ok(node.containerd.cri().user_namespaces().await) {
        eprintln!("skipped: containerd or runc is too old for user namespaces");
        return ok(node.remove());
    }
    let fields = json!({
        "hostUsers": false,
        "securityContext": { "fsGroup": 2000 },
        "volumes": [{ "name": "e", "emptyDir": {} }],
        "container": { "volumeMounts": [{ "name": "e", "mountPath": "/e" }] },
    });
    let script = format!("touch /e/mine; {RUNS}");
    let mut steps = Steps::new();
    let firsts = steps
        .require("pods have distinct id mappings", async {
            let mut firsts = Vec::new();
            for name in ["one", "two"] {
                ok(node.put(&format!("{name}.json"), &pod(name, &script, &fields)));
            }
            for name in ["one", "two"] {
                let pod = ok(node.wait_ready(name).await);
                firsts.push(mapped_root(&node, &pod).await);
            }
            assert_ne!(firsts[0], firsts[1]);
            firsts
        })
        .await;
    let before = steps
        .require("restarted containers keep the mapping", async {
            // A restarted container of the pod has the same id mapping.
            ok(node.kill("sync-coordinator").await);
            ok(node.wait_in_step().await);
            let before = ok(node.wait_ready("one").await);
            // The call may fail, since it ends its own container.
            let _ = try_exec(&node, &before, "main", "kill -TERM 1").await;
            let restarted =
                |pod: &PodView| pod.is_ready() && pod.container("main").unwrap().restarts == 1;
            let after = ok(node.wait_pod("one", "to be restarted", restarted).await);
            assert_eq!(mapped_root(&node, &after).await, firsts[0]);
            before
        })
        .await;
    steps
        .run("user namespaces are released", async {
            for name in ["one", "two"] {
                ok(node.take(&format!("{name}.json")));
            }
            for name in ["one", "two"] {
                ok(node.wait_gone(name).await);
            }
            assert!(!userns_file(&node, &before).exists());
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// The host id of the pod's root; checks that all sources agree.
async fn mapped_root(node: &Node, pod: &PodView) -> u32 {
    let map = exec(node, pod, "main", "cat /proc/1/uid_map /proc/1/gid_map").await;
    let numbers: Vec<u32> = map
        .split_whitespace()
        .map(|field_text| field_text.parse().unwrap())
        .collect();
    let first = numbers[1];
    assert_eq!(numbers, [0, first, 65_536, 0, first, 65_536]);
    let stored: Value = serde_json::from_slice(&fs::read(userns_file(node, pod)).unwrap()).unwrap();
    assert_eq!(stored["uidMappings"][0]["hostId"], first);
    // Files of the volume belong to root, through an id-mapped mount.
    let output = exec(
        node,
        pod,
        "main",
        "stat -c '%u %g' /e/mine; stat -c %u /etc/hosts",
    )
    .await;
    assert_eq!(output.trim(), "0 2000\n0");
    first
}

fn userns_file(node: &Node, pod: &PodView) -> PathBuf {
    node.dirs().root.join("pods").join(&pod.uid).join("userns")
}
