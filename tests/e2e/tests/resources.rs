//! Resource limits, read back from cgroups and processes.

use std::fs;
use std::path::PathBuf;

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

/// As upstream, static pods are not resized: with a changed manifest of the same uid the pod keeps its
/// resources, also after a container restart, and its status says why.
#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn static_pods_are_not_resized() {
    let mut node = node_with(NodeOptions::default()).await;
    let manifest = |cpu: &str| {
        let limits = json!({ "cpu": cpu, "memory": "32Mi" });
        let fields = json!({ "container": { "resources": { "limits": limits } } });
        let mut pod: Value = serde_json::from_str(&pod("fixed", RUNS, &fields)).unwrap();
        pod["metadata"]["uid"] = json!("0f1e2d3c-0000-4000-8000-00000000000a");
        pod.to_string()
    };
    ok(node.put("fixed.json", &manifest("100m")));
    let before = ok(node.wait_ready("fixed").await);
    let container_path = |pod: &PodView| {
        let id = pod.container("main").unwrap().id;
        let id = id.trim_start_matches("containerd://");
        format!("pod{}/{id}", pod.uid)
    };
    assert_eq!(quota(&node, &container_path(&before)), Some(10_000));
    assert_eq!(before.condition("PodResizePending"), None);

    let pending = |pod: &PodView| pod.condition("PodResizePending").is_some();
    let assert_allocated = |pod: &PodView| {
        let container = &pod.status["containerStatuses"][0];
        assert_eq!(container["resources"]["limits"]["cpu"], "100m");
        assert_eq!(container["allocatedResources"]["cpu"], "100m");
    };
    let mut steps = Steps::new();
    let condition = steps
        .require("the resize is reported as infeasible", async {
            ok(node.put("fixed.json", &manifest("200m")));
            let infeasible = ok(node
                .wait_pod("fixed", "to report the pending resize", pending)
                .await);
            let condition = infeasible.condition("PodResizePending").unwrap().clone();
            assert_eq!(condition["status"], "True");
            assert_eq!(condition["reason"], "Infeasible");
            assert_eq!(
                condition["message"],
                "In-place resize of static-pods is not supported"
            );
            let requested =
                infeasible.manifest["spec"]["containers"][0]["resources"]["limits"]["cpu"].clone();
            assert_eq!(requested, "200m");
            assert_allocated(&infeasible);
            condition
        })
        .await;
    steps
        .run("a service restart changes nothing", async {
            ok(node.kill("sync-coordinator").await);
            ok(node.wait_in_step().await);
            let unchanged = ok(node
                .wait_pod("fixed", "to still report the pending resize", pending)
                .await);
            assert_eq!(unchanged.identity(), before.identity());
            assert_eq!(unchanged.condition("PodResizePending"), Some(&condition));
            assert_eq!(quota(&node, &container_path(&unchanged)), Some(10_000));
        })
        .await;
    let restarted = steps
        .require("a container restart changes nothing", async {
            end_first_process(&node, &container_path(&before));
            let restarted =
                |pod: &PodView| pod.is_ready() && pod.container("main").unwrap().restarts == 1;
            let restarted = ok(node.wait_pod("fixed", "to be restarted", restarted).await);
            assert_eq!(quota(&node, &container_path(&restarted)), Some(10_000));
            assert_eq!(
                quota(&node, &format!("pod{}", restarted.uid)),
                Some(10_000),
                "the pod's own limit"
            );
            assert_allocated(&restarted);
            restarted
        })
        .await;
    steps
        .run("the original manifest clears the condition", async {
            ok(node.put("fixed.json", &manifest("100m")));
            let reverted = |pod: &PodView| !pending(pod);
            let reverted = ok(node
                .wait_pod("fixed", "to have no pending resize", reverted)
                .await);
            assert_eq!(reverted.identity(), restarted.identity());
        })
        .await;
    steps
        .run("the pod is removed", async {
            ok(node.take("fixed.json"));
            ok(node.wait_gone("fixed").await);
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// Kills the container's first process.
fn end_first_process(node: &Node, path: &str) {
    let procs = file(node, path, ("pids", "cgroup.procs", "cgroup.procs"));
    let procs = fs::read_to_string(procs).unwrap();
    let first = procs.lines().next().unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-9", first])
        .status();
    assert!(killed.is_ok_and(|status| status.success()));
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

const CPU_SHARES: Kind = ("cpu", "cpu.shares", "cpu.weight");
const MEMORY: Kind = ("memory", "memory.limit_in_bytes", "memory.max");
const PIDS: Kind = ("pids", "pids.max", "pids.max");

fn file(node: &Node, path: &str, kind: Kind) -> PathBuf {
    let root = PathBuf::from("/sys/fs/cgroup");
    let (hierarchy, name) = match cgroup::is_v2() {
        true => (root, kind.2),
        false => (root.join(kind.0), kind.1),
    };
    hierarchy.join(below_root(node, path)).join(name)
}

/// Path of a QoS class, pod and container below kubepods for the cgroup driver in use.
fn below_root(node: &Node, path: &str) -> String {
    let root = node.cgroup().trim_start_matches('/');
    let parts = path.split('/').filter(|part| !part.is_empty());
    if cgroup::TestCgroupDriver::from_env() == cgroup::TestCgroupDriver::Cgroupfs {
        let below: Vec<&str> = [root, "kubepods"].into_iter().chain(parts).collect();
        return below.join("/");
    }
    let mut slice = format!("{}-kubepods", root.trim_end_matches(".slice"));
    let mut path = format!("{root}/{slice}.slice");
    for part in parts {
        // Only container ids are that long; their cgroups are the runtime's.
        if part.len() == 64 {
            path.push_str(&format!("/cri-containerd-{part}.scope"));
        } else {
            slice = format!("{slice}-{}", part.replace('-', "_"));
            path.push_str(&format!("/{slice}.slice"));
        }
    }
    path
}

fn number(file: &PathBuf) -> i64 {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.trim().parse().unwrap_or(i64::MAX)
}

fn read(node: &Node, path: &str, kind: Kind) -> i64 {
    number(&file(node, path, kind))
}

/// CPU shares converted to this machine's cgroup version.
fn weight(shares: i64) -> i64 {
    match cgroup::is_v2() {
        true => 1 + (shares - 2) * 9_999 / 262_142,
        false => shares,
    }
}

/// A limit or none, which cgroup v1 shows as a huge number.
fn bound(node: &Node, path: &str, kind: Kind) -> Option<i64> {
    Some(read(node, path, kind)).filter(|bound| *bound < 1 << 60)
}

fn quota(node: &Node, path: &str) -> Option<i64> {
    if cgroup::is_v2() {
        let text = fs::read_to_string(file(node, path, ("", "", "cpu.max"))).unwrap();
        return text.split_whitespace().next()?.parse().ok();
    }
    let kind = ("cpu", "cpu.cfs_quota_us", "");
    Some(number(&file(node, path, kind))).filter(|quota| *quota > 0)
}
