//! `/metrics/probes`, under upstream's names. Probes are counted by the prober; only the counts are
//! encoded here.

use std::collections::BTreeMap;

use super::metrics::{HistogramValue, MetricFamilies, SampleValue};

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
        let counts = self.bucket_counts.iter().copied();
        let mut buckets: Vec<(f64, u64)> = bounds.iter().copied().zip(counts).collect();
        let bounded: u64 = buckets.iter().map(|(_, count)| count).sum();
        buckets.push((f64::INFINITY, self.count.saturating_sub(bounded)));
        HistogramValue {
            sum: self.sum_seconds,
            count: self.count,
            buckets,
        }
    }
}

/// The metric families; `bounds` are the upper bounds of the duration buckets in seconds.
pub(crate) fn families(bounds: &[f64], probes: &[ProbeSeries]) -> MetricFamilies {
    let mut totals = Vec::new();
    // A static pod that is recreated has the same name and another uid.
    let mut durations: BTreeMap<Vec<(&'static str, String)>, DurationCounts> = BTreeMap::new();
    for probe in probes {
        let labels = vec![
            ("container", probe.container.clone()),
            ("namespace", probe.namespace.clone()),
            ("pod", probe.pod.clone()),
            ("probe_type", probe.kind.to_owned()),
        ];
        for (result, count) in [
            ("successful", probe.successful),
            ("failed", probe.failed),
            ("unknown", probe.unknown),
        ] {
            if count > 0 {
                let mut labels = labels.clone();
                labels.push(("pod_uid", probe.pod_uid.clone()));
                labels.push(("result", result.to_owned()));
                totals.push((labels, SampleValue::IntCounter(count)));
            }
        }
        durations.entry(labels).or_default().add(&probe.durations);
    }
    let mut families = MetricFamilies::default();
    families.push(
        "prober_probe",
        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
        totals,
    );
    let durations = durations.into_iter().filter(|(_, counts)| counts.count > 0);
    families.push(
        "prober_probe_duration_seconds",
        "[ALPHA] Duration in seconds for a probe response.",
        durations
            .map(|(labels, counts)| (labels, SampleValue::Histogram(counts.histogram(bounds))))
            .collect(),
    );
    families
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
        let text = families(&[0.005, 1.0], &probes).encode().unwrap();
        let labels =
            "container=\"main\",namespace=\"default\",pod=\"web\",probe_type=\"Readiness\"";
        let total = |uid, result| {
            format!("prober_probe_total{{{labels},pod_uid=\"{uid}\",result=\"{result}\"}}")
        };
        let name = "prober_probe_duration_seconds";
        for line in [
            "# TYPE prober_probe counter".to_owned(),
            format!("{} 5", total("u1", "successful")),
            format!("{} 2", total("u2", "failed")),
            format!("# TYPE {name} histogram"),
            format!("{name}_bucket{{le=\"0.005\",{labels}}} 3"),
            format!("{name}_bucket{{le=\"1.0\",{labels}}} 5"),
            format!("{name}_bucket{{le=\"+Inf\",{labels}}} 6"),
            format!("{name}_sum{{{labels}}} 0.5"),
            format!("{name}_count{{{labels}}} 6"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("unknown"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
