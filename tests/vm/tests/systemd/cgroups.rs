use crate::node::SystemdNode;
use crate::pods;

/// The cgroup of a pod's only container, by the cgroup driver `systemd`.
async fn cgroup(node: &SystemdNode, pod: &str) -> String {
    let pod = node.pod(pod).await;
    let id = &pod["status"]["containerStatuses"][0]["containerID"];
    let id = id
        .as_str()
        .unwrap_or_default()
        .trim_start_matches("containerd://");
    let found = node
        .sh(&format!(
            "find /sys/fs/cgroup/kubepods* -type d -name '*{id}*'"
        ))
        .await;
    let found = found.trim();
    assert!(!found.is_empty() && !found.contains('\n'), "{found}");
    found.to_owned()
}

/// The directories of pods are where the driver puts them, by class.
pub(crate) async fn classes(node: &SystemdNode, driver: &str) {
    for (pod, systemd, cgroupfs) in [
        ("guaranteed", "kubepods.slice/kubepods-pod", "kubepods/pod"),
        (
            "burstable",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod",
            "kubepods/burstable/pod",
        ),
        (
            "best-effort",
            "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod",
            "kubepods/besteffort/pod",
        ),
    ] {
        let expected = if driver == "systemd" {
            systemd
        } else {
            cgroupfs
        };
        let found = cgroup(node, pod).await;
        let path = found.trim_start_matches("/sys/fs/cgroup/");
        assert!(path.starts_with(expected), "{pod}: {path}");
    }
}

/// Memory protection and throttling, swap, and what happens when a container uses more than it may.
pub(crate) async fn memory(node: &SystemdNode) {
    let burstable = cgroup(node, "burstable").await;
    let guaranteed = cgroup(node, "guaranteed").await;
    let best_effort = cgroup(node, "best-effort").await;
    let value = async |cgroup: &str, file: &str| {
        let text = node.sh(&format!("cat {cgroup}/memory.{file}")).await;
        text.trim().to_owned()
    };
    for (cgroup, file, expected) in [
        // Above the request of 16 MiB by nine tenths of what is left to the limit of 32, in whole pages.
        (&burstable, "high", "31875072"),
        (&burstable, "low", "16777216"),
        (&burstable, "min", "0"),
        (&guaranteed, "high", "max"),
        (&guaranteed, "min", "33554432"),
        (&guaranteed, "swap.max", "0"),
        (&best_effort, "swap.max", "0"),
        (&burstable, "oom.group", "1"),
        (&guaranteed, "oom.group", "1"),
        (&best_effort, "oom.group", "1"),
    ] {
        assert_eq!(
            value(cgroup, file).await,
            expected,
            "{cgroup}/memory.{file}"
        );
    }
    let swap = value(&burstable, "swap.max").await;
    let swap: u64 = swap
        .parse()
        .unwrap_or_else(|_| panic!("swap of burstable: {swap}"));
    assert!(swap > 0, "a burstable container may swap");
    println!("  burstable: memory.swap.max {swap}");
}

/// All processes of a container end with the one that used too much.
pub(crate) async fn group_kill(node: &SystemdNode) {
    node.create("pods", &pods::greedy()).await;
    // containerd may know of the exit before it knows why; then the reason follows.
    let killed = |pod: &serde_json::Value| {
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        pod["status"]["phase"] == "Failed" && ended["reason"] == "OOMKilled"
    };
    let pod = node.wait_pod("greedy", "to be killed", killed).await;
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(ended["exitCode"], 137);
    node.delete("greedy").await;
}
