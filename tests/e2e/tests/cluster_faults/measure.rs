//! What is measured while a fault lasts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, ok};
use polylet_harness::cluster::{condition, pod_path};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::json;

use crate::faulty_node::{PODS, bound};
use crate::memory_hog::{MemoryHog, available_mib};

/// How much longer than usual a simple pod may take to start.
pub(crate) const START_FACTOR: u32 = 3;
/// Memory pressure must be in the Node's status after this time.
pub(crate) const PRESSURE_LIMIT: Duration = Duration::from_secs(12);
/// Bound of a service's memory (PSS); debug builds are several times as large as released ones.
const MEMORY_LIMIT_MIB: u64 = 64;
/// The least memory that must be available at the start.
const NEEDED_MIB: u64 = 5 << 10;

/// What was measured with one fault.
#[derive(Clone)]
pub(crate) struct Measured {
    fault: String,
    /// Start of a simple pod just before the fault.
    usual_start: Duration,
    /// The same with it, from the pod's creation until it is Ready; the median.
    pub(crate) start: Option<Duration>,
    /// From the use of memory until the condition of the Node.
    pub(crate) pressure: Option<Duration>,
    /// PSS of each service in KiB.
    pub(crate) memory: BTreeMap<String, u64>,
}

impl Measured {
    pub(crate) fn new(fault: &str, usual_start: Duration) -> Self {
        Self {
            fault: fault.to_owned(),
            usual_start,
            start: None,
            pressure: None,
            memory: BTreeMap::new(),
        }
    }

    /// What is out of bounds.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let limit = self.usual_start * START_FACTOR;
        if let Some(start) = self.start.filter(|start| *start > limit) {
            let usual = self.usual_start;
            problems.push(format!("a start took {start:?}, usually {usual:?}"));
        }
        if let Some(pressure) = self.pressure.filter(|after| *after > PRESSURE_LIMIT) {
            problems.push(format!("pressure was seen after {pressure:?}"));
        }
        for (service, kib) in &self.memory {
            if *kib > MEMORY_LIMIT_MIB << 10 {
                problems.push(format!("{service} has {kib} KiB"));
            }
        }
        problems
    }

    /// The titles of [`Measured::row`].
    pub(crate) fn titles() -> String {
        format!(
            "{:<28} {:>9} {:>9} {:>6} {:>10} {:>8}  largest service (bound {MEMORY_LIMIT_MIB} MiB)",
            "fault", "usual ms", "start ms", "ratio", "pressure s", "sum MiB"
        )
    }

    /// A row of the table.
    pub(crate) fn row(&self) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let start = self.start.map(|start| start.as_millis().to_string());
        let usual = self.usual_start.as_secs_f64();
        let ratio = self.start.map(|start| start.as_secs_f64() / usual);
        let pressure = self.pressure.map(|after| after.as_secs_f64());
        let decimal = |number: Option<f64>| or_dash(number.map(|number| format!("{number:.1}")));
        let largest = self.memory.iter().max_by_key(|(_, kib)| **kib);
        let largest = largest.map(|(service, kib)| format!("{service} {} MiB", kib >> 10));
        let sum: u64 = self.memory.values().sum();
        let sum = largest.as_ref().map(|_| (sum >> 10).to_string());
        format!(
            "{:<28} {:>9} {:>9} {:>6} {:>10} {:>8}  {}",
            self.fault,
            self.usual_start.as_millis(),
            or_dash(start),
            decimal(ratio),
            decimal(pressure),
            or_dash(sum),
            or_dash(largest),
        )
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.row())
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

/// Memory of the machine below which there is pressure: less than half of what is available now. Other
/// programs have the larger part before they cause it, and nearly all of the other while the test does.
pub(crate) fn pressure_threshold_mib() -> u64 {
    let available = available_mib();
    assert!(
        available >= NEEDED_MIB,
        "the test needs {NEEDED_MIB} MiB of memory, {available} MiB are available"
    );
    available * 2 / 5
}

/// Uses memory until the threshold is met, and returns how long the Node's condition took.
pub(crate) async fn pressure_is_seen(cluster: &Cluster, threshold_mib: u64) -> Duration {
    wait_pressure(cluster, "False").await;
    let hog = MemoryHog::below(threshold_mib).await;
    let started = Instant::now();
    wait_pressure(cluster, "True").await;
    let seen = started.elapsed();
    drop(hog);
    wait_pressure(cluster, "False").await;
    seen
}

async fn wait_pressure(cluster: &Cluster, status: &str) {
    let what = format!("has MemoryPressure {status}");
    let is = |node: &serde_json::Value| condition(node, "MemoryPressure") == Some(status);
    ok(cluster.wait("/api/v1/nodes/node", &what, is).await);
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
