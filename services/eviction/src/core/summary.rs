//! The stats summary (stats/v1alpha1) out of a sample.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::signal::Level;

/// Processor time: the counter, and the rate since the sample before, if there was one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) nanoseconds: u64,
    pub(crate) nanocores: Option<u64>,
}

/// Memory, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) available: Option<u64>,
    pub(crate) usage: u64,
    pub(crate) working_set: u64,
    pub(crate) rss: u64,
    pub(crate) page_faults: u64,
    pub(crate) major_page_faults: u64,
}

/// A part of a file system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Files {
    pub(crate) bytes: Option<Level>,
    pub(crate) inodes: Option<Level>,
    pub(crate) used_bytes: u64,
    pub(crate) used_inodes: u64,
}

/// What one container, pod or system part uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) cpu: Option<Cpu>,
    pub(crate) memory: Option<Memory>,
    pub(crate) processes: Option<u64>,
    pub(crate) rootfs: Option<Files>,
    pub(crate) logs: Option<Files>,
}

/// One volume of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumePart {
    pub(crate) name: String,
    /// The claim that it is had by, in the pod's namespace.
    pub(crate) claim: Option<String>,
    /// It counts as the pod's own use of the node's disk.
    pub(crate) local: bool,
    pub(crate) files: Files,
}

/// One pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodPart {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) whole: Part,
    pub(crate) containers: Vec<Part>,
    pub(crate) volumes: Vec<VolumePart>,
    pub(crate) ephemeral: Option<Files>,
}

/// The node and everything on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: Timestamp,
    pub(crate) node: Part,
    pub(crate) system: Vec<Part>,
    pub(crate) fs: Option<Files>,
    pub(crate) image_fs: Option<Files>,
    pub(crate) pids: Option<Level>,
    pub(crate) swap: Option<Level>,
    pub(crate) pods: Vec<PodPart>,
}

/// The document. With `only_cpu_and_memory`, upstream leaves out everything else.
pub(crate) fn render(sample: &Sample, only_cpu_and_memory: bool) -> Value {
    let at = sample.at;
    let mut node = part(&sample.node, at, only_cpu_and_memory);
    node.insert("nodeName".into(), json!(sample.node.name));
    node.remove("name");
    let system: Vec<Value> = sample
        .system
        .iter()
        .map(|one| Value::Object(part(one, at, true)))
        .collect();
    node.insert("systemContainers".into(), Value::Array(system));
    if !only_cpu_and_memory {
        if let Some(fs) = &sample.fs {
            node.insert("fs".into(), files(fs, at));
        }
        if let Some(fs) = &sample.image_fs {
            node.insert(
                "runtime".into(),
                json!({"imageFs": files(fs, at), "containerFs": files(fs, at)}),
            );
        }
        if let Some(pids) = sample.pids {
            let running = pids.capacity.saturating_sub(pids.available);
            node.insert(
                "rlimit".into(),
                json!({"time": at, "maxpid": pids.capacity, "curproc": running}),
            );
        }
        if let Some(swap) = sample.swap {
            let used = swap.capacity.saturating_sub(swap.available);
            node.insert(
                "swap".into(),
                json!({"time": at, "swapAvailableBytes": swap.available, "swapUsageBytes": used}),
            );
        }
    }
    let pods: Vec<Value> = sample
        .pods
        .iter()
        .map(|one| pod(one, at, only_cpu_and_memory))
        .collect();
    json!({"node": node, "pods": pods})
}

fn pod(pod: &PodPart, at: Timestamp, only_cpu_and_memory: bool) -> Value {
    let mut out = part(&pod.whole, at, true);
    out.remove("name");
    out.insert(
        "podRef".into(),
        json!({"name": pod.whole.name, "namespace": pod.namespace, "uid": pod.uid}),
    );
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|one| Value::Object(part(one, at, only_cpu_and_memory)))
        .collect();
    out.insert("containers".into(), Value::Array(containers));
    if only_cpu_and_memory {
        return Value::Object(out);
    }
    if !pod.volumes.is_empty() {
        let volumes: Vec<Value> = pod
            .volumes
            .iter()
            .map(|volume| {
                let mut one = files(&volume.files, at);
                one["name"] = json!(volume.name);
                if let Some(claim) = &volume.claim {
                    one["pvcRef"] = json!({"name": claim, "namespace": pod.namespace});
                }
                one
            })
            .collect();
        out.insert("volume".into(), Value::Array(volumes));
    }
    if let Some(ephemeral) = &pod.ephemeral {
        out.insert("ephemeral-storage".into(), files(ephemeral, at));
    }
    if let Some(count) = pod.whole.processes {
        out.insert("process_stats".into(), json!({"process_count": count}));
    }
    Value::Object(out)
}

fn part(part: &Part, at: Timestamp, only_cpu_and_memory: bool) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("name".into(), json!(part.name));
    if let Some(started) = part.started_at {
        out.insert("startTime".into(), json!(started));
    }
    if let Some(cpu) = part.cpu {
        let mut value = json!({"time": at, "usageCoreNanoSeconds": cpu.nanoseconds});
        if let Some(rate) = cpu.nanocores {
            value["usageNanoCores"] = json!(rate);
        }
        out.insert("cpu".into(), value);
    }
    if let Some(memory) = part.memory {
        let mut value = json!({
            "time": at,
            "usageBytes": memory.usage,
            "workingSetBytes": memory.working_set,
            "rssBytes": memory.rss,
            "pageFaults": memory.page_faults,
            "majorPageFaults": memory.major_page_faults,
        });
        if let Some(available) = memory.available {
            value["availableBytes"] = json!(available);
        }
        out.insert("memory".into(), value);
    }
    if !only_cpu_and_memory {
        for (name, fs) in [("rootfs", &part.rootfs), ("logs", &part.logs)] {
            if let Some(fs) = fs {
                out.insert(name.into(), files(fs, at));
            }
        }
    }
    out
}

fn files(files: &Files, at: Timestamp) -> Value {
    let mut out = json!({
        "time": at,
        "usedBytes": files.used_bytes,
        "inodesUsed": files.used_inodes,
    });
    if let Some(bytes) = files.bytes {
        out["availableBytes"] = json!(bytes.available);
        out["capacityBytes"] = json!(bytes.capacity);
    }
    if let Some(inodes) = files.inodes {
        out["inodesFree"] = json!(inodes.available);
        out["inodes"] = json!(inodes.capacity);
    }
    out
}
