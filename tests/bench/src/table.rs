use std::fmt;
use std::time::Duration;

use crate::calls::RuntimeCalls;
use crate::idle::IdleCost;
use crate::measure::{PERCENTILES, Samples, ms, over};

/// The result, as a table in Markdown.
pub(crate) struct Table {
    runtime: String,
    lines: Vec<[String; 3]>,
}

impl Table {
    pub(crate) fn new(runtime: &str) -> Self {
        Self {
            runtime: runtime.to_owned(),
            lines: Vec::new(),
        }
    }

    fn line(&mut self, what: impl Into<String>, floor: impl Into<String>, ours: impl Into<String>) {
        self.lines.push([what.into(), floor.into(), ours.into()]);
    }

    /// Adds rows for one kind of pod and the same steps by raw calls.
    pub(crate) fn beside(&mut self, what: &str, floor: &Samples, ours: &Samples) {
        for percent in PERCENTILES {
            let (floor, took) = (floor.percentile(percent), ours.percentile(percent));
            self.line(
                format!("{what}, p{percent} of {}", ours.count()),
                format!("{} ms", ms(floor)),
                format!("{} ms ({} ms)", ms(took), over(took, floor)),
            );
        }
    }

    /// Adds rows without a baseline.
    pub(crate) fn alone(&mut self, what: &str, samples: &Samples) {
        for percent in PERCENTILES {
            let ours = ms(samples.percentile(percent));
            let what = format!("{what}, p{percent} of {}", samples.count());
            self.line(what, "", format!("{ours} ms"));
        }
    }

    pub(crate) fn burst(&mut self, count: usize, raw: Duration, ours: Duration) {
        let rate = |took: Duration| {
            let seconds = took.as_secs_f64();
            format!(
                "{seconds:.2} s ({:.1} pods/s)",
                count as f64 / seconds.max(1e-9)
            )
        };
        self.line(
            format!("{count} pods at once (raw: ten at a time)"),
            rate(raw),
            rate(ours),
        );
    }

    pub(crate) fn burst_gone(&mut self, count: usize, took: Duration) {
        let ours = format!("{:.2} s", took.as_secs_f64());
        self.line(format!("delete {count} pods → all gone"), "", ours);
    }

    /// Adds the calls to the runtime and the processor time of each of `count` starts or deletions.
    pub(crate) fn calls(&mut self, what: &str, count: usize, calls: &RuntimeCalls, used_ms: f64) {
        let of = format!("each of {count} {what}s at once");
        self.line(format!("calls to the runtime, {of}"), "", calls.summary());
        let used = format!("{used_ms:.1} ms");
        self.line(format!("processor time of the agent, {of}"), "", used);
    }

    pub(crate) fn rest(&mut self, count: usize, rest: &IdleCost) {
        let ours = format!("{:.4} core, {:.1} MiB PSS", rest.cores, rest.pss_mib);
        let what = format!("at rest with {count} pods, {} processes", rest.processes);
        self.line(what, "", ours);
    }

    /// Adds the cost of probes, without the probed programs.
    pub(crate) fn probes(&mut self, count: usize, kind: &str, rest: &IdleCost) {
        let percent = |cores: f64| format!("{:.1} %", 100.0 * cores);
        let of = |part: &str| {
            let named = rest.programs.iter().filter(|(name, _)| name.contains(part));
            percent(named.map(|(_, cores)| cores).sum())
        };
        let ours = format!(
            "{} of a core (prober {})",
            percent(rest.cores),
            of("prober")
        );
        let what = format!("{count} {kind} probes a second");
        self.line(what, format!("{} (its part)", of("containerd")), ours);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| on {} | raw CRI | Polylet (over raw) |", self.runtime)?;
        writeln!(f, "| --- | --- | --- |")?;
        for [what, floor, ours] in &self.lines {
            writeln!(f, "| {what} | {floor} | {ours} |")?;
        }
        Ok(())
    }
}
