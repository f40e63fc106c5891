//! `/metrics`: what the services have counted, and what this one knows. Names, labels and help texts are
//! upstream's.

use std::collections::BTreeMap;

use polylet_metrics::{Exposition, ExpositionFormat, FamilyKind, HistogramValue, Labels};
use polylet_model::node::KUBERNETES_VERSION;
use serde_json::Value;

/// A family of one service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CountedFamily {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) kind: FamilyKind,
    pub(crate) series: Vec<(Labels, CountedValue)>,
}

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CountedValue {
    /// Of a counter or gauge.
    Number(f64),
    Histogram(HistogramValue),
}

impl CountedValue {
    /// Adds the value of the same series in another service. Histograms with other buckets are not of
    /// the same series: the first one stays.
    fn add(&mut self, other: &CountedValue) {
        match (self, other) {
            (Self::Number(own), Self::Number(other)) => *own += other,
            (Self::Histogram(own), Self::Histogram(other)) => add_histogram(own, other),
            _ => {}
        }
    }
}

fn add_histogram(own: &mut HistogramValue, other: &HistogramValue) {
    let bounds = |histogram: &HistogramValue| -> Vec<f64> {
        let buckets = histogram.buckets.iter();
        buckets.map(|(bound, _)| *bound).collect()
    };
    if bounds(own) != bounds(other) {
        return;
    }
    own.sum += other.sum;
    own.count = own.count.saturating_add(other.count);
    for ((_, own), (_, other)) in own.buckets.iter_mut().zip(&other.buckets) {
        *own = own.saturating_add(*other);
    }
    for exemplar in &other.exemplars {
        let mut known = own.exemplars.iter();
        if known.all(|known| known.bucket != exemplar.bucket) {
            own.exemplars.push(exemplar.clone());
        }
    }
}

/// Pods and containers on the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeCounts {
    pub(crate) running_pods: u64,
    /// Containers by state.
    pub(crate) containers: BTreeMap<&'static str, u64>,
}

/// The node, and the process that serves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScrapedNode<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    /// In seconds since 1970.
    pub(crate) started_at: Option<f64>,
    pub(crate) max_files: Option<f64>,
}

/// `/metrics`: the counts of all services, and usage of volumes and logs out of the stats summary.
pub(crate) fn node(
    format: ExpositionFormat,
    facts: &ScrapedNode<'_>,
    counts: &NodeCounts,
    counted: Vec<CountedFamily>,
    summary: &Value,
) -> String {
    let mut exposition = Exposition::new(format);
    write_facts(&mut exposition, facts);
    write_counts(&mut exposition, counts);
    write_counted(&mut exposition, counted);
    write_volumes(&mut exposition, summary);
    write_logs(&mut exposition, summary);
    exposition.finish()
}

fn write_facts(exposition: &mut Exposition, facts: &ScrapedNode<'_>) {
    let none = Labels::default();
    exposition
        .family(
            "kubelet_node_name",
            "[ALPHA] The node's name. The count is always 1.",
            FamilyKind::Gauge,
        )
        .sample(&none.clone().with("node", facts.name), 1.0, None);
    exposition
        .family(
            "polylet_build_info",
            "The running version. The value is always 1.",
            FamilyKind::Gauge,
        )
        .sample(&none.clone().with("version", facts.version), 1.0, None);
    exposition
        .family(
            "kubelet_metrics_provider",
            "[ALPHA] Metrics provider used by kubelet to collect container stats. Values can be \
             'cadvisor' and 'cri'",
            FamilyKind::Gauge,
        )
        .sample(&none.clone().with("provider", "cadvisor"), 1.0, None);
    write_kubernetes_version(exposition);
    let help = "Start time of the process since unix epoch in seconds.";
    if let Some(started_at) = facts.started_at {
        exposition
            .family("process_start_time_seconds", help, FamilyKind::Gauge)
            .sample(&none, started_at, None);
    }
    if let Some(max_files) = facts.max_files {
        let help = "Maximum number of open file descriptors.";
        exposition
            .family("process_max_fds", help, FamilyKind::Gauge)
            .sample(&none, max_files, None);
    }
}

/// The version of Kubernetes whose behaviour this is, by which dashboards tell nodes apart.
fn write_kubernetes_version(exposition: &mut Exposition) {
    let mut parts = KUBERNETES_VERSION.split('.');
    let (major, minor) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let labels = Labels::default()
        .with("build_date", "")
        .with("compiler", "rustc")
        .with("git_commit", "")
        .with("git_tree_state", "")
        .with("git_version", &format!("v{KUBERNETES_VERSION}"))
        .with("go_version", "")
        .with("major", major)
        .with("minor", minor)
        .with("platform", "");
    let help = "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git \
                commit, git tree state, build date, Go version, and compiler from which Kubernetes \
                was built, and platform on which it is running.";
    exposition
        .family("kubernetes_build_info", help, FamilyKind::Gauge)
        .sample(&labels, 1.0, None);
}

fn write_counts(exposition: &mut Exposition, counts: &NodeCounts) {
    let none = Labels::default();
    exposition
        .family(
            "kubelet_running_pods",
            "[ALPHA] Number of pods that have a running pod sandbox",
            FamilyKind::Gauge,
        )
        .sample(&none, counts.running_pods as f64, None);
    let help = "[ALPHA] Number of containers currently running";
    let mut containers = exposition.family("kubelet_running_containers", help, FamilyKind::Gauge);
    for (state, count) in &counts.containers {
        containers.labelled(&none, ("container_state", state), *count as f64, None);
    }
}

/// The families of all services by name; those of one name are added up.
fn write_counted(exposition: &mut Exposition, counted: Vec<CountedFamily>) {
    let mut families: BTreeMap<String, CountedFamily> = BTreeMap::new();
    for family in counted {
        let Some(known) = families.get_mut(&family.name) else {
            families.insert(family.name.clone(), family);
            continue;
        };
        // A service of another version may count in another way.
        if known.kind != family.kind {
            continue;
        }
        for (labels, value) in family.series {
            let mut same = known.series.iter_mut();
            match same.find(|(known, _)| *known == labels) {
                Some((_, known)) => known.add(&value),
                None => known.series.push((labels, value)),
            }
        }
    }
    for family in families.values() {
        let mut written = exposition.family(&family.name, &family.help, family.kind);
        for (labels, value) in &family.series {
            match value {
                CountedValue::Number(number) => written.sample(labels, *number, None),
                CountedValue::Histogram(histogram) => written.histogram(labels, histogram),
            }
        }
    }
}

/// Usage of claims' volumes: each claim once, even if several pods use it.
fn write_volumes(exposition: &mut Exposition, summary: &Value) {
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
        let mut family = exposition.family(name, help, FamilyKind::Gauge);
        for ((namespace, claim), volume) in &claims {
            if let Some(value) = volume[field].as_f64() {
                let labels = Labels::default()
                    .with("namespace", namespace)
                    .with("persistentvolumeclaim", claim);
                family.sample(&labels, value, None);
            }
        }
    }
}

fn write_logs(exposition: &mut Exposition, summary: &Value) {
    let mut family = exposition.family(
        "kubelet_container_log_filesystem_used_bytes",
        "[ALPHA] Bytes used by the container's logs on the filesystem.",
        FamilyKind::Gauge,
    );
    for pod in list(&summary["pods"]) {
        let reference = &pod["podRef"];
        let text = |name: &str| {
            let value = reference.get(name).and_then(Value::as_str);
            value.unwrap_or_default()
        };
        for container in list(&pod["containers"]) {
            let bytes = container.pointer("/logs/usedBytes");
            if let Some(bytes) = bytes.and_then(Value::as_f64) {
                let labels = Labels::default()
                    .with("container", container["name"].as_str().unwrap_or_default())
                    .with("namespace", text("namespace"))
                    .with("pod", text("name"))
                    .with("uid", text("uid"));
                family.sample(&labels, bytes, None);
            }
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
