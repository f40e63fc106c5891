//! Security contexts, read back from inside the containers: who they are, what they may do, and
//! what becomes of those that cannot be had.

use std::fs;
use std::path::PathBuf;

use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::{Flavour, Node, NodeOptions, PodView, image};
use serde_json::{Value, json};

/// Refuses to make directories, and nothing else.
const PROFILE: &str = r#"{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
    { "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO" } ] }"#;

/// Images with a user of their own.
const OF_NUMBER: &str = "docker.io/library/polylet-of-number:1";
const OF_NAME: &str = "docker.io/library/polylet-of-name:1";

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn what_a_container_may_do() {
    let node = node_with(NodeOptions {
        kubelet: json!({ "allowedUnsafeSysctls": ["kernel.msg*", "net.core.somaxconn"] }),
        ..NodeOptions::default()
    })
    .await;
    for (image_name, user) in [(OF_NUMBER, "1234:2000"), (OF_NAME, "user")] {
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
    let own_users = ok(node.containerd.cri().user_namespaces().await);
    let bad = impossible(own_users);
    for (name, fields, ..) in &bad {
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, fields)));
    }
    for (name, _, script, wanted) in &good {
        let pod = ok(node.wait_ready(name).await);
        let seen = sees(&node, &pod, script);
        assert_eq!(seen.trim(), *wanted, "{name}: {script}");
    }
    for (name, _, reason, words) in &bad {
        let says = |pod: &PodView| {
            let line = pod.line();
            line.contains(reason) && words.iter().all(|word| line.contains(word))
        };
        let what = format!("to say {reason} and {words:?}");
        ok(node.wait_pod(name, &what, says).await);
    }
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
    ok(node.remove());
}

/// A field of the first process's status.
fn status(field: &str) -> String {
    format!("sed -n 's/^{field}:[ \\t]*//p' /proc/1/status | tr '\\t' ' ' | sed 's/ *$//'")
}

/// Pods with what a script in them says.
fn granted() -> Vec<(&'static str, Value, String, &'static str)> {
    let own = |context: Value| json!({ "container": { "securityContext": context } });
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
            own(json!({ "runAsGroup": 3000 })),
            format!("{}; {}", status("Uid"), status("Gid")),
            "0 0 0 0\n3000 3000 3000 3000",
        ),
        // The number counts, and not the group that the image names.
        (
            "image-user",
            json!({ "container": { "image": OF_NUMBER } }),
            format!("{}; {}", status("Uid"), status("Gid")),
            "1234 1234 1234 1234\n0 0 0 0",
        ),
        (
            "image-name",
            json!({ "container": { "image": OF_NAME } }),
            format!("{}; {}", status("Uid"), status("Gid")),
            "1000 1000 1000 1000\n1000 1000 1000 1000",
        ),
        (
            "caps",
            own(json!({ "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE", "SYS_TIME"] } })),
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
            own(json!({ "allowPrivilegeEscalation": false })),
            status("NoNewPrivs"),
            "1",
        ),
        ("new-privs", json!({}), status("NoNewPrivs"), "0"),
        (
            "read-only",
            own(json!({ "readOnlyRootFilesystem": true })),
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
        let privileged = own(json!({ "privileged": true }));
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

/// A privileged container has every capability, and this machine may not have them all to give.
fn can_be_privileged() -> bool {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let bound = text.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let last = fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap();
    let all = (1_u64 << (last.trim().parse::<u32>().unwrap() + 1)) - 1;
    u64::from_str_radix(bound.unwrap().trim(), 16).unwrap() == all
}

/// Pods with the reason and words of why they do not run.
fn impossible(own_users: bool) -> Vec<(&'static str, Value, &'static str, Vec<&'static str>)> {
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
    if !own_users {
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
async fn pods_have_users_of_their_own() {
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
    let mut firsts = Vec::new();
    for name in ["one", "two"] {
        ok(node.put(&format!("{name}.json"), &pod(name, &script, &fields)));
    }
    for name in ["one", "two"] {
        let pod = ok(node.wait_ready(name).await);
        firsts.push(own_ids(&node, &pod));
    }
    assert_ne!(firsts[0], firsts[1]);

    // What was given stays given: another container of the pod has the same ids.
    ok(node.kill("sync-coordinator").await);
    ok(node.wait_in_step().await);
    let before = ok(node.wait_ready("one").await);
    let id = before.container("main").unwrap().id;
    let id = id.trim_start_matches("containerd://");
    let _ = node.containerd.exec(id, &["kill", "-TERM", "1"]);
    let again = |pod: &PodView| pod.is_ready() && pod.container("main").unwrap().restarts == 1;
    let after = ok(node.wait_pod("one", "to be restarted", again).await);
    assert_eq!(own_ids(&node, &after), firsts[0]);

    for name in ["one", "two"] {
        ok(node.take(&format!("{name}.json")));
    }
    for name in ["one", "two"] {
        ok(node.wait_gone(name).await);
    }
    assert!(!kept_ids(&node, &before).exists());
    ok(node.remove());
}

/// The node's id that is root in the pod, which everything agrees on.
fn own_ids(node: &Node, pod: &PodView) -> u32 {
    let map = sees(node, pod, "cat /proc/1/uid_map /proc/1/gid_map");
    let numbers: Vec<u32> = map
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let first = numbers[1];
    assert_eq!(numbers, [0, first, 65_536, 0, first, 65_536]);
    let kept: Value = serde_json::from_slice(&fs::read(kept_ids(node, pod)).unwrap()).unwrap();
    assert_eq!(kept["uidMappings"][0]["hostId"], first);
    // The volume's files are root's inside, and the node's root's outside.
    let seen = sees(node, pod, "stat -c '%u %g' /e/mine; stat -c %u /etc/hosts");
    assert_eq!(seen.trim(), "0 2000\n0");
    first
}

fn kept_ids(node: &Node, pod: &PodView) -> PathBuf {
    node.dirs().root.join("pods").join(&pod.uid).join("userns")
}

/// What a script says in the pod's container.
fn sees(node: &Node, pod: &PodView, script: &str) -> String {
    let id = pod.container("main").unwrap().id;
    let id = id.trim_start_matches("containerd://");
    // Now and then the words of a short program are lost on their way here.
    let said = || ok(node.containerd.exec(id, &["sh", "-c", script]));
    let first = said();
    if first.is_empty() { said() } else { first }
}
