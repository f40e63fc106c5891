use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::text::{FamilyKind, HistogramValue};

/// Upper bounds in seconds that Prometheus' client libraries have by default.
pub const DEFAULT_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The families of this process.
static FAMILIES: Mutex<Vec<&'static Metric>> = Mutex::new(Vec::new());

/// A family of series with the same labels. A family without labels has one series from the start.
#[derive(Debug)]
pub struct Metric {
    name: &'static str,
    help: &'static str,
    kind: FamilyKind,
    labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets, ascending.
    bounds: &'static [f64],
    /// The number is a time in seconds since 1970; its value is the time until then.
    counts_down: bool,
    series: Mutex<BTreeMap<Vec<String>, SeriesState>>,
}

#[derive(Clone, Debug, Default)]
struct SeriesState {
    /// Of a histogram the sum.
    number: f64,
    count: u64,
    /// How many values are in each bucket alone.
    buckets: Vec<u64>,
}

/// One series as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: SeriesValue,
}

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum SeriesValue {
    /// Of a counter or gauge.
    Number(f64),
    /// Of a histogram.
    Histogram(HistogramValue),
}

impl Metric {
    const fn new(
        name: &'static str,
        help: &'static str,
        kind: FamilyKind,
        labels: &'static [&'static str],
        bounds: &'static [f64],
    ) -> Self {
        Self {
            name,
            help,
            kind,
            labels,
            bounds,
            counts_down: false,
            series: Mutex::new(BTreeMap::new()),
        }
    }

    /// A count that only grows; its name ends in `_total`.
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self::new(name, help, FamilyKind::Counter, labels, &[])
    }

    /// A value that goes up and down.
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self::new(name, help, FamilyKind::Gauge, labels, &[])
    }

    /// The seconds until some time, which change without being set; infinite while there is none.
    pub const fn seconds_until(name: &'static str, help: &'static str) -> Self {
        let mut metric = Self::gauge(name, help, &[]);
        metric.counts_down = true;
        metric
    }

    /// Counts of values by buckets.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        bounds: &'static [f64],
    ) -> Self {
        Self::new(name, help, FamilyKind::Histogram, labels, bounds)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its help text.
    pub fn help(&self) -> &'static str {
        self.help
    }

    /// Its type.
    pub fn kind(&self) -> FamilyKind {
        self.kind
    }

    /// Adds one to the series with these values of the labels, in their order.
    pub fn increment(&self, labels: &[&str]) {
        self.update(labels, |value| value.number += 1.0);
    }

    /// Adds a number to the series; zero creates it.
    pub fn add(&self, labels: &[&str], number: f64) {
        self.update(labels, |value| value.number += number);
    }

    /// Sets the series.
    pub fn set(&self, labels: &[&str], number: f64) {
        self.update(labels, |value| value.number = number);
    }

    /// Sets the time, in seconds since 1970, of a family that [counts down](Metric::seconds_until).
    pub fn set_time(&self, at: Option<i64>) {
        self.set(&[], at.map_or(f64::INFINITY, |at| at as f64));
    }

    /// Replaces all series, so that those of what is gone end.
    pub fn replace<'a>(&self, series: impl IntoIterator<Item = (Vec<&'a str>, f64)>) {
        let mut all = self.lock();
        all.clear();
        for (labels, number) in series {
            let labels = labels.into_iter().map(str::to_owned).collect();
            all.entry(labels).or_default().number += number;
        }
    }

    /// Adds a value to a histogram.
    pub fn observe(&self, labels: &[&str], number: f64) {
        let bounds = self.bounds;
        self.update(labels, |value| {
            value.number += number;
            value.count += 1;
            value.buckets.resize(bounds.len(), 0);
            let index = bounds.iter().position(|bound| number <= *bound);
            if let Some(bucket) = index.and_then(|index| value.buckets.get_mut(index)) {
                *bucket += 1;
            }
        });
    }

    /// The series as they are now.
    pub fn series(&self) -> Vec<Series> {
        let all = self.lock();
        let mut series: Vec<_> = all
            .iter()
            .map(|(values, value)| self.one(values, value))
            .collect();
        if series.is_empty() && self.labels.is_empty() {
            let number = if self.counts_down { f64::INFINITY } else { 0.0 };
            let state = SeriesState {
                number,
                ..SeriesState::default()
            };
            series.push(self.one(&[], &state));
        }
        series
    }

    fn one(&self, values: &[String], value: &SeriesState) -> Series {
        let names = self.labels.iter().map(|name| (*name).to_owned());
        Series {
            labels: names.zip(values.iter().cloned()).collect(),
            value: match self.kind {
                FamilyKind::Histogram => SeriesValue::Histogram(self.buckets(value)),
                FamilyKind::Counter | FamilyKind::Gauge if self.counts_down => {
                    SeriesValue::Number((value.number - now()).trunc())
                }
                FamilyKind::Counter | FamilyKind::Gauge => SeriesValue::Number(value.number),
            },
        }
    }

    fn buckets(&self, value: &SeriesState) -> HistogramValue {
        let counts = value.buckets.iter().copied().chain(std::iter::repeat(0));
        let mut total = 0;
        let buckets = self.bounds.iter().zip(counts).map(|(bound, count)| {
            total += count;
            (*bound, total)
        });
        HistogramValue {
            buckets: buckets.collect(),
            sum: value.number,
            count: value.count,
        }
    }

    fn update(&self, labels: &[&str], change: impl FnOnce(&mut SeriesState)) {
        debug_assert_eq!(labels.len(), self.labels.len(), "{}", self.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        change(self.lock().entry(labels).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<String>, SeriesState>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Adds families to those of this process; each counts once.
pub fn register(families: &[&'static Metric]) {
    let mut all = FAMILIES.lock().unwrap_or_else(PoisonError::into_inner);
    for family in families {
        if !all.iter().any(|known| std::ptr::eq(*known, *family)) {
            all.push(family);
        }
    }
}

/// The families of this process.
pub fn gather() -> Vec<&'static Metric> {
    FAMILIES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_differ_by_the_values_of_their_labels() {
        static CALLS: Metric = Metric::counter("calls_total", "Calls.", &["method"]);
        assert!(CALLS.series().is_empty());
        CALLS.increment(&["a"]);
        CALLS.increment(&["b"]);
        CALLS.increment(&["a"]);
        let series = CALLS.series();
        let labels = |value: &str| vec![("method".to_owned(), value.to_owned())];
        assert_eq!(series.len(), 2);
        assert_eq!(series[0].labels, labels("a"));
        assert_eq!(series[0].value, SeriesValue::Number(2.0));
        CALLS.replace([(vec!["c"], 5.0), (vec!["c"], 1.0)]);
        let series = CALLS.series();
        assert_eq!(
            (series.len(), &series[0].value),
            (1, &SeriesValue::Number(6.0))
        );
    }

    #[test]
    fn histograms_are_cumulative_and_exist_from_the_start() {
        static SECONDS: Metric = Metric::histogram("seconds", "Seconds.", &[], &[0.1, 1.0]);
        let value = |buckets: &[(f64, u64)], sum, count| {
            SeriesValue::Histogram(HistogramValue {
                buckets: buckets.to_vec(),
                sum,
                count,
            })
        };
        assert_eq!(
            SECONDS.series()[0].value,
            value(&[(0.1, 0), (1.0, 0)], 0.0, 0)
        );
        for number in [0.1, 0.5, 2.0] {
            SECONDS.observe(&[], number);
        }
        assert_eq!(
            SECONDS.series()[0].value,
            value(&[(0.1, 1), (1.0, 2)], 2.6, 3)
        );
    }

    #[test]
    fn time_runs_out_without_being_set() {
        static LEFT: Metric = Metric::seconds_until("left_seconds", "Left.");
        let left = || match LEFT.series()[0].value {
            SeriesValue::Number(left) => left,
            SeriesValue::Histogram(_) => f64::NAN,
        };
        assert_eq!(left(), f64::INFINITY);
        LEFT.set_time(Some(now() as i64 + 1000));
        assert!((900.0..=1000.0).contains(&left()), "{}", left());
        LEFT.set_time(Some(1));
        assert!(left() < 0.0);
        LEFT.set_time(None);
        assert_eq!(left(), f64::INFINITY);
    }

    #[test]
    fn a_family_is_registered_once() {
        static GAUGE: Metric = Metric::gauge("gauge", "A gauge.", &[]);
        register(&[&GAUGE]);
        register(&[&GAUGE]);
        let own = gather()
            .into_iter()
            .filter(|family| family.name() == "gauge");
        assert_eq!(own.count(), 1);
    }
}
