//! Metrics in the text format of Prometheus, encoded by the crate `prometheus-client`. Names, labels,
//! values and help texts are upstream's.
//!
//! The crate writes OpenMetrics, which differs from upstream's exposition in details that parsers of both
//! formats accept: the `# TYPE` line of a counter lacks the suffix `_total`, values that are not whole
//! numbers of their type end in `.0`, `le` is the first label of a bucket, sum and count come before the
//! buckets, and the text ends with `# EOF`. Clients of the older format thus see counters as untyped.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde_json::Value;

type Labels = Vec<(&'static str, String)>;

/// Metric families, to be encoded in order.
#[derive(Debug, Default)]
pub(crate) struct MetricFamilies(Vec<Family>);

#[derive(Debug)]
struct Family {
    /// Without the suffix `_total` of counters.
    name: &'static str,
    help: &'static str,
    samples: Vec<(Labels, SampleValue)>,
}

/// The value of one series.
#[derive(Clone, Debug)]
pub(crate) enum SampleValue {
    Gauge(f64),
    IntGauge(u64),
    Counter(f64),
    IntCounter(u64),
    Histogram(HistogramValue),
}

/// A histogram that was counted elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct HistogramValue {
    pub(crate) sum: f64,
    pub(crate) count: u64,
    /// Upper bounds and the number of values in each bucket alone.
    pub(crate) buckets: Vec<(f64, u64)>,
}

impl MetricFamilies {
    /// Adds a family; one without samples is left out.
    pub(crate) fn push(
        &mut self,
        name: &'static str,
        help: &'static str,
        samples: Vec<(Labels, SampleValue)>,
    ) {
        if !samples.is_empty() {
            let family = Family {
                name,
                help,
                samples,
            };
            self.0.push(family);
        }
    }

    /// The exposition.
    ///
    /// # Errors
    /// When a count does not fit the type of its metric.
    pub(crate) fn encode(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for MetricFamilies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let kind = family
                .samples
                .first()
                .map_or(MetricType::Unknown, |(_, value)| value.metric_type());
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in &family.samples {
                if labels.is_empty() {
                    value.encode(&mut metric)?;
                } else {
                    value.encode(&mut metric.encode_family(labels)?)?;
                }
            }
        }
        Ok(())
    }
}

impl SampleValue {
    fn metric_type(&self) -> MetricType {
        match self {
            SampleValue::Gauge(_) | SampleValue::IntGauge(_) => MetricType::Gauge,
            SampleValue::Counter(_) | SampleValue::IntCounter(_) => MetricType::Counter,
            SampleValue::Histogram(_) => MetricType::Histogram,
        }
    }

    fn encode(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            SampleValue::Gauge(value) => metric.encode_gauge(value),
            SampleValue::IntGauge(value) => metric.encode_gauge(value),
            SampleValue::Counter(value) => metric.encode_counter::<NoLabelSet, _, u64>(value, None),
            SampleValue::IntCounter(value) => {
                metric.encode_counter::<NoLabelSet, _, u64>(value, None)
            }
            SampleValue::Histogram(HistogramValue {
                sum,
                count,
                buckets,
            }) => metric.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None),
        }
    }
}

/// Pods and containers on the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeCounts {
    pub(crate) desired_pods: u64,
    pub(crate) running_pods: u64,
    /// Containers by state.
    pub(crate) containers: BTreeMap<&'static str, u64>,
}

/// `/metrics`: counts of pods and containers, and usage of volumes out of the stats summary.
pub(crate) fn node(
    node: &str,
    version: &str,
    counts: &NodeCounts,
    summary: &Value,
) -> MetricFamilies {
    let one = |label, value: &str| {
        let labels = vec![(label, value.to_owned())];
        vec![(labels, SampleValue::IntGauge(1))]
    };
    let count = |value| vec![(Vec::new(), SampleValue::IntGauge(value))];
    let mut families = MetricFamilies::default();
    families.push(
        "kubelet_node_name",
        "[ALPHA] The node's name. The count is always 1.",
        one("node", node),
    );
    families.push(
        "polylet_build_info",
        "The running version. The value is always 1.",
        one("version", version),
    );
    families.push(
        "kubelet_desired_pods",
        "[ALPHA] The number of pods the kubelet is being instructed to run.",
        count(counts.desired_pods),
    );
    families.push(
        "kubelet_running_pods",
        "[ALPHA] Number of pods that have a running pod sandbox",
        count(counts.running_pods),
    );
    let containers = counts.containers.iter().map(|(state, count)| {
        let labels = vec![("container_state", (*state).to_owned())];
        (labels, SampleValue::IntGauge(*count))
    });
    families.push(
        "kubelet_running_containers",
        "[ALPHA] Number of containers currently running",
        containers.collect(),
    );
    push_volumes(&mut families, summary);
    families
}

/// Usage of claims' volumes: each claim once, even if several pods use it.
fn push_volumes(families: &mut MetricFamilies, summary: &Value) {
    const SERIES: [(&str, &str, &str); 6] = [
        (
            "kubelet_volume_stats_available_bytes",
            "availableBytes",
            "[ALPHA] Number of available bytes in the volume",
        ),
        (
            "kubelet_volume_stats_capacity_bytes",
            "capacityBytes",
            "[ALPHA] Capacity in bytes of the volume",
        ),
        (
            "kubelet_volume_stats_inodes",
            "inodes",
            "[ALPHA] Maximum number of inodes in the volume",
        ),
        (
            "kubelet_volume_stats_inodes_free",
            "inodesFree",
            "[ALPHA] Number of free inodes in the volume",
        ),
        (
            "kubelet_volume_stats_inodes_used",
            "inodesUsed",
            "[ALPHA] Number of used inodes in the volume",
        ),
        (
            "kubelet_volume_stats_used_bytes",
            "usedBytes",
            "[ALPHA] Number of used bytes in the volume",
        ),
    ];
    let mut claims: BTreeMap<(&str, &str), &Value> = BTreeMap::new();
    for pod in list(&summary["pods"]) {
        for volume in list(&pod["volume"]) {
            let claim = &volume["pvcRef"];
            if let Some(key) = claim["namespace"].as_str().zip(claim["name"].as_str()) {
                claims.entry(key).or_insert(volume);
            }
        }
    }
    for (name, field, help) in SERIES {
        let samples = claims.iter().filter_map(|((namespace, claim), volume)| {
            let labels = vec![
                ("namespace", (*namespace).to_owned()),
                ("persistentvolumeclaim", (*claim).to_owned()),
            ];
            Some((labels, gauge(&volume[field])?))
        });
        families.push(name, help, samples.collect());
    }
}

/// `/metrics/resource`, which metrics-server reads, out of the stats summary.
pub(crate) fn resource(summary: &Value) -> MetricFamilies {
    let (mut node_cpu, mut node_memory) = (Vec::new(), Vec::new());
    let (mut pod_cpu, mut pod_memory) = (Vec::new(), Vec::new());
    let (mut cpu, mut memory, mut start) = (Vec::new(), Vec::new(), Vec::new());
    let node = &summary["node"];
    add(&mut node_cpu, &Vec::new(), cpu_usage(node));
    add(&mut node_memory, &Vec::new(), working_set(node));
    for pod in list(&summary["pods"]) {
        let text = |name: &str| {
            let text = pod.get("podRef").and_then(|of| of.get(name)?.as_str());
            text.unwrap_or_default().to_owned()
        };
        let pod_labels = vec![("namespace", text("namespace")), ("pod", text("name"))];
        add(&mut pod_cpu, &pod_labels, cpu_usage(pod));
        add(&mut pod_memory, &pod_labels, working_set(pod));
        for container in list(&pod["containers"]) {
            let name = container["name"].as_str().unwrap_or_default();
            let mut labels = vec![("container", name.to_owned())];
            labels.extend(pod_labels.iter().cloned());
            add(&mut cpu, &labels, cpu_usage(container));
            add(&mut memory, &labels, working_set(container));
            add(&mut start, &labels, start_time(container));
        }
    }
    let mut families = MetricFamilies::default();
    families.push(
        "container_cpu_usage_seconds",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        cpu,
    );
    families.push(
        "container_memory_working_set_bytes",
        "[STABLE] Current working set of the container in bytes",
        memory,
    );
    families.push(
        "container_start_time_seconds",
        "[STABLE] Start time of the container since unix epoch in seconds",
        start,
    );
    families.push(
        "node_cpu_usage_seconds",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        node_cpu,
    );
    families.push(
        "node_memory_working_set_bytes",
        "[STABLE] Current working set of the node in bytes",
        node_memory,
    );
    families.push(
        "pod_cpu_usage_seconds",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        pod_cpu,
    );
    families.push(
        "pod_memory_working_set_bytes",
        "[STABLE] Current working set of the pod in bytes",
        pod_memory,
    );
    families.push(
        "resource_scrape_error",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        vec![(Vec::new(), SampleValue::IntGauge(0))],
    );
    families
}

fn add(samples: &mut Vec<(Labels, SampleValue)>, labels: &Labels, value: Option<SampleValue>) {
    samples.extend(value.map(|value| (labels.clone(), value)));
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn gauge(value: &Value) -> Option<SampleValue> {
    // Whole numbers stay whole in the text.
    match value.as_u64() {
        // The crate encodes whole numbers as `i64`.
        Some(whole) if i64::try_from(whole).is_ok() => Some(SampleValue::IntGauge(whole)),
        _ => value.as_f64().map(SampleValue::Gauge),
    }
}

fn cpu_usage(stats: &Value) -> Option<SampleValue> {
    let nanoseconds = stats.pointer("/cpu/usageCoreNanoSeconds")?.as_f64()?;
    Some(SampleValue::Counter(nanoseconds / 1e9))
}

fn working_set(stats: &Value) -> Option<SampleValue> {
    gauge(stats.pointer("/memory/workingSetBytes")?)
}

fn start_time(stats: &Value) -> Option<SampleValue> {
    let at: jiff::Timestamp = stats["startTime"].as_str()?.parse().ok()?;
    Some(SampleValue::Gauge(at.as_millisecond() as f64 / 1e3))
}
