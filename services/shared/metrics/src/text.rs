//! Metrics in the text formats of Prometheus and OpenMetrics.
//!
//! The whole text is written in one pass into one buffer, because a scrape of a full node has some ten
//! thousand series. Labels are encoded once per object with [`Labels`] and written for each of its series.

use std::fmt::Write;

use crate::exposition_format::ExpositionFormat;

/// What the names of counters end with in OpenMetrics, where the name of their family does not have it.
const TOTAL: &str = "_total";

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
    /// At most one value of each bucket.
    pub exemplars: Vec<Exemplar>,
}

/// A value that a histogram counts, and the trace in which it was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exemplar {
    /// The index of its bucket; the number of buckets for values above all of their bounds.
    pub bucket: usize,
    /// The value.
    pub value: f64,
    /// The ID of the trace in hexadecimal.
    pub trace_id: String,
    /// When it was measured, in seconds since 1970.
    pub measured_at: f64,
}

/// The text.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    format: ExpositionFormat,
}

/// Writes the series of one family. A family without any leaves no trace.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
    help: &'a str,
    kind: FamilyKind,
    format: ExpositionFormat,
    has_header: bool,
}

/// What follows the name of a series.
#[derive(Default)]
struct SeriesEnd<'a> {
    suffix: &'a str,
    label: Option<(&'a str, &'a str)>,
    at: Option<i64>,
    exemplar: Option<&'a Exemplar>,
}

impl Exposition {
    /// An empty text in a format.
    pub fn new(format: ExpositionFormat) -> Self {
        let text = String::new();
        Self { text, format }
    }

    /// Begins a family.
    pub fn family<'a>(&'a mut self, name: &'a str, help: &'a str, kind: FamilyKind) -> Family<'a> {
        Family {
            text: &mut self.text,
            name,
            help,
            kind,
            format: self.format,
            has_header: false,
        }
    }

    /// The finished text.
    pub fn finish(mut self) -> String {
        if self.format == ExpositionFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

impl Family<'_> {
    /// Writes a series; `at` is in milliseconds since 1970.
    pub fn sample(&mut self, labels: &Labels, value: f64, at: Option<i64>) {
        self.header();
        let line = SeriesEnd {
            at,
            ..SeriesEnd::default()
        };
        self.line(labels, value, &line);
    }

    /// Writes a series with one more label.
    pub fn labelled(&mut self, labels: &Labels, label: (&str, &str), value: f64, at: Option<i64>) {
        self.header();
        let line = SeriesEnd {
            label: Some(label),
            at,
            ..SeriesEnd::default()
        };
        self.line(labels, value, &line);
    }

    /// Writes the series of a histogram.
    pub fn histogram(&mut self, labels: &Labels, histogram: &HistogramValue) {
        self.header();
        for (index, (bound, count)) in histogram.buckets.iter().enumerate() {
            if bound.is_finite() {
                let bound = self.format.bound(*bound);
                self.bucket(labels, &bound, *count, histogram.exemplar(index));
            }
        }
        let above = histogram.exemplar(histogram.buckets.len());
        self.bucket(labels, "+Inf", histogram.count, above);
        let suffixed = |suffix| SeriesEnd {
            suffix,
            ..SeriesEnd::default()
        };
        self.line(labels, histogram.sum, &suffixed("_sum"));
        self.line(labels, histogram.count as f64, &suffixed("_count"));
    }

    fn bucket(&mut self, labels: &Labels, bound: &str, count: u64, exemplar: Option<&Exemplar>) {
        let line = SeriesEnd {
            suffix: "_bucket",
            label: Some(("le", bound)),
            at: None,
            exemplar,
        };
        self.line(labels, count as f64, &line);
    }

    fn header(&mut self) {
        if !std::mem::replace(&mut self.has_header, true) {
            let mut help = self.help.replace('\\', "\\\\").replace('\n', "\\n");
            let (mut name, mut kind) = (self.name, self.kind.text());
            if self.format == ExpositionFormat::OpenMetrics {
                help = help.replace('"', "\\\"");
                if self.kind == FamilyKind::Counter {
                    // Some of upstream's counters have other names, by which dashboards know them.
                    match name.strip_suffix(TOTAL) {
                        Some(base) => name = base,
                        None => kind = "unknown",
                    }
                }
            }
            // Writing to a string does not fail.
            let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
    }

    fn line(&mut self, labels: &Labels, value: f64, line: &SeriesEnd<'_>) {
        self.text.push_str(self.name);
        self.text.push_str(line.suffix);
        if !labels.0.is_empty() || line.label.is_some() {
            self.text.push('{');
            self.text.push_str(&labels.0);
            if let Some((name, value)) = line.label {
                let more = Labels::default().with(name, value);
                if !labels.0.is_empty() {
                    self.text.push(',');
                }
                self.text.push_str(&more.0);
            }
            self.text.push('}');
        }
        self.text.push(' ');
        self.number(value);
        if let Some(at) = line.at {
            let _ = match self.format {
                ExpositionFormat::Prometheus => write!(self.text, " {at}"),
                ExpositionFormat::OpenMetrics => write!(self.text, " {}", at as f64 / 1e3),
            };
        }
        let exemplar = line.exemplar;
        if let Some(exemplar) = exemplar.filter(|_| self.format == ExpositionFormat::OpenMetrics) {
            let labels = Labels::default().with("trace_id", &exemplar.trace_id);
            let _ = write!(self.text, " # {{{}}} ", labels.0);
            self.number(exemplar.value);
            let _ = write!(self.text, " {}", exemplar.measured_at);
        }
        self.text.push('\n');
    }

    fn number(&mut self, value: f64) {
        let _ = match value {
            f64::INFINITY => write!(self.text, "+Inf"),
            f64::NEG_INFINITY => write!(self.text, "-Inf"),
            value => write!(self.text, "{value}"),
        };
    }
}

impl HistogramValue {
    fn exemplar(&self, bucket: usize) -> Option<&Exemplar> {
        let mut exemplars = self.exemplars.iter();
        exemplars.find(|exemplar| exemplar.bucket == bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemplar(bucket: usize) -> Exemplar {
        Exemplar {
            bucket,
            value: 0.75,
            trace_id: "0af7".to_owned(),
            measured_at: 1700.5,
        }
    }

    #[test]
    fn openmetrics_has_exemplars_and_an_end() {
        let mut exposition = Exposition::new(ExpositionFormat::OpenMetrics);
        let none = Labels::default();
        let mut counter = exposition.family("calls_total", "\"Calls\".", FamilyKind::Counter);
        counter.sample(&none, 1.0, None);
        let mut counter = exposition.family("evictions", "Evictions.", FamilyKind::Counter);
        counter.sample(&none, 2.0, Some(1500));
        let histogram = HistogramValue {
            buckets: vec![(0.5, 1), (1.0, 2)],
            sum: 2.5,
            count: 3,
            exemplars: vec![exemplar(1), exemplar(2)],
        };
        let mut family = exposition.family("seconds", "Seconds.", FamilyKind::Histogram);
        family.histogram(&none, &histogram);
        let expected = [
            "# HELP calls \\\"Calls\\\".",
            "# TYPE calls counter",
            "calls_total 1",
            "# HELP evictions Evictions.",
            "# TYPE evictions unknown",
            "evictions 2 1.5",
            "# HELP seconds Seconds.",
            "# TYPE seconds histogram",
            "seconds_bucket{le=\"0.5\"} 1",
            "seconds_bucket{le=\"1.0\"} 2 # {trace_id=\"0af7\"} 0.75 1700.5",
            "seconds_bucket{le=\"+Inf\"} 3 # {trace_id=\"0af7\"} 0.75 1700.5",
            "seconds_sum 2.5",
            "seconds_count 3",
            "# EOF",
            "",
        ];
        assert_eq!(exposition.finish(), expected.join("\n"));
    }

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
            exemplars: vec![exemplar(1)],
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
