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

    /// Adds a row with the same steps by raw calls, if there are any.
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
