//! The stats summary (`stats/v1alpha1`) as JSON.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::signal::Observation;
use super::stats::{InterfaceStats, Pressure, Stall, Stalls};

/// CPU usage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuStats {
    /// The counter.
    pub(crate) nanoseconds: u64,
    /// The rate since the previous sample; `None` for the first one.
    pub(crate) nanocores: Option<u64>,
}

/// Memory usage in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryStats {
    pub(crate) available: Option<u64>,
    pub(crate) usage: u64,
    pub(crate) working_set: u64,
    pub(crate) rss: u64,
    pub(crate) page_faults: u64,
    pub(crate) major_page_faults: u64,
    pub(crate) swap: u64,
    /// `None` without a limit.
    pub(crate) swap_available: Option<u64>,
}

/// The usage of a file system, or of files on it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FsStats {
    pub(crate) bytes: Option<Observation>,
    pub(crate) inodes: Option<Observation>,
    pub(crate) used_bytes: u64,
    pub(crate) used_inodes: u64,
}

/// The usage of a container, a pod, a system container or the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerStats {
    pub(crate) name: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) cpu: Option<CpuStats>,
    pub(crate) memory: Option<MemoryStats>,
    pub(crate) pressure: Pressure,
    /// Of pods and the node.
    pub(crate) network: Option<Vec<InterfaceStats>>,
    pub(crate) processes: Option<u64>,
    pub(crate) rootfs: Option<FsStats>,
    pub(crate) logs: Option<FsStats>,
}

/// The usage of a pod's volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodVolumeStats {
    pub(crate) name: String,
    /// The name of its persistent volume claim in the pod's namespace.
    pub(crate) claim: Option<String>,
    /// Whether it counts as ephemeral storage of the pod.
    pub(crate) local: bool,
    pub(crate) files: FsStats,
}

/// The usage of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodStats {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) total: ContainerStats,
    pub(crate) containers: Vec<ContainerStats>,
    pub(crate) volumes: Vec<PodVolumeStats>,
    pub(crate) ephemeral: Option<FsStats>,
}

/// When a summary was measured: walking files takes seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SampleTimes {
    /// When the measurement of the files was begun.
    pub(crate) files: Timestamp,
    /// When everything else was read.
    pub(crate) counters: Timestamp,
}

/// The usage of the node and its pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatsSummary {
    pub(crate) times: SampleTimes,
    pub(crate) node: ContainerStats,
    pub(crate) system: Vec<ContainerStats>,
    pub(crate) fs: Option<FsStats>,
    pub(crate) image_fs: Option<FsStats>,
    pub(crate) pids: Option<Observation>,
    pub(crate) pods: Vec<PodStats>,
}

/// Renders the summary. With `only_cpu_and_memory`, everything else is omitted, as upstream.
pub(crate) fn render(summary: &StatsSummary, only_cpu_and_memory: bool) -> Value {
    let times = summary.times;
    let mut node = container(&summary.node, times, only_cpu_and_memory);
    node.insert("nodeName".into(), json!(summary.node.name));
    node.remove("name");
    let system: Vec<Value> = summary
        .system
        .iter()
        .map(|one| Value::Object(container(one, times, only_cpu_and_memory)))
        .collect();
    node.insert("systemContainers".into(), Value::Array(system));
    if !only_cpu_and_memory {
        if let Some(fs) = &summary.fs {
            node.insert("fs".into(), files(fs, times.files).into());
        }
        if let Some(fs) = &summary.image_fs {
            let fs = files(fs, times.files);
            node.insert("runtime".into(), json!({"imageFs": fs, "containerFs": fs}));
        }
        if let Some(pids) = summary.pids {
            let running = pids.capacity.saturating_sub(pids.available);
            node.insert(
                "rlimit".into(),
                json!({"time": times.counters, "maxpid": pids.capacity, "curproc": running}),
            );
        }
        insert_network(&mut node, &summary.node, times.counters);
    }
    let pods: Vec<Value> = summary
        .pods
        .iter()
        .map(|one| pod(one, times, only_cpu_and_memory))
        .collect();
    json!({"node": node, "pods": pods})
}

fn pod(pod: &PodStats, times: SampleTimes, only_cpu_and_memory: bool) -> Value {
    let mut out = container(&pod.total, times, true);
    out.remove("name");
    out.insert(
        "podRef".into(),
        json!({"name": pod.total.name, "namespace": pod.namespace, "uid": pod.uid}),
    );
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|one| Value::Object(container(one, times, only_cpu_and_memory)))
        .collect();
    out.insert("containers".into(), Value::Array(containers));
    if only_cpu_and_memory {
        return Value::Object(out);
    }
    insert_io(&mut out, &pod.total, times.counters);
    insert_network(&mut out, &pod.total, times.counters);
    if !pod.volumes.is_empty() {
        let volumes: Vec<Value> = pod
            .volumes
            .iter()
            .map(|volume| {
                let mut one = files(&volume.files, times.files);
                one.insert("name".into(), json!(volume.name));
                if let Some(claim) = &volume.claim {
                    let claim = json!({"name": claim, "namespace": pod.namespace});
                    one.insert("pvcRef".into(), claim);
                }
                Value::Object(one)
            })
            .collect();
        out.insert("volume".into(), Value::Array(volumes));
    }
    if let Some(ephemeral) = &pod.ephemeral {
        out.insert(
            "ephemeral-storage".into(),
            files(ephemeral, times.files).into(),
        );
    }
    if let Some(count) = pod.total.processes {
        out.insert("process_stats".into(), json!({"process_count": count}));
    }
    Value::Object(out)
}

fn container(
    stats: &ContainerStats,
    times: SampleTimes,
    only_cpu_and_memory: bool,
) -> Map<String, Value> {
    let at = times.counters;
    let mut out = Map::new();
    out.insert("name".into(), json!(stats.name));
    if let Some(started) = stats.started_at {
        out.insert("startTime".into(), json!(started));
    }
    if let Some(cpu) = stats.cpu {
        out.insert("cpu".into(), cpu_stats(cpu, &stats.pressure.cpu, at).into());
    }
    if let Some(memory) = stats.memory {
        let value = memory_stats(memory, &stats.pressure.memory, at);
        out.insert("memory".into(), value.into());
        let mut swap = Map::new();
        swap.insert("time".into(), json!(at));
        swap.insert("swapUsageBytes".into(), memory.swap.into());
        if let Some(available) = memory.swap_available {
            swap.insert("swapAvailableBytes".into(), available.into());
        }
        out.insert("swap".into(), swap.into());
    }
    if !only_cpu_and_memory {
        insert_io(&mut out, stats, at);
        for (name, fs) in [("rootfs", &stats.rootfs), ("logs", &stats.logs)] {
            if let Some(fs) = fs {
                out.insert(name.into(), files(fs, times.files).into());
            }
        }
    }
    out
}

fn cpu_stats(cpu: CpuStats, stalls: &Stalls, at: Timestamp) -> Map<String, Value> {
    let mut value = Map::new();
    value.insert("time".into(), json!(at));
    value.insert("usageCoreNanoSeconds".into(), cpu.nanoseconds.into());
    if let Some(rate) = cpu.nanocores {
        value.insert("usageNanoCores".into(), rate.into());
    }
    value.insert("psi".into(), pressure(stalls));
    value
}

fn memory_stats(memory: MemoryStats, stalls: &Stalls, at: Timestamp) -> Map<String, Value> {
    let mut value = Map::new();
    value.insert("time".into(), json!(at));
    for (name, number) in [
        ("usageBytes", memory.usage),
        ("workingSetBytes", memory.working_set),
        ("rssBytes", memory.rss),
        ("pageFaults", memory.page_faults),
        ("majorPageFaults", memory.major_page_faults),
    ] {
        value.insert(name.into(), number.into());
    }
    if let Some(available) = memory.available {
        value.insert("availableBytes".into(), available.into());
    }
    value.insert("psi".into(), pressure(stalls));
    value
}

fn insert_io(out: &mut Map<String, Value>, stats: &ContainerStats, at: Timestamp) {
    let io = json!({"time": at, "psi": pressure(&stats.pressure.io)});
    out.insert("io".into(), io);
}

fn pressure(stalls: &Stalls) -> Value {
    let stall = |stall: &Stall| {
        json!({
            "total": stall.total, "avg10": stall.avg10, "avg60": stall.avg60, "avg300": stall.avg300,
        })
    };
    json!({"full": stall(&stalls.full), "some": stall(&stalls.some)})
}

/// All interfaces, and the one that upstream takes for the default one.
fn insert_network(out: &mut Map<String, Value>, stats: &ContainerStats, at: Timestamp) {
    const DEFAULT: &str = "eth0";
    let Some(interfaces) = &stats.network else {
        return;
    };
    let interface = |one: &InterfaceStats| {
        let fields = [
            ("name", json!(one.name)),
            ("rxBytes", json!(one.received.bytes)),
            ("rxErrors", json!(one.received.errors)),
            ("txBytes", json!(one.sent.bytes)),
            ("txErrors", json!(one.sent.errors)),
        ];
        let fields = fields.into_iter();
        fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<Map<_, _>>()
    };
    let default = interfaces.iter().find(|one| one.name == DEFAULT);
    let unnamed = || Map::from_iter([("name".to_owned(), json!(""))]);
    let mut network = default.map_or_else(unnamed, interface);
    let all: Vec<_> = interfaces.iter().map(interface).collect();
    network.insert("time".into(), json!(at));
    network.insert("interfaces".into(), json!(all));
    out.insert("network".into(), network.into());
}

fn files(files: &FsStats, at: Timestamp) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("time".into(), json!(at));
    out.insert("usedBytes".into(), files.used_bytes.into());
    out.insert("inodesUsed".into(), files.used_inodes.into());
    if let Some(bytes) = files.bytes {
        out.insert("availableBytes".into(), bytes.available.into());
        out.insert("capacityBytes".into(), bytes.capacity.into());
    }
    if let Some(inodes) = files.inodes {
        out.insert("inodesFree".into(), inodes.available.into());
        out.insert("inodes".into(), inodes.capacity.into());
    }
    out
}
