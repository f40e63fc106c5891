//! `/metrics/resource`, which metrics-server reads. Names and help texts are upstream's.

use polylet_metrics::FamilyKind::{self, Counter, Gauge};
use polylet_metrics::{Exposition, Labels};

use crate::core::summary::{ContainerStats, StatsSummary};

/// A value of a node, a pod and a container.
struct Resource {
    /// The name without what it is about.
    name: &'static str,
    kind: FamilyKind,
    stability: &'static str,
    /// With `{}` for what it is about.
    help: &'static str,
    value: fn(&ContainerStats) -> Option<f64>,
    is_timed: bool,
    /// Whether nodes and pods have it, too.
    is_of_all: bool,
}

const RESOURCES: [Resource; 5] = [
    Resource {
        name: "cpu_usage_seconds_total",
        kind: Counter,
        stability: "STABLE",
        help: "Cumulative cpu time consumed by the {} in core-seconds",
        value: |stats| Some(stats.cpu?.nanoseconds as f64 / 1e9),
        is_timed: true,
        is_of_all: true,
    },
    Resource {
        name: "memory_working_set_bytes",
        kind: Gauge,
        stability: "STABLE",
        help: "Current working set of the {} in bytes",
        value: |stats| Some(stats.memory?.working_set as f64),
        is_timed: true,
        is_of_all: true,
    },
    Resource {
        name: "start_time_seconds",
        kind: Gauge,
        stability: "STABLE",
        help: "Start time of the {} since unix epoch in seconds",
        value: |stats| Some(stats.started_at?.as_nanosecond() as f64 / 1e9),
        is_timed: false,
        is_of_all: false,
    },
    Resource {
        name: "swap_limit_bytes",
        kind: Gauge,
        stability: "ALPHA",
        help: "Current amount of the {} swap limit in bytes. Reported only on non-windows systems",
        value: |stats| {
            let memory = stats.memory?;
            Some(memory.swap_available?.saturating_add(memory.swap) as f64)
        },
        is_timed: true,
        is_of_all: false,
    },
    Resource {
        name: "swap_usage_bytes",
        kind: Gauge,
        stability: "ALPHA",
        help: "Current amount of the {} swap usage in bytes. Reported only on non-windows systems",
        value: |stats| Some(stats.memory?.swap as f64),
        is_timed: true,
        is_of_all: true,
    },
];

/// Renders the usage of the node, pods and containers.
pub(crate) fn render(summary: &StatsSummary) -> String {
    let mut containers = Vec::new();
    let mut pods = Vec::new();
    for pod in &summary.pods {
        let names = Labels::default()
            .with("namespace", &pod.namespace)
            .with("pod", &pod.total.name);
        for container in &pod.containers {
            let labels = Labels::default()
                .with("container", &container.name)
                .with("namespace", &pod.namespace)
                .with("pod", &pod.total.name);
            containers.push((labels, container));
        }
        pods.push((names, &pod.total));
    }
    let node = [(Labels::default(), &summary.node)];
    let at = summary.times.counters.as_millisecond();
    let mut exposition = Exposition::default();
    write(&mut exposition, "container", &containers, at);
    write(&mut exposition, "node", &node, at);
    write(&mut exposition, "pod", &pods, at);
    let help = "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise";
    exposition
        .family("resource_scrape_error", help, Gauge)
        .sample(&Labels::default(), 0.0, None);
    exposition.finish()
}

fn write(
    exposition: &mut Exposition,
    subject: &str,
    series: &[(Labels, &ContainerStats)],
    at: i64,
) {
    let is_container = subject == "container";
    for resource in RESOURCES.iter().filter(|one| one.is_of_all || is_container) {
        let name = format!("{subject}_{}", resource.name);
        let help = match (subject, resource.name) {
            ("node", "swap_usage_bytes") => {
                "Current swap usage of the node in bytes. Reported only on non-windows systems"
                    .into()
            }
            _ => resource.help.replace("{}", subject),
        };
        let help = format!("[{}] {help}", resource.stability);
        let mut family = exposition.family(&name, &help, resource.kind);
        for (labels, stats) in series {
            if let Some(value) = (resource.value)(stats) {
                family.sample(labels, value, resource.is_timed.then_some(at));
            }
        }
    }
}
