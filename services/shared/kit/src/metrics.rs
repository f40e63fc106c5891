//! What the process has counted, on the wire.

use jiff::Timestamp;
use polylet_metrics::{Exemplar, FamilyKind, Metric, Series, SeriesValue, gather};
use polylet_wire::lifecycle::v1 as wire;
use procfs::process::Process;

/// Usage of the whole process; those of several services are added up.
const PROCESS: [(&str, &str, wire::MetricKind); 4] = [
    (
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        wire::MetricKind::Counter,
    ),
    (
        "process_open_fds",
        "Number of open file descriptors.",
        wire::MetricKind::Gauge,
    ),
    (
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        wire::MetricKind::Gauge,
    ),
    (
        "process_virtual_memory_bytes",
        "Virtual memory size in bytes.",
        wire::MetricKind::Gauge,
    ),
];

/// What the process has counted, without its usage.
pub fn counted() -> Vec<wire::MetricFamily> {
    gather().into_iter().map(family).collect()
}

/// All families of the process.
pub fn families() -> Vec<wire::MetricFamily> {
    let mut families = counted();
    for ((name, help, kind), value) in PROCESS.into_iter().zip(process_usage()) {
        families.extend(value.map(|value| wire::MetricFamily {
            name: name.to_owned(),
            help: help.to_owned(),
            kind: kind.into(),
            series: vec![wire::MetricSeries {
                value,
                ..wire::MetricSeries::default()
            }],
        }));
    }
    families
}

fn family(metric: &'static Metric) -> wire::MetricFamily {
    let kind = match metric.kind() {
        FamilyKind::Counter => wire::MetricKind::Counter,
        FamilyKind::Gauge => wire::MetricKind::Gauge,
        FamilyKind::Histogram => wire::MetricKind::Histogram,
    };
    wire::MetricFamily {
        name: metric.name().to_owned(),
        help: metric.help().to_owned(),
        kind: kind.into(),
        series: metric.series().into_iter().map(series).collect(),
    }
}

fn series(series: Series) -> wire::MetricSeries {
    let labels = series.labels.into_iter();
    let labels = labels.map(|(name, value)| wire::MetricLabel { name, value });
    let (value, histogram) = match series.value {
        SeriesValue::Number(value) => (value, None),
        SeriesValue::Histogram(histogram) => {
            let (bounds, cumulative_counts) = histogram.buckets.into_iter().unzip();
            let histogram = wire::MetricHistogram {
                sum: histogram.sum,
                count: histogram.count,
                bounds,
                cumulative_counts,
                exemplars: histogram.exemplars.into_iter().map(exemplar).collect(),
            };
            (0.0, Some(histogram))
        }
    };
    wire::MetricSeries {
        labels: labels.collect(),
        value,
        histogram,
    }
}

fn exemplar(exemplar: Exemplar) -> wire::MetricExemplar {
    let measured_at = (exemplar.measured_at * 1e3) as i64;
    let measured_at = Timestamp::from_millisecond(measured_at).ok();
    wire::MetricExemplar {
        bucket: u32::try_from(exemplar.bucket).unwrap_or(u32::MAX),
        value: exemplar.value,
        trace_id: exemplar.trace_id,
        measured_at: measured_at.map(polylet_wire::time::to_wire),
    }
}

/// The values of [`PROCESS`]. Memory that processes share counts in part for each, so that the sum is
/// that of the agent.
fn process_usage() -> [Option<f64>; 4] {
    let Ok(process) = Process::myself() else {
        return [None; 4];
    };
    let stat = process.stat().ok();
    let ticks = procfs::ticks_per_second().max(1) as f64;
    let cpu = stat
        .as_ref()
        .map(|stat| (stat.utime + stat.stime) as f64 / ticks);
    let proportional = process.smaps_rollup().ok().and_then(|rollup| {
        let maps = rollup.memory_map_rollup.0;
        let map = maps.into_iter().next()?;
        map.extension.map.get("Pss").copied()
    });
    [
        cpu,
        process.fd_count().ok().map(|count| count as f64),
        proportional.map(|bytes| bytes as f64),
        stat.map(|stat| stat.vsize as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_the_process_are_listed() {
        static CALLS: Metric = Metric::histogram("calls_seconds", "Calls.", &["method"], &[1.0]);
        polylet_metrics::register(&[&CALLS]);
        CALLS.observe_in_trace(&["get"], 0.5, "0af7", 1.5);
        let families = families();
        let calls = families
            .iter()
            .find(|family| family.name == "calls_seconds");
        let series = &calls.unwrap().series[0];
        assert_eq!(series.labels[0].value, "get");
        let histogram = series.histogram.as_ref().unwrap();
        assert_eq!(
            (histogram.count, histogram.cumulative_counts.as_slice()),
            (1, &[1][..])
        );
        let exemplar = &histogram.exemplars[0];
        assert_eq!((exemplar.bucket, exemplar.trace_id.as_str()), (0, "0af7"));
        let at = exemplar.measured_at.as_ref().unwrap();
        assert_eq!((at.seconds, at.nanos), (1, 500_000_000));
        let memory = |family: &&wire::MetricFamily| family.name == "process_resident_memory_bytes";
        let memory = families.iter().find(memory).unwrap();
        assert!(memory.series[0].value > 100_000.0, "{memory:?}");
    }
}
