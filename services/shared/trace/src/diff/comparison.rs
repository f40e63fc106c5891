//! The result of a comparison.

use serde::Serialize;

use crate::stats::Interval;

/// What a comparison decides by.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffOptions {
    /// How the sets are called in texts, such as by the names of files.
    pub names: [String; 2],
    /// The probability of a wrong `slower` or `faster` in the whole comparison.
    pub alpha: f64,
    /// With fewer traces on a side nothing is decided.
    pub min_traces: usize,
    /// Shifts up to this count as none, in microseconds,
    pub min_shift_us: f64,
    /// and those up to this share of the first set's median.
    pub min_share: f64,
    /// The seed of the bootstrap.
    pub seed: u64,
}

impl Default for DiffOptions {
    /// α is 0.05; ten traces, a millisecond and 2 %.
    fn default() -> DiffOptions {
        DiffOptions {
            names: ["A", "B"].map(str::to_owned),
            alpha: 0.05,
            min_traces: 10,
            min_shift_us: 1000.0,
            min_share: 0.02,
            seed: 0,
        }
    }
}

/// Two sets of traces side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Names of the sets.
    pub names: [String; 2],
    /// Traces of each set.
    pub traces: [usize; 2],
    /// Services whose version is another one in the second set.
    pub version_changes: Vec<VersionChange>,
    /// Why the result may have other causes than those that are compared.
    pub warnings: Vec<String>,
    /// The comparison within each shape that both sets have, those with most traces first.
    pub shapes: Vec<GroupComparison>,
    /// The comparison over all shapes, each trace relative to its shape's median; none with one shape.
    pub pooled: Option<GroupComparison>,
}

impl Comparison {
    /// The comparison of all traces: over all shapes, or within the only one.
    pub fn overall(&self) -> Option<&GroupComparison> {
        self.pooled.as_ref().or(self.shapes.first())
    }

    /// Whether the total or a step has a verdict, over all shapes or within one.
    pub fn has(&self, verdict: ShiftVerdict) -> bool {
        let mut groups = self.shapes.iter().chain(&self.pooled);
        groups.any(|group| group.rows().any(|row| row.verdict == verdict))
    }
}

/// A service whose version changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VersionChange {
    /// The service.
    pub service: String,
    /// Its version in the first set.
    pub from: String,
    /// Its version in the second set.
    pub to: String,
}

/// The comparison of traces that do the same work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupComparison {
    /// Their shape, with root and outcome where these are not `pod.start` and `ready`.
    pub shape: String,
    /// Traces of each set.
    pub traces: [usize; 2],
    /// The comparison of their durations.
    pub total: StepComparison,
    /// The comparison of each step: first those with a verdict, then by the size of their shift.
    pub steps: Vec<StepComparison>,
}

impl GroupComparison {
    /// The total, and then the steps.
    pub fn rows(&self) -> impl Iterator<Item = &StepComparison> {
        std::iter::once(&self.total).chain(&self.steps)
    }
}

/// The comparison of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepComparison {
    /// `service/operation`, or `total`.
    pub step: String,
    /// Whose time it is; none for the total and for time that no span explains.
    pub owner: Option<&'static str>,
    /// The median of each set, in microseconds.
    pub median_us: [f64; 2],
    /// The 95th percentile of each set, in microseconds.
    pub p95_us: [f64; 2],
    /// By how much the second set is slower, in microseconds: Hodges and Lehmann's estimate.
    pub shift_us: Interval,
    /// By how much the 95th percentile is, in microseconds; none for fewer than a hundred traces.
    pub p95_shift_us: Option<Interval>,
    /// The p value of the two-sided rank test, adjusted for the number of tests.
    pub p: f64,
    /// What follows from it.
    pub verdict: ShiftVerdict,
}

/// Whether a step became slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShiftVerdict {
    /// The shift is significant, and so large that it matters.
    Slower,
    /// The same, in the other direction.
    Faster,
    /// The data do not tell.
    Unclear,
    /// The shift is certainly too small to matter.
    Same,
    /// There are too few traces.
    TooFew,
}

impl ShiftVerdict {
    /// The word for it.
    pub fn label(self) -> &'static str {
        match self {
            ShiftVerdict::Slower => "slower",
            ShiftVerdict::Faster => "faster",
            ShiftVerdict::Unclear => "unclear",
            ShiftVerdict::Same => "same",
            ShiftVerdict::TooFew => "too few",
        }
    }
}
