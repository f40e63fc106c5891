use std::fmt;

use crate::measure::{PERCENTILES, Samples, ms, over};

/// The result, as a table in Markdown: raw calls, kubelet, Polylet.
pub(crate) struct ClusterTable {
    runtime: String,
    lines: Vec<[String; 4]>,
}

impl ClusterTable {
    pub(super) fn new(runtime: &str) -> Self {
        Self {
            runtime: runtime.to_owned(),
            lines: Vec::new(),
        }
    }

    pub(super) fn line(
        &mut self,
        what: impl Into<String>,
        floor: impl Into<String>,
        [kubelet, polylet]: [String; 2],
    ) {
        self.lines
            .push([what.into(), floor.into(), kubelet, polylet]);
    }

    /// Adds rows with the same steps by raw calls, if there are any.
    pub(super) fn times(&mut self, what: &str, floor: Option<&Samples>, sides: &[Samples; 2]) {
        for percent in PERCENTILES {
            let floor = floor.map(|floor| floor.percentile(percent));
            let sides = sides.each_ref().map(|side| {
                let took = side.percentile(percent);
                match floor {
                    Some(floor) => format!("{} ms ({})", ms(took), over(took, floor)),
                    None => format!("{} ms", ms(took)),
                }
            });
            let [first, second] = sides;
            self.line(
                format!("{what}, p{percent}"),
                floor.map_or_else(String::new, |floor| format!("{} ms", ms(floor))),
                [first, second],
            );
        }
    }

    /// Adds rows with two baselines: raw calls alone, and with the API's least share.
    pub(super) fn times_over_both(&mut self, what: &str, times: &TimesInTurn) {
        for percent in PERCENTILES {
            let raw = times.raw.percentile(percent);
            let shared = times.shared.percentile(percent);
            let cells = times.sides.each_ref().map(|side| {
                let took = side.percentile(percent);
                let (first, second) = (over(took, raw), over(took, shared));
                format!("{} ms ({first}; {second})", ms(took))
            });
            let floor = format!("{} ms; with the API's {} ms", ms(raw), ms(shared));
            self.line(format!("{what}, p{percent}"), floor, cells);
        }
    }
}

/// Times of pods that were measured in turn.
#[derive(Default)]
pub(super) struct TimesInTurn {
    /// Raw calls.
    pub(super) raw: Samples,
    /// Raw calls with the requests to the API server that any agent causes.
    pub(super) shared: Samples,
    /// Kubelet and Polylet.
    pub(super) sides: [Samples; 2],
}

impl fmt::Display for ClusterTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = format!("on {}", self.runtime);
        writeln!(
            f,
            "| {title} | raw CRI | kubelet (over raw) | Polylet (over raw) |"
        )?;
        writeln!(f, "| --- | --- | --- | --- |")?;
        for line in &self.lines {
            writeln!(f, "| {} |", line.join(" | "))?;
        }
        Ok(())
    }
}
