//! `/metrics/probes`, in the text format of Prometheus and with upstream's names.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::metrics::escape;

/// The attempts of one probe of one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Probe {
    /// `Liveness`, `Readiness` or `Startup`.
    pub(crate) kind: &'static str,
    pub(crate) container: String,
    pub(crate) pod: String,
    pub(crate) namespace: String,
    pub(crate) pod_uid: String,
    pub(crate) successful: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    /// Of those that did not fail.
    pub(crate) durations: Histogram,
}

/// How long things took.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    /// By the first bound that was kept.
    pub(crate) classes: Vec<u64>,
    pub(crate) count: u64,
    pub(crate) seconds: f64,
}

impl Histogram {
    fn add(&mut self, other: &Histogram) {
        let length = self.classes.len().max(other.classes.len());
        self.classes.resize(length, 0);
        for (own, other) in self.classes.iter_mut().zip(&other.classes) {
            *own += other;
        }
        self.count += other.count;
        self.seconds += other.seconds;
    }
}

/// The whole answer; `bounds` are those of the durations' classes, in seconds.
pub(crate) fn text(bounds: &[f64], probes: &[Probe]) -> String {
    let mut out = String::new();
    header(
        &mut out,
        "prober_probe_total",
        "counter",
        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
    );
    // A static pod that is put back has another uid and the same name.
    let mut durations: BTreeMap<String, Histogram> = BTreeMap::new();
    for probe in probes {
        let who = labels(probe);
        let uid = escape(&probe.pod_uid);
        for (result, count) in [
            ("successful", probe.successful),
            ("failed", probe.failed),
            ("unknown", probe.unknown),
        ] {
            if count > 0 {
                let labels = format!("{{{who},pod_uid=\"{uid}\",result=\"{result}\"}}");
                let _ = writeln!(out, "prober_probe_total{labels} {count}");
            }
        }
        durations.entry(who).or_default().add(&probe.durations);
    }
    let name = "prober_probe_duration_seconds";
    let help = "[ALPHA] Duration in seconds for a probe response.";
    header(&mut out, name, "histogram", help);
    for (who, histogram) in durations.iter().filter(|(_, all)| all.count > 0) {
        let mut kept = 0;
        for (bound, class) in bounds.iter().zip(&histogram.classes) {
            kept += class;
            let _ = writeln!(out, "{name}_bucket{{{who},le=\"{bound}\"}} {kept}");
        }
        let (count, seconds) = (histogram.count, histogram.seconds);
        let _ = writeln!(out, "{name}_bucket{{{who},le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum{{{who}}} {seconds}");
        let _ = writeln!(out, "{name}_count{{{who}}} {count}");
    }
    out
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn labels(probe: &Probe) -> String {
    format!(
        "container=\"{}\",namespace=\"{}\",pod=\"{}\",probe_type=\"{}\"",
        escape(&probe.container),
        escape(&probe.namespace),
        escape(&probe.pod),
        probe.kind
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_told_as_upstream_tells_them() {
        let of = |uid: &str, classes: &[u64], count| Probe {
            kind: "Readiness",
            container: "main".to_owned(),
            pod: "web".to_owned(),
            namespace: "default".to_owned(),
            pod_uid: uid.to_owned(),
            successful: count,
            failed: 2,
            durations: Histogram {
                classes: classes.to_vec(),
                count,
                seconds: 0.25,
            },
            ..Probe::default()
        };
        let text = text(&[0.005, 1.0], &[of("u1", &[3, 1], 5), of("u2", &[0, 1], 1)]);
        let who = "container=\"main\",namespace=\"default\",pod=\"web\",probe_type=\"Readiness\"";
        let total = |uid, result| {
            format!("prober_probe_total{{{who},pod_uid=\"{uid}\",result=\"{result}\"}}")
        };
        for line in [
            "# TYPE prober_probe_total counter".to_owned(),
            format!("{} 5", total("u1", "successful")),
            format!("{} 2", total("u2", "failed")),
            "# TYPE prober_probe_duration_seconds histogram".to_owned(),
            format!("prober_probe_duration_seconds_bucket{{{who},le=\"0.005\"}} 3"),
            format!("prober_probe_duration_seconds_bucket{{{who},le=\"1\"}} 5"),
            format!("prober_probe_duration_seconds_bucket{{{who},le=\"+Inf\"}} 6"),
            format!("prober_probe_duration_seconds_sum{{{who}}} 0.5"),
            format!("prober_probe_duration_seconds_count{{{who}}} 6"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("unknown"), "{text}");
    }
}
