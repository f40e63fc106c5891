//! Metrics in the text format of Prometheus, version 0.0.4, as the kubelet serves it.
//!
//! The whole text is written in one pass into one buffer, because a scrape of a full node has some ten
//! thousand series. Labels are encoded once per object with [`Labels`] and written for each of its series.

use std::fmt::Write;

/// The media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// A count that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Counts of values by buckets.
    Histogram,
}

impl FamilyKind {
    fn text(self) -> &'static str {
        match self {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        }
    }
}

/// Labels, encoded: `a="b",c="d"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(String);

impl Labels {
    /// These labels and one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.push(name, value);
        self
    }

    /// Adds a label.
    pub fn push(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                c => self.0.push(c),
            }
        }
        self.0.push('"');
    }
}

/// A histogram's values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramValue {
    /// Upper bounds and the number of values up to each; the count of all is added as `+Inf`.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: f64,
    /// The number of all values.
    pub count: u64,
}

/// The text.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// Writes the series of one family. A family without any leaves no trace.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
    help: &'a str,
    kind: FamilyKind,
    has_header: bool,
}

impl Exposition {
    /// Begins a family.
    pub fn family<'a>(&'a mut self, name: &'a str, help: &'a str, kind: FamilyKind) -> Family<'a> {
        Family {
            text: &mut self.text,
            name,
            help,
            kind,
            has_header: false,
        }
    }

    /// The finished text.
    pub fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Writes a series; `at` is in milliseconds since 1970.
    pub fn sample(&mut self, labels: &Labels, value: f64, at: Option<i64>) {
        self.header();
        self.line("", labels, None, value, at);
    }

    /// Writes a series with one more label.
    pub fn labelled(&mut self, labels: &Labels, label: (&str, &str), value: f64, at: Option<i64>) {
        self.header();
        self.line("", labels, Some(label), value, at);
    }

    /// Writes the series of a histogram.
    pub fn histogram(&mut self, labels: &Labels, histogram: &HistogramValue) {
        self.header();
        for (bound, count) in &histogram.buckets {
            if bound.is_finite() {
                let label = ("le", &*bound.to_string());
                self.line("_bucket", labels, Some(label), *count as f64, None);
            }
        }
        let count = histogram.count as f64;
        self.line("_bucket", labels, Some(("le", "+Inf")), count, None);
        self.line("_sum", labels, None, histogram.sum, None);
        self.line("_count", labels, None, count, None);
    }

    fn header(&mut self) {
        if !std::mem::replace(&mut self.has_header, true) {
            let help = self.help.replace('\\', "\\\\").replace('\n', "\\n");
            let (name, kind) = (self.name, self.kind.text());
            // Writing to a string does not fail.
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &Labels,
        label: Option<(&str, &str)>,
        value: f64,
        at: Option<i64>,
    ) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        if !labels.0.is_empty() || label.is_some() {
            self.text.push('{');
            self.text.push_str(&labels.0);
            if let Some((name, value)) = label {
                let more = Labels::default().with(name, value);
                if !labels.0.is_empty() {
                    self.text.push(',');
                }
                self.text.push_str(&more.0);
            }
            self.text.push('}');
        }
        let _ = match value {
            f64::INFINITY => write!(self.text, " +Inf"),
            f64::NEG_INFINITY => write!(self.text, " -Inf"),
            value => write!(self.text, " {value}"),
        };
        if let Some(at) = at {
            let _ = write!(self.text, " {at}");
        }
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_written_as_clients_expect() {
        let mut exposition = Exposition::default();
        let labels = Labels::default().with("pod", "a\"b\\c\nd");
        let mut gauge = exposition.family("some_bytes", "Bytes.", FamilyKind::Gauge);
        gauge.sample(&labels, 1e10, Some(1700));
        gauge.labelled(&Labels::default(), ("device", "/dev/a"), 0.5, None);
        gauge.sample(&Labels::default(), f64::INFINITY, None);
        exposition.family("nothing", "No series.", FamilyKind::Counter);
        let histogram = HistogramValue {
            buckets: vec![(0.5, 1), (1.0, 2)],
            sum: 2.5,
            count: 3,
        };
        let mut family = exposition.family("seconds", "Seconds.", FamilyKind::Histogram);
        family.histogram(&Labels::default().with("a", "b"), &histogram);
        let expected = [
            "# HELP some_bytes Bytes.",
            "# TYPE some_bytes gauge",
            "some_bytes{pod=\"a\\\"b\\\\c\\nd\"} 10000000000 1700",
            "some_bytes{device=\"/dev/a\"} 0.5",
            "some_bytes +Inf",
            "# HELP seconds Seconds.",
            "# TYPE seconds histogram",
            "seconds_bucket{a=\"b\",le=\"0.5\"} 1",
            "seconds_bucket{a=\"b\",le=\"1\"} 2",
            "seconds_bucket{a=\"b\",le=\"+Inf\"} 3",
            "seconds_sum{a=\"b\"} 2.5",
            "seconds_count{a=\"b\"} 3",
            "",
        ];
        assert_eq!(exposition.finish(), expected.join("\n"));
    }
}
