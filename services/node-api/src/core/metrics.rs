//! `/metrics`: what the services have counted, and what this one knows. Names, labels and help texts are
//! upstream's.

use std::collections::BTreeMap;

use polylet_metrics::{Exposition, FamilyKind, HistogramValue, Labels};
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
    facts: &ScrapedNode<'_>,
    counts: &NodeCounts,
    counted: Vec<CountedFamily>,
    summary: &Value,
) -> String {
    let mut exposition = Exposition::default();
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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn families_of_one_name_are_added_up() {
        let histogram = |bound, count| {
            CountedValue::Histogram(HistogramValue {
                buckets: vec![(bound, count)],
                sum: 1.0,
                count: 2,
            })
        };
        let family = |name: &str, kind, value| CountedFamily {
            name: name.to_owned(),
            help: "Help.".to_owned(),
            kind,
            series: vec![(Labels::default().with("a", "b"), value)],
        };
        let number = CountedValue::Number;
        let counted = vec![
            family("calls_total", FamilyKind::Counter, number(1.0)),
            family("seconds", FamilyKind::Histogram, histogram(0.5, 1)),
            family("calls_total", FamilyKind::Counter, number(2.0)),
            family("seconds", FamilyKind::Histogram, histogram(0.5, 2)),
            // Those of another version.
            family("seconds", FamilyKind::Histogram, histogram(0.25, 2)),
            family("calls_total", FamilyKind::Gauge, number(5.0)),
        ];
        let facts = ScrapedNode::default();
        let text = node(&facts, &NodeCounts::default(), counted, &json!({}));
        for line in [
            "# TYPE calls_total counter",
            "calls_total{a=\"b\"} 3",
            "seconds_bucket{a=\"b\",le=\"0.5\"} 3",
            "seconds_bucket{a=\"b\",le=\"+Inf\"} 4",
            "seconds_sum{a=\"b\"} 2",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no {line} in {text}"
            );
        }
        assert_eq!(text.matches("# TYPE calls_total").count(), 1);
    }

    #[test]
    fn claim_volumes_are_counted_once() {
        let files = json!({"name": "v", "pvcRef": {"name": "files", "namespace": "ns"},
            "capacityBytes": 10, "usedBytes": 3, "availableBytes": 7});
        let own = json!({"name": "tmp", "capacityBytes": 1});
        let pod = json!({"volume": [files, own]});
        let render = |summary: &Value| {
            let facts = ScrapedNode::default();
            node(&facts, &NodeCounts::default(), Vec::new(), summary)
        };
        let text = render(&json!({"pods": [pod, pod, {}]}));
        let line =
            "kubelet_volume_stats_used_bytes{namespace=\"ns\",persistentvolumeclaim=\"files\"} 3\n";
        assert_eq!(text.matches(line).count(), 1, "{text}");
        assert_eq!(text.matches("# TYPE kubelet_volume_stats").count(), 3);
        assert!(!render(&json!({})).contains("kubelet_volume_stats"));
    }

    #[test]
    fn node_and_logs_have_upstream_names() {
        let counts = NodeCounts {
            running_pods: 2,
            containers: BTreeMap::from([("running", 4), ("exited", 1)]),
        };
        let facts = ScrapedNode {
            name: "a\"b",
            version: "1",
            ..ScrapedNode::default()
        };
        let summary = json!({"pods": [{
            "podRef": {"namespace": "n", "name": "p", "uid": "u"},
            "containers": [{"name": "c", "logs": {"usedBytes": 5}}],
        }]});
        let text = node(&facts, &counts, Vec::new(), &summary);
        for line in [
            "kubelet_running_pods 2",
            "kubelet_running_containers{container_state=\"running\"} 4",
            "kubelet_node_name{node=\"a\\\"b\"} 1",
            "kubelet_container_log_filesystem_used_bytes{container=\"c\",namespace=\"n\",pod=\"p\",uid=\"u\"} 5",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no {line} in {text}"
            );
        }
    }
}
