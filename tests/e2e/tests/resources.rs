//! What the kernel is told a pod may use, read back from its cgroups and its processes.

use std::fs;
use std::path::PathBuf;

use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Node, NodeOptions, PodView, cgroup};
use serde_json::{Value, json};

const MI: i64 = 1 << 20;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn limits_are_in_the_kernel() {
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
    for (name, _, wanted) in &pods {
        let pod = ok(node.wait_ready(name).await);
        check(&node, &pod, wanted);
    }
    all_pods_together(&node);

    // Classes may not take half of what better ones ask for; "burstable" asks for 64 Mi and "whole" for 32.
    let most = memory_of_all_pods();
    let kept = |path: &str| (most - bound(&node, path, MEMORY).unwrap()) / MI;
    assert_eq!(kept("burstable"), 32);
    assert_eq!(kept("besteffort"), 32 + 48);
    if cgroup::is_v2() {
        promises(&node);
    }

    // The class weighs what its pods weigh together, and less when one has left.
    assert_eq!(
        read(&node, "burstable", CPU_SHARES),
        weight(shares(250 + 300))
    );
    ok(node.take("burstable.json"));
    ok(node.wait_gone("burstable").await);
    let look = || async {
        match read(&node, "burstable", CPU_SHARES) {
            now if now == weight(shares(300)) => Look::Done(()),
            now => Look::NotYet(format!("{now}")),
        }
    };
    ok(until("the class to weigh less", look).await);
    assert_eq!(
        (most - bound(&node, "besteffort", MEMORY).unwrap()) / MI,
        32 + 16
    );
    for (name, ..) in pods.iter().filter(|(name, ..)| *name != "burstable") {
        ok(node.take(&format!("{name}.json")));
        ok(node.wait_gone(name).await);
    }
    ok(node.remove());
}

/// Upstream resizes no static pod: a manifest that keeps its uid and asks for other resources leaves
/// the pod with what it has, also where a container starts anew, and the status says why.
#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn a_static_pod_is_not_resized() {
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
    let own = |pod: &PodView| {
        let id = pod.container("main").unwrap().id;
        let id = id.trim_start_matches("containerd://");
        format!("pod{}/{id}", pod.uid)
    };
    assert_eq!(quota(&node, &own(&before)), Some(10_000));
    assert_eq!(before.condition("PodResizePending"), None);

    ok(node.put("fixed.json", &manifest("200m")));
    let pending = |pod: &PodView| pod.condition("PodResizePending").is_some();
    let told = ok(node.wait_pod("fixed", "to tell", pending).await);
    let condition = told.condition("PodResizePending").unwrap().clone();
    assert_eq!(condition["status"], "True");
    assert_eq!(condition["reason"], "Infeasible");
    assert_eq!(
        condition["message"],
        "In-place resize of static-pods is not supported"
    );
    let asked = told.manifest["spec"]["containers"][0]["resources"]["limits"]["cpu"].clone();
    assert_eq!(asked, "200m");
    let has = |pod: &PodView| {
        let container = &pod.status["containerStatuses"][0];
        assert_eq!(container["resources"]["limits"]["cpu"], "100m");
        assert_eq!(container["allocatedResources"]["cpu"], "100m");
    };
    has(&told);

    ok(node.kill("sync-coordinator").await);
    ok(node.wait_in_step().await);
    let still = ok(node.wait_pod("fixed", "to tell still", pending).await);
    assert_eq!(still.identity(), before.identity());
    assert_eq!(still.condition("PodResizePending"), Some(&condition));
    assert_eq!(quota(&node, &own(&still)), Some(10_000));

    end_first_process(&node, &own(&still));
    let again = |pod: &PodView| pod.is_ready() && pod.container("main").unwrap().restarts == 1;
    let again = ok(node.wait_pod("fixed", "to start anew", again).await);
    assert_eq!(quota(&node, &own(&again)), Some(10_000));
    assert_eq!(
        quota(&node, &format!("pod{}", again.uid)),
        Some(10_000),
        "the pod's own bound"
    );
    has(&again);

    ok(node.put("fixed.json", &manifest("100m")));
    let calm = |pod: &PodView| !pending(pod);
    let calm = ok(node.wait_pod("fixed", "to be as asked", calm).await);
    assert_eq!(calm.identity(), again.identity());
    ok(node.take("fixed.json"));
    ok(node.wait_gone("fixed").await);
    ok(node.remove());
}

/// The container's own init dies.
fn end_first_process(node: &Node, path: &str) {
    let procs = file(node, path, ("pids", "cgroup.procs", "cgroup.procs"));
    let procs = fs::read_to_string(procs).unwrap();
    let first = procs.lines().next().unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-9", first])
        .status();
    assert!(killed.is_ok_and(|status| status.success()));
}

/// Below kubepods, and what is expected of the pod and of its container `main`.
struct Wanted {
    class: &'static str,
    shares: i64,
    /// Of the pod: microseconds in each 100 ms, and bytes.
    quota: Option<i64>,
    memory: Option<i64>,
    /// Of the container.
    own_quota: Option<i64>,
    own_memory: Option<i64>,
    oom: i64,
    /// Mebibytes of memory that the pod and its container ask for.
    asked: i64,
    own_asked: i64,
    /// Where the container is slowed down, in bytes.
    own_high: Option<i64>,
}

fn pods() -> Vec<(&'static str, Value, Wanted)> {
    let full = json!({ "cpu": "100m", "memory": "64Mi" });
    let memory = i64::try_from(memory()).unwrap();
    vec![
        (
            "guaranteed",
            json!({ "container": { "resources": { "limits": full } } }),
            Wanted {
                class: "",
                shares: shares(100),
                quota: Some(5_000),
                memory: Some(64 * MI),
                own_quota: Some(5_000),
                own_memory: Some(64 * MI),
                oom: -997,
                asked: 64,
                own_asked: 64,
                own_high: None,
            },
        ),
        (
            "burstable",
            json!({ "container": { "resources": { "requests": { "cpu": "250m", "memory": "64Mi" } } } }),
            Wanted {
                class: "burstable",
                shares: shares(250),
                quota: None,
                memory: None,
                own_quota: None,
                own_memory: None,
                oom: 1000 - 1000 * 64 * MI / memory,
                asked: 64,
                own_asked: 64,
                own_high: Some(64 * MI + (memory_of_all_pods() - 64 * MI) * 9 / 10),
            },
        ),
        (
            "best",
            json!({}),
            Wanted {
                class: "besteffort",
                shares: 2,
                quota: None,
                memory: None,
                own_quota: None,
                own_memory: None,
                oom: 1000,
                asked: 0,
                own_asked: 0,
                own_high: None,
            },
        ),
        (
            "whole",
            json!({ "resources": {
                "requests": { "cpu": "300m", "memory": "32Mi" },
                "limits": { "cpu": "500m", "memory": "128Mi" },
            } }),
            Wanted {
                class: "burstable",
                shares: shares(300),
                quota: Some(25_000),
                memory: Some(128 * MI),
                own_quota: Some(25_000),
                own_memory: Some(128 * MI),
                oom: 1000 - 1000 * 32 * MI / memory,
                asked: 32,
                own_asked: 0,
                own_high: None,
            },
        ),
    ]
}

fn check(node: &Node, pod: &PodView, wanted: &Wanted) {
    let path = format!("{}/pod{}", wanted.class, pod.uid);
    let name = &pod.name;
    assert_eq!(
        read(node, &path, CPU_SHARES),
        weight(wanted.shares),
        "{name}"
    );
    assert_eq!(quota(node, &path), wanted.quota, "{name}");
    assert_eq!(bound(node, &path, MEMORY), wanted.memory, "{name}");
    assert_eq!(read(node, &path, PIDS), 200, "{name}");
    let id = pod.container("main").unwrap().id;
    let id = id.trim_start_matches("containerd://");
    let own = format!("{path}/{id}");
    if cgroup::is_v2() {
        promises_of(node, &path, &own, wanted);
    }
    assert_eq!(quota(node, &own), wanted.own_quota, "{name}");
    assert_eq!(bound(node, &own, MEMORY), wanted.own_memory, "{name}");
    let procs = file(node, &own, ("pids", "cgroup.procs", "cgroup.procs"));
    let procs = fs::read_to_string(procs).unwrap();
    let first = procs.lines().next().unwrap();
    let adjust = fs::read_to_string(format!("/proc/{first}/oom_score_adj")).unwrap();
    // Without the right to, nobody makes a process less likely to be killed than himself.
    let oom = if may_protect() {
        wanted.oom
    } else {
        wanted.oom.max(0)
    };
    assert_eq!(adjust.trim(), oom.to_string(), "{name}");
}

/// Whether this process has CAP_SYS_RESOURCE.
fn may_protect() -> bool {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let caps = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(caps.unwrap().trim(), 16).unwrap() & (1 << 24) != 0
}

/// Memory that is not taken from classes, pods and containers that ask for it, and where containers are
/// slowed down.
fn promises(node: &Node) {
    let read = |path: &str, file: &'static str| read(node, path, ("", "", file)) / MI;
    assert_eq!(read("", "memory.min"), 64 + 64 + 32);
    assert_eq!(read("burstable", "memory.low"), 64 + 32);
}

fn promises_of(node: &Node, path: &str, own: &str, wanted: &Wanted) {
    let read = |path: &str, file: &'static str| read(node, path, ("", "", file));
    let file = match wanted.class {
        "" => "memory.min",
        _ => "memory.low",
    };
    assert_eq!(read(path, file) / MI, wanted.asked, "{path}");
    if wanted.own_asked > 0 {
        assert_eq!(read(own, file) / MI, wanted.own_asked, "{own}");
    }
    let high = bound(node, own, ("", "", "memory.high"));
    let expected = wanted.own_high.map(|high| high / 4096 * 4096);
    assert_eq!(high, expected, "{own}");
}

/// What all pods share: the machine without what is reserved; no threshold is taken off.
fn all_pods_together(node: &Node) {
    let cpus = i64::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    assert_eq!(
        read(node, "", CPU_SHARES),
        weight(shares(cpus * 1000 - 300))
    );
    let memory = memory_of_all_pods();
    let bound = bound(node, "", MEMORY).unwrap();
    // The kernel counts in pages.
    assert!((memory - bound).abs() < 65_536, "{bound} and not {memory}");
    let most: i64 = ["pid_max", "threads-max"]
        .iter()
        .map(|file| number(&PathBuf::from("/proc/sys/kernel").join(file)))
        .min()
        .unwrap();
    assert_eq!(read(node, "", PIDS), most);
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

/// Controller and file of version 1, and the file of version 2.
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

/// A class, pod and container below kubepods, as whoever makes cgroups here names them.
fn below_root(node: &Node, path: &str) -> String {
    let root = node.cgroup().trim_start_matches('/');
    let parts = path.split('/').filter(|part| !part.is_empty());
    if cgroup::Driver::from_env() == cgroup::Driver::Cgroupfs {
        let below: Vec<&str> = [root, "kubepods"].into_iter().chain(parts).collect();
        return below.join("/");
    }
    let mut slice = format!("{}-kubepods", root.trim_end_matches(".slice"));
    let mut path = format!("{root}/{slice}.slice");
    for part in parts {
        // Only a container's id is that long, and its cgroup is the runtime's.
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

/// What shares are called in the version of cgroups that this machine has.
fn weight(shares: i64) -> i64 {
    match cgroup::is_v2() {
        true => 1 + (shares - 2) * 9_999 / 262_142,
        false => shares,
    }
}

/// A bound, or none: the kernel says that with a number beyond all machines.
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
