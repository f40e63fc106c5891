use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::text::{Exemplar, FamilyKind, HistogramValue};

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
    /// The latest value of each bucket that was measured in a trace.
    exemplars: BTreeMap<usize, Exemplar>,
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
        self.update(labels, |value| {
            value.observe(number, self.bounds);
        });
    }

    /// Adds a value that was measured in a trace; `at` is in seconds since 1970.
    pub fn observe_in_trace(&self, labels: &[&str], number: f64, trace_id: &str, at: f64) {
        self.update(labels, |value| {
            let exemplar = Exemplar {
                bucket: value.observe(number, self.bounds),
                value: number,
                trace_id: trace_id.to_owned(),
                measured_at: at,
            };
            value.exemplars.insert(exemplar.bucket, exemplar);
        });
    }

    /// Forgets the exemplars of all traces but these, such as those that can still be read.
    pub fn retain_exemplars(&self, mut is_retained: impl FnMut(&str) -> bool) {
        for value in self.lock().values_mut() {
            let exemplars = &mut value.exemplars;
            exemplars.retain(|_, exemplar| is_retained(&exemplar.trace_id));
        }
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
            exemplars: value.exemplars.values().cloned().collect(),
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

impl SeriesState {
    /// Adds a value to a histogram, and returns the index of its bucket.
    fn observe(&mut self, number: f64, bounds: &[f64]) -> usize {
        self.number += number;
        self.count += 1;
        self.buckets.resize(bounds.len(), 0);
        let index = bounds.iter().position(|bound| number <= *bound);
        let index = index.unwrap_or(bounds.len());
        if let Some(bucket) = self.buckets.get_mut(index) {
            *bucket += 1;
        }
        index
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
#[path = "registry_tests.rs"]
mod tests;
