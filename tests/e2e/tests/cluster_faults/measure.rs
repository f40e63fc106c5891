//! What is measured while a fault lasts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, ok};
use polylet_harness::cluster::pod_path;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::json;

use crate::faulty_node::{PODS, bound};

/// Memory pressure must be in the Node's status after this time.
const PRESSURE_LIMIT: Duration = Duration::from_secs(12);
/// Bound of a service's memory (PSS); debug builds are several times as large as released ones.
const MEMORY_LIMIT_KIB: u64 = 192 << 10;
/// How much memory must be in use for pressure, above what was in use at the start.
const PRESSURE_MIB: u64 = 2048;

/// What was measured with one fault.
#[derive(Clone)]
pub(crate) struct Measured {
    fault: String,
    /// Start of a simple pod, from its creation until it is Ready; the median.
    pub(crate) start: Option<Duration>,
    /// From the use of memory until the condition of the Node.
    pub(crate) pressure: Option<Duration>,
    /// PSS of each service in KiB.
    pub(crate) memory: BTreeMap<String, u64>,
}

impl Measured {
    pub(crate) fn new(fault: &str) -> Self {
        Self {
            fault: fault.to_owned(),
            start: None,
            pressure: None,
            memory: BTreeMap::new(),
        }
    }

    pub(crate) fn verify(&self, start_limit: Duration) {
        if let Some(start) = self.start {
            assert!(
                start <= start_limit,
                "{}: a start took {start:?}",
                self.fault
            );
        }
        if let Some(pressure) = self.pressure {
            let fault = &self.fault;
            assert!(
                pressure <= PRESSURE_LIMIT,
                "{fault}: pressure was seen after {pressure:?}"
            );
        }
        for (service, kib) in &self.memory {
            assert!(
                *kib <= MEMORY_LIMIT_KIB,
                "{}: {service} has {kib} KiB",
                self.fault
            );
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.fault)?;
        if let Some(start) = self.start {
            write!(f, "start {} ms, ", start.as_millis())?;
        }
        if let Some(pressure) = self.pressure {
            write!(f, "pressure seen after {:.1} s, ", pressure.as_secs_f64())?;
        }
        let largest = self.memory.iter().max_by_key(|(_, kib)| **kib);
        let sum: u64 = self.memory.values().sum();
        let (service, kib) = largest.map_or(("none", 0), |(name, kib)| (name.as_str(), *kib));
        write!(
            f,
            "memory {} MiB, most {service} {} MiB",
            sum >> 10,
            kib >> 10
        )
    }
}

/// Median time from the creation of a simple pod until it is Ready in a watch.
pub(crate) async fn start_time(cluster: &Cluster, rounds: usize) -> Duration {
    let mut times = Vec::new();
    for round in 0..rounds {
        let name = format!("simple-{round}");
        let one = one_start(cluster, &name);
        let limit = polylet_harness::wait::timeout();
        let one = tokio::time::timeout(limit, one).await;
        times.push(one.unwrap_or(limit));
        let now = json!({ "gracePeriodSeconds": 0 });
        ok(cluster.client().delete(&pod_path(&name), &now).await);
        ok(cluster.wait_absent(&pod_path(&name)).await);
    }
    times.sort();
    times.get(rounds / 2).copied().unwrap_or_default()
}

async fn one_start(cluster: &Cluster, name: &str) -> Duration {
    let path = format!("{PODS}?fieldSelector=metadata.name%3D{name}");
    let mut watch = ok(cluster.client().watch(&path).await);
    let started = Instant::now();
    let pod = bound(name, RUNS, &json!({}));
    ok(cluster.client().create(PODS, &pod).await);
    while let Some((_, object)) = ok(watch.next().await) {
        if polylet_harness::cluster::is_ready(&object) {
            break;
        }
    }
    started.elapsed()
}

/// The threshold: what is available now, less what [`pressure_is_seen`] uses.
pub(crate) fn pressure_threshold() -> String {
    let available = available_mib();
    assert!(
        available > 2 * PRESSURE_MIB,
        "the test needs {} MiB of memory, {available} MiB are available",
        2 * PRESSURE_MIB
    );
    format!("{}Mi", available - PRESSURE_MIB)
}

/// Uses memory until the threshold is met, and returns how long the Node's condition took.
pub(crate) async fn pressure_is_seen(cluster: &Cluster) -> Duration {
    let used = ok(tokio::task::spawn_blocking(use_memory).await);
    let started = Instant::now();
    wait_pressure(cluster, "True").await;
    let seen = started.elapsed();
    drop(used);
    wait_pressure(cluster, "False").await;
    seen
}

/// Somewhat more than the threshold leaves: other programs may free memory meanwhile.
fn use_memory() -> Vec<u8> {
    let mut used = vec![0; (PRESSURE_MIB as usize * 3 / 2) << 20];
    used.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    used
}

async fn wait_pressure(cluster: &Cluster, status: &str) {
    let what = format!("has MemoryPressure {status}");
    let is = |node: &serde_json::Value| {
        let conditions = node["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one["type"] == "MemoryPressure" && one["status"] == status)
    };
    ok(cluster.wait("/api/v1/nodes/node", &what, is).await);
}

/// `memory.available` of the eviction manager: capacity less the working set. Page cache that is in
/// use counts as used, so it is less than the kernel's `MemAvailable`.
fn available_mib() -> u64 {
    let meminfo = ok(std::fs::read_to_string("/proc/meminfo"));
    let kib = |name: &str| number_after(&meminfo, name);
    let v1 = "/sys/fs/cgroup/memory";
    let working_set = match std::fs::read_to_string(format!("{v1}/memory.usage_in_bytes")) {
        Ok(usage) => {
            let stat = ok(std::fs::read_to_string(format!("{v1}/memory.stat")));
            let usage = usage.trim().parse::<u64>().unwrap_or_default();
            usage.saturating_sub(number_after(&stat, "total_inactive_file")) >> 10
        }
        Err(_) => (kib("MemTotal:") - kib("MemFree:")).saturating_sub(kib("Inactive(file):")),
    };
    kib("MemTotal:").saturating_sub(working_set) >> 10
}

fn number_after(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

/// PSS of each service in KiB.
pub(crate) async fn memory(node: &Node) -> BTreeMap<String, u64> {
    let services = ok(until("the services' memory", || async {
        match node.services().await {
            Ok(services) => Poll::Ready(services),
            Err(error) => Poll::Pending(polylet_harness::error::report(&error)),
        }
    })
    .await);
    let pss = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let services = services.into_iter();
    services
        .filter_map(|service| Some((service.name, pss(service.pid)?)))
        .collect()
}
