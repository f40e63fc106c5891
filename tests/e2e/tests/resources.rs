//! Resource limits, read back from cgroups and processes.

#[path = "resources/cgroup_values.rs"]
mod cgroup_values;
#[path = "resources/static_resize.rs"]
mod static_resize;

use std::fs;
use std::path::PathBuf;

use cgroup_values::{CPU_SHARES, MEMORY, PIDS, bound, file, number, quota, read, weight};
use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, PodView, cgroup};
use serde_json::{Value, json};

const MI: i64 = 1 << 20;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn cgroup_limits_are_set() {
    let kubelet = json!({
        "kubeReserved": { "cpu": "100m", "memory": "100Mi" },
        "systemReserved": { "cpu": "200m" },
        "podPidsLimit": 200,
        "cpuCFSQuotaPeriod": "50ms",
        "qosReserved": { "memory": "50%" },
        "memoryReservationPolicy": "TieredReservation",
        "featureGates": { "QOSReserved": true, "MemoryQoS": true },
    });
    let node = node_with(NodeOptions {
        kubelet,
        ..NodeOptions::default()
    })
    .await;
    let pods = pods();
    for (name, fields, _) in &pods {
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, fields)));
    }
    let mut steps = Steps::new();
    let total = memory_of_all_pods();
    steps
        .run("limits of pods and containers are set", async {
            for (name, _, values) in &pods {
                let pod = ok(node.wait_ready(name).await);
                check(&node, &pod, values);
            }
        })
        .await;
    steps
        .run("limits of all pods are set", async {
            kubepods_limits(&node);
        })
        .await;
    steps
        .run("memory is reserved by QoS class", async {
            // qosReserved 50 %: "burstable" requests 64 Mi and "whole" 32.
            let reserved = |path: &str| (total - bound(&node, path, MEMORY).unwrap()) / MI;
            assert_eq!(reserved("burstable"), 32);
            assert_eq!(reserved("besteffort"), 32 + 48);
            if cgroup::is_v2() {
                memory_protection(&node);
            }
        })
        .await;
    steps
        .run("a QoS class follows the removal of a pod", async {
            // The CPU weight of a QoS class is the sum of its pods', and shrinks when one is removed.
            assert_eq!(
                read(&node, "burstable", CPU_SHARES),
                weight(shares(250 + 300))
            );
            ok(node.take("burstable.json"));
            ok(node.wait_gone("burstable").await);
            let poll = || async {
                match read(&node, "burstable", CPU_SHARES) {
                    now if now == weight(shares(300)) => Poll::Ready(()),
                    now => Poll::Pending(format!("{now}")),
                }
            };
            ok(until("the QoS class's CPU weight to shrink", poll).await);
            assert_eq!(
                (total - bound(&node, "besteffort", MEMORY).unwrap()) / MI,
                32 + 16
            );
        })
        .await;
    steps
        .run("pods are removed", async {
            for (name, ..) in pods.iter().filter(|(name, ..)| *name != "burstable") {
                ok(node.take(&format!("{name}.json")));
                ok(node.wait_gone(name).await);
            }
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// Path below kubepods, and the expected values of the pod and of its container `main`.
struct Expected {
    class: &'static str,
    shares: i64,
    /// Limits of the pod: CPU in microseconds per 100 ms, memory in bytes.
    quota: Option<i64>,
    memory: Option<i64>,
    /// Limits of the container.
    own_quota: Option<i64>,
    own_memory: Option<i64>,
    oom: i64,
    /// Requested memory of the pod and of its container, in MiB.
    requested: i64,
    own_requested: i64,
    /// The container's memory.high in bytes.
    own_high: Option<i64>,
}

fn pods() -> Vec<(&'static str, Value, Expected)> {
    let full = json!({ "cpu": "100m", "memory": "64Mi" });
    let memory = i64::try_from(memory()).unwrap();
    vec![
        (
            "guaranteed",
            json!({ "container": { "resources": { "limits": full } } }),
            Expected {
                class: "",
                shares: shares(100),
                quota: Some(5_000),
                memory: Some(64 * MI),
                own_quota: Some(5_000),
                own_memory: Some(64 * MI),
                oom: -997,
                requested: 64,
                own_requested: 64,
                own_high: None,
            },
        ),
        (
            "burstable",
            json!({ "container": { "resources": { "requests": { "cpu": "250m", "memory": "64Mi" } } } }),
            Expected {
                class: "burstable",
                shares: shares(250),
                quota: None,
                memory: None,
                own_quota: None,
                own_memory: None,
                oom: 1000 - 1000 * 64 * MI / memory,
                requested: 64,
                own_requested: 64,
                own_high: Some(64 * MI + (memory_of_all_pods() - 64 * MI) * 9 / 10),
            },
        ),
        (
            "best",
            json!({}),
            Expected {
                class: "besteffort",
                shares: 2,
                quota: None,
                memory: None,
                own_quota: None,
                own_memory: None,
                oom: 1000,
                requested: 0,
                own_requested: 0,
                own_high: None,
            },
        ),
        (
            "whole",
            json!({ "resources": {
                "requests": { "cpu": "300m", "memory": "32Mi" },
                "limits": { "cpu": "500m", "memory": "128Mi" },
            } }),
            Expected {
                class: "burstable",
                shares: shares(300),
                quota: Some(25_000),
                memory: Some(128 * MI),
                own_quota: Some(25_000),
                own_memory: Some(128 * MI),
                oom: 1000 - 1000 * 32 * MI / memory,
                requested: 32,
                own_requested: 0,
                own_high: None,
            },
        ),
    ]
}

fn check(node: &Node, pod: &PodView, values: &Expected) {
    let path = format!("{}/pod{}", values.class, pod.uid);
    let name = &pod.name;
    assert_eq!(
        read(node, &path, CPU_SHARES),
        weight(values.shares),
        "{name}"
    );
    assert_eq!(quota(node, &path), values.quota, "{name}");
    assert_eq!(bound(node, &path, MEMORY), values.memory, "{name}");
    assert_eq!(read(node, &path, PIDS), 200, "{name}");
    let id = pod.container("main").unwrap().id;
    let id = id.trim_start_matches("containerd://");
    let container_path = format!("{path}/{id}");
    if cgroup::is_v2() {
        memory_protection_of(node, &path, &container_path, values);
    }
    assert_eq!(quota(node, &container_path), values.own_quota, "{name}");
    assert_eq!(
        bound(node, &container_path, MEMORY),
        values.own_memory,
        "{name}"
    );
    let procs = file(
        node,
        &container_path,
        ("pids", "cgroup.procs", "cgroup.procs"),
    );
    let procs = fs::read_to_string(procs).unwrap();
    let first = procs.lines().next().unwrap();
    let adjust = fs::read_to_string(format!("/proc/{first}/oom_score_adj")).unwrap();
    // Lowering oom_score_adj below one's own takes CAP_SYS_RESOURCE.
    let oom = if has_cap_sys_resource() {
        values.oom
    } else {
        values.oom.max(0)
    };
    assert_eq!(adjust.trim(), oom.to_string(), "{name}");
}

/// Whether this process has CAP_SYS_RESOURCE.
fn has_cap_sys_resource() -> bool {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let caps = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(caps.unwrap().trim(), 16).unwrap() & (1 << 24) != 0
}

/// memory.min of QoS classes, pods and containers, and memory.high of containers.
fn memory_protection(node: &Node) {
    let read = |path: &str, file: &'static str| read(node, path, ("", "", file)) / MI;
    assert_eq!(read("", "memory.min"), 64 + 64 + 32);
    assert_eq!(read("burstable", "memory.low"), 64 + 32);
}

fn memory_protection_of(node: &Node, path: &str, container_path: &str, values: &Expected) {
    let read = |path: &str, file: &'static str| read(node, path, ("", "", file));
    let file = match values.class {
        "" => "memory.min",
        _ => "memory.low",
    };
    assert_eq!(read(path, file) / MI, values.requested, "{path}");
    if values.own_requested > 0 {
        assert_eq!(
            read(container_path, file) / MI,
            values.own_requested,
            "{container_path}"
        );
    }
    let high = bound(node, container_path, ("", "", "memory.high"));
    let expected = values.own_high.map(|high| high / 4096 * 4096);
    assert_eq!(high, expected, "{container_path}");
}

/// The limit of all pods: capacity without reservations; eviction thresholds are not subtracted.
fn kubepods_limits(node: &Node) {
    let cpus = i64::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    assert_eq!(
        read(node, "", CPU_SHARES),
        weight(shares(cpus * 1000 - 300))
    );
    let memory = memory_of_all_pods();
    let bound = bound(node, "", MEMORY).unwrap();
    // The kernel rounds to pages.
    assert!((memory - bound).abs() < 65_536, "{bound} and not {memory}");
    let total: i64 = ["pid_max", "threads-max"]
        .iter()
        .map(|file| number(&PathBuf::from("/proc/sys/kernel").join(file)))
        .min()
        .unwrap();
    assert_eq!(read(node, "", PIDS), total);
}

fn memory_of_all_pods() -> i64 {
    i64::try_from(memory()).unwrap() - 100 * MI
}

fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() * 1024
}

fn shares(milli_cpu: i64) -> i64 {
    (milli_cpu * 1024 / 1000).max(2)
}

/// Controller and file of cgroup v1, and the file of v2.
type Kind = (&'static str, &'static str, &'static str);
