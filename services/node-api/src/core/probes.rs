//! `/metrics/probes`, under upstream's names. Probes are counted by the prober; only the counts are
//! encoded here.

use std::collections::BTreeMap;

use polylet_metrics::{Exposition, FamilyKind, HistogramValue, Labels};

/// The attempts of one probe of one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProbeSeries {
    /// `Liveness`, `Readiness` or `Startup`.
    pub(crate) kind: &'static str,
    pub(crate) container: String,
    pub(crate) pod: String,
    pub(crate) namespace: String,
    pub(crate) pod_uid: String,
    pub(crate) successful: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    /// Durations of the attempts that did not fail.
    pub(crate) durations: DurationCounts,
}

/// Durations, counted in buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DurationCounts {
    /// Attempts by bucket, each in the first one whose bound it does not exceed.
    pub(crate) bucket_counts: Vec<u64>,
    pub(crate) count: u64,
    pub(crate) sum_seconds: f64,
}

impl DurationCounts {
    fn add(&mut self, other: &DurationCounts) {
        let length = self.bucket_counts.len().max(other.bucket_counts.len());
        self.bucket_counts.resize(length, 0);
        for (own, other) in self.bucket_counts.iter_mut().zip(&other.bucket_counts) {
            *own += other;
        }
        self.count += other.count;
        self.sum_seconds += other.sum_seconds;
    }

    fn histogram(&self, bounds: &[f64]) -> HistogramValue {
        let mut total = 0;
        let buckets = bounds.iter().zip(&self.bucket_counts);
        let buckets = buckets.map(|(bound, count)| {
            total += count;
            (*bound, total)
        });
        HistogramValue {
            buckets: buckets.collect(),
            sum: self.sum_seconds,
            count: self.count,
            exemplars: Vec::new(),
        }
    }
}

/// The text; `bounds` are the upper bounds of the duration buckets in seconds.
pub(crate) fn render(bounds: &[f64], probes: &[ProbeSeries]) -> String {
    let mut exposition = Exposition::default();
    let mut totals = exposition.family(
        "prober_probe_total",
        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
        FamilyKind::Counter,
    );
    // A static pod that is recreated has the same name and another uid.
    let mut durations: BTreeMap<Labels, DurationCounts> = BTreeMap::new();
    for probe in probes {
        let labels = Labels::default()
            .with("container", &probe.container)
            .with("namespace", &probe.namespace)
            .with("pod", &probe.pod)
            .with("probe_type", probe.kind);
        for (result, count) in [
            ("successful", probe.successful),
            ("failed", probe.failed),
            ("unknown", probe.unknown),
        ] {
            if count > 0 {
                let labels = labels.clone().with("pod_uid", &probe.pod_uid);
                totals.labelled(&labels, ("result", result), count as f64, None);
            }
        }
        durations.entry(labels).or_default().add(&probe.durations);
    }
    let mut family = exposition.family(
        "prober_probe_duration_seconds",
        "[ALPHA] Duration in seconds for a probe response.",
        FamilyKind::Histogram,
    );
    for (labels, counts) in durations.iter().filter(|(_, counts)| counts.count > 0) {
        family.histogram(labels, &counts.histogram(bounds));
    }
    exposition.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_upstream_names_and_labels() {
        let series = |uid: &str, bucket_counts: &[u64], count| ProbeSeries {
            kind: "Readiness",
            container: "main".to_owned(),
            pod: "web".to_owned(),
            namespace: "default".to_owned(),
            pod_uid: uid.to_owned(),
            successful: count,
            failed: 2,
            durations: DurationCounts {
                bucket_counts: bucket_counts.to_vec(),
                count,
                sum_seconds: 0.25,
            },
            ..ProbeSeries::default()
        };
        let probes = [series("u1", &[3, 1], 5), series("u2", &[0, 1], 1)];
        let text = render(&[0.005, 1.0], &probes);
        let labels =
            "container=\"main\",namespace=\"default\",pod=\"web\",probe_type=\"Readiness\"";
        let total = |uid, result| {
            format!("prober_probe_total{{{labels},pod_uid=\"{uid}\",result=\"{result}\"}}")
        };
        let name = "prober_probe_duration_seconds";
        for line in [
            "# TYPE prober_probe_total counter".to_owned(),
            format!("{} 5", total("u1", "successful")),
            format!("{} 2", total("u2", "failed")),
            format!("# TYPE {name} histogram"),
            format!("{name}_bucket{{{labels},le=\"0.005\"}} 3"),
            format!("{name}_bucket{{{labels},le=\"1\"}} 5"),
            format!("{name}_bucket{{{labels},le=\"+Inf\"}} 6"),
            format!("{name}_sum{{{labels}}} 0.5"),
            format!("{name}_count{{{labels}}} 6"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("unknown"), "{text}");
    }
}
