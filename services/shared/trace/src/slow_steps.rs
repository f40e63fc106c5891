//! Why a trace took longer than others of its shape.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::path_statistics::TimeQuantiles;
use crate::summary::{StepName, TraceSummary};

/// Steps that take longer than usual by less than this are not worth a look.
const NEGLIGIBLE: Duration = Duration::from_millis(1);

/// A time of one trace beside those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeAmongOthers {
    /// In this trace.
    pub time: Duration,
    /// In the others.
    pub others: TimeQuantiles,
}

/// A service that ran in another version than in most others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionDifference {
    /// The service.
    pub service: String,
    /// The version in this trace.
    pub version: String,
    /// The version in most others.
    pub others: String,
}

/// A trace beside others of its shape.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowSteps {
    /// How many others there are.
    pub others: usize,
    /// How long the trace took.
    pub total: TimeAmongOthers,
    /// Steps that took longer than in 95 % of the others, the one with the largest excess over the median first.
    pub steps: Vec<(StepName, TimeAmongOthers)>,
    /// Services whose versions differ from those in most others.
    pub versions: Vec<VersionDifference>,
}

/// Compares a trace with others; those with another root or shape, and itself, do not count. A step that is not on
/// a path took no time there.
pub fn slow_steps(trace: &TraceSummary, others: &[TraceSummary]) -> SlowSteps {
    let is_comparable = |other: &&TraceSummary| {
        other.id != trace.id && other.root == trace.root && other.shape == trace.shape
    };
    let others: Vec<_> = others.iter().filter(is_comparable).collect();
    let among = |time, of: &dyn Fn(&TraceSummary) -> Duration| TimeAmongOthers {
        time,
        others: TimeQuantiles::new(others.iter().map(|other| of(other)).collect()),
    };
    let of_step = |(step, time): (&StepName, &Duration)| {
        let of = |other: &TraceSummary| other.steps.get(step).copied().unwrap_or_default();
        (step.clone(), among(*time, &of))
    };
    let mut steps: Vec<_> = trace.steps.iter().map(of_step).collect();
    steps.retain(|(_, step)| !others.is_empty() && step.is_slow());
    steps.sort_by(|(a, of_a), (b, of_b)| of_b.excess().cmp(&of_a.excess()).then(a.cmp(b)));
    SlowSteps {
        others: others.len(),
        total: among(trace.duration, &|other| other.duration),
        steps,
        versions: version_differences(trace, &others),
    }
}

impl TimeAmongOthers {
    /// Whether it is beyond the 95th percentile of the others, and not negligibly.
    pub fn is_slow(&self) -> bool {
        self.time > self.others.p95 && self.excess() >= NEGLIGIBLE
    }

    /// The time beyond the median of the others.
    pub fn excess(&self) -> Duration {
        self.time.saturating_sub(self.others.p50)
    }
}

fn version_differences(trace: &TraceSummary, others: &[&TraceSummary]) -> Vec<VersionDifference> {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (service, version) in others.iter().flat_map(|other| &other.versions) {
        *counts
            .entry(service)
            .or_default()
            .entry(version)
            .or_default() += 1;
    }
    let difference = |(service, version): (&String, &String)| {
        let counts = counts.get(service.as_str())?;
        let (most, _) = counts.iter().max_by_key(|(_, count)| **count)?;
        (most != version).then(|| VersionDifference {
            service: service.clone(),
            version: version.clone(),
            others: (*most).to_owned(),
        })
    };
    let differences: BTreeSet<_> = trace.versions.iter().filter_map(difference).collect();
    differences.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::summary;

    const SANDBOX: &str = "cri.RunPodSandbox";

    #[test]
    fn only_steps_beyond_those_of_the_others_are_slow() {
        let start = |id: u8, sandbox, wait| {
            summary(
                id,
                0,
                &[
                    ("s", SANDBOX, sandbox),
                    ("s", "sync.start", 20),
                    ("", "", wait),
                ],
            )
        };
        let mut others: Vec<_> = (10..30)
            .map(|id| start(id, 100 + u64::from(id), 5))
            .collect();
        let mut slow = start(1, 400, 5);
        slow.versions = [("pleg".to_owned(), "0.2.0".to_owned())].into();
        others.push(slow.clone());
        // Of another shape.
        let mut other = start(99, 9_000, 9_000);
        other.shape = "2 containers".to_owned();
        others.push(other);
        let found = slow_steps(&slow, &others);
        assert_eq!(found.others, 20);
        let steps: Vec<_> = found
            .steps
            .iter()
            .map(|(step, _)| step.to_string())
            .collect();
        assert_eq!(steps, ["s/cri.RunPodSandbox"]);
        assert_eq!(found.steps[0].1.others.p50, Duration::from_micros(119_500));
        assert!(found.total.is_slow());
        let [version] = &found.versions[..] else {
            panic!("{found:?}");
        };
        assert_eq!(
            (version.version.as_str(), version.others.as_str()),
            ("0.2.0", "0.1.0")
        );
    }

    #[test]
    fn a_step_that_others_do_not_wait_for_is_slow_unless_negligible() {
        let others = [2, 3, 4].map(|id| summary(id, 0, &[("s", "sync.start", 20)]));
        let trace = summary(
            1,
            0,
            &[
                ("s", "sync.start", 20),
                ("s", "wait.slot", 50),
                ("s", "sync.gone", 0),
            ],
        );
        let steps = slow_steps(&trace, &others).steps;
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0].0.operation, "wait.slot");
    }

    #[test]
    fn without_others_nothing_is_slow() {
        let trace = summary(1, 0, &[("s", "sync.start", 20)]);
        let found = slow_steps(&trace, std::slice::from_ref(&trace));
        assert_eq!((found.others, found.steps.len()), (0, 0));
    }
}
