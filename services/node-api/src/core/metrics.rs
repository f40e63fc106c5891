//! Metrics in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// What a pod's containers are doing, by state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) desired_pods: u64,
    pub(crate) running_pods: u64,
    pub(crate) containers: BTreeMap<&'static str, u64>,
}

/// `/metrics`: upstream's names for the counts, and what we are.
pub(crate) fn node(node: &str, version: &str, counts: &Counts) -> String {
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, lines: &[(String, u64)]| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in lines {
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    };
    gauge(
        "kubelet_node_name",
        "The node's name. The count is always 1.",
        &[(format!("{{node=\"{}\"}}", escape(node)), 1)],
    );
    gauge(
        "polylet_build_info",
        "The version that runs. The value is always 1.",
        &[(format!("{{version=\"{}\"}}", escape(version)), 1)],
    );
    gauge(
        "kubelet_desired_pods",
        "Number of pods that should run on this node",
        &[(String::new(), counts.desired_pods)],
    );
    gauge(
        "kubelet_running_pods",
        "Number of pods that have a running pod sandbox",
        &[(String::new(), counts.running_pods)],
    );
    let containers: Vec<(String, u64)> = counts
        .containers
        .iter()
        .map(|(state, count)| (format!("{{container_state=\"{state}\"}}"), *count))
        .collect();
    gauge(
        "kubelet_running_containers",
        "Number of containers by state",
        &containers,
    );
    out
}

/// What claims' volumes hold, out of the stats summary: each claim once, whatever pods share it.
pub(crate) fn volumes(summary: &Value) -> String {
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
    let mut claims: BTreeMap<String, &Value> = BTreeMap::new();
    for pod in summary["pods"].as_array().into_iter().flatten() {
        for volume in pod["volume"].as_array().into_iter().flatten() {
            let of = |name: &str| volume["pvcRef"][name].as_str().map(escape);
            if let Some((namespace, name)) = of("namespace").zip(of("name")) {
                let labels =
                    format!("{{namespace=\"{namespace}\",persistentvolumeclaim=\"{name}\"}}");
                claims.entry(labels).or_insert(volume);
            }
        }
    }
    let mut out = String::new();
    for (name, field, help) in SERIES {
        let lines = claims.iter().filter_map(|(labels, volume)| {
            let value = volume[field].as_f64()?;
            Some(format!("{name}{labels} {value}\n"))
        });
        let lines: String = lines.collect();
        if !lines.is_empty() {
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{lines}");
        }
    }
    out
}

/// `/metrics/resource`, out of the stats summary: what metrics-server reads.
pub(crate) fn resource(summary: &Value) -> String {
    let mut series: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut add = |name: &'static str, labels: &str, value: Option<f64>| {
        if let Some(value) = value {
            series
                .entry(name)
                .or_default()
                .push(format!("{name}{labels} {value}"));
        }
    };
    let node = &summary["node"];
    add("node_cpu_usage_seconds_total", "", cpu(node));
    add("node_memory_working_set_bytes", "", memory(node));
    for pod in summary["pods"].as_array().into_iter().flatten() {
        let text = |name: &str| escape(pod["podRef"][name].as_str().unwrap_or_default());
        let who = format!(
            "namespace=\"{}\",pod=\"{}\"",
            text("namespace"),
            text("name")
        );
        add(
            "pod_cpu_usage_seconds_total",
            &format!("{{{who}}}"),
            cpu(pod),
        );
        add(
            "pod_memory_working_set_bytes",
            &format!("{{{who}}}"),
            memory(pod),
        );
        for container in pod["containers"].as_array().into_iter().flatten() {
            let name = escape(container["name"].as_str().unwrap_or_default());
            let labels = format!("{{container=\"{name}\",{who}}}");
            add("container_cpu_usage_seconds_total", &labels, cpu(container));
            add(
                "container_memory_working_set_bytes",
                &labels,
                memory(container),
            );
            add("container_start_time_seconds", &labels, start(container));
        }
    }
    let mut out = String::new();
    for (name, lines) in series {
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        let _ = writeln!(out, "# TYPE {name} {kind}\n{}", lines.join("\n"));
    }
    out.push_str("# TYPE resource_scrape_error gauge\nresource_scrape_error 0\n");
    out
}

fn cpu(part: &Value) -> Option<f64> {
    part["cpu"]["usageCoreNanoSeconds"]
        .as_f64()
        .map(|ns| ns / 1e9)
}

fn memory(part: &Value) -> Option<f64> {
    part["memory"]["workingSetBytes"].as_f64()
}

fn start(part: &Value) -> Option<f64> {
    let at: jiff::Timestamp = part["startTime"].as_str()?.parse().ok()?;
    Some(at.as_millisecond() as f64 / 1e3)
}

pub(super) fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
