//! Where the time of many traces went.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::span::TraceId;
use crate::summary::{StepName, TraceSummary};

/// What the time of traces is summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepGrouping {
    /// Operations of services.
    Step,
    /// The services that recorded the spans.
    Service,
    /// Whose time it is.
    Owner,
    /// The traces as wholes, by their shapes.
    Shape,
    /// The traces as wholes, by the versions that are not the same in all of them.
    Version,
}

impl StepGrouping {
    /// The group of a step, itself where traces are grouped as wholes.
    pub fn label(self, step: &StepName) -> String {
        match (self, step.owner()) {
            (StepGrouping::Step | StepGrouping::Shape | StepGrouping::Version, _) | (_, None) => {
                step.to_string()
            }
            (StepGrouping::Service, Some(_)) => step.service.clone(),
            (StepGrouping::Owner, Some(owner)) => owner.label().to_owned(),
        }
    }
}

/// Quantiles of times, interpolated linearly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeQuantiles {
    /// The median.
    pub p50: Duration,
    /// The 95th percentile.
    pub p95: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The maximum.
    pub max: Duration,
}

impl TimeQuantiles {
    /// Of times in any order; zero if there are none.
    pub fn new(mut times: Vec<Duration>) -> TimeQuantiles {
        times.sort_unstable();
        TimeQuantiles {
            p50: quantile(&times, 50),
            p95: quantile(&times, 95),
            p99: quantile(&times, 99),
            max: times.last().copied().unwrap_or_default(),
        }
    }
}

/// A percentile of sorted times.
fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = sorted.len().saturating_sub(1) * percent;
    let (at, rest) = (rank / 100, rank % 100);
    let Some(lower) = sorted.get(at).copied() else {
        return Duration::ZERO;
    };
    let upper = sorted.get(at + 1).copied().unwrap_or(lower);
    let rest = u32::try_from(rest).unwrap_or_default();
    lower + (upper - lower) * rest / 100
}

/// Time on the critical paths of many traces.
#[derive(Debug, Clone, PartialEq)]
pub struct PathStatistics {
    /// How many traces.
    pub traces: usize,
    /// How long they lasted.
    pub total: TimeQuantiles,
    /// The groups of steps, the one with the largest share first.
    pub groups: Vec<GroupStatistics>,
}

/// Time of a group of steps on critical paths.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupStatistics {
    /// Its name.
    pub label: String,
    /// Whose time it is; empty if it is not known, or several have a part in it.
    pub owner: &'static str,
    /// The number of traces on whose path it is.
    pub traces: usize,
    /// Its part of the time of all traces, between 0 and 1.
    pub share: f64,
    /// Its time in those traces.
    pub time: TimeQuantiles,
    /// The trace in which it took longest.
    pub slowest: TraceId,
}

/// The time of each group of steps in each trace on whose path it is.
struct GroupTimes {
    owners: Vec<&'static str>,
    times: Vec<(Duration, TraceId)>,
}

/// Sums up where the time of traces went.
pub fn path_statistics(traces: &[TraceSummary], by: StepGrouping) -> PathStatistics {
    let mut groups: BTreeMap<String, GroupTimes> = BTreeMap::new();
    let varying = varying_versions(traces);
    for trace in traces {
        let of_whole = |label| BTreeMap::from([(label, (trace.duration, Vec::new()))]);
        let times = match by {
            StepGrouping::Shape => of_whole(trace.shape.clone()),
            StepGrouping::Version => of_whole(versions_label(trace, &varying)),
            StepGrouping::Step | StepGrouping::Service | StepGrouping::Owner => times(trace, by),
        };
        for (label, (time, owners)) in times {
            let group = groups.entry(label).or_insert_with(|| GroupTimes {
                owners: Vec::new(),
                times: Vec::new(),
            });
            group.owners.extend(owners);
            group.owners.dedup();
            group.times.push((time, trace.id));
        }
    }
    let all: Duration = traces.iter().map(|trace| trace.duration).sum();
    let statistics = groups.into_iter();
    let statistics = statistics.map(|(label, group)| group.statistics(label, all));
    let mut groups: Vec<_> = statistics.collect();
    groups.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.label.cmp(&b.label)));
    PathStatistics {
        traces: traces.len(),
        total: TimeQuantiles::new(traces.iter().map(|trace| trace.duration).collect()),
        groups,
    }
}

/// The names of what has several versions; what took part in some traces only has not.
fn varying_versions(traces: &[TraceSummary]) -> BTreeSet<&str> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, version) in traces.iter().flat_map(|trace| &trace.versions) {
        versions.entry(name).or_default().insert(version);
    }
    let varying = versions.into_iter().filter(|(_, seen)| seen.len() > 1);
    varying.map(|(name, _)| name).collect()
}

/// The versions that vary, as far as a trace has them.
fn versions_label(trace: &TraceSummary, varying: &BTreeSet<&str>) -> String {
    let versions = varying.iter().map(|name| match trace.versions.get(*name) {
        Some(version) => format!("{name} {version}"),
        None => format!("{name} not seen"),
    });
    let versions: Vec<_> = versions.collect();
    match versions.as_slice() {
        [] => "(all versions are the same)".to_owned(),
        versions => versions.join(", "),
    }
}

type TimeAndOwners = (Duration, Vec<&'static str>);

fn times(trace: &TraceSummary, by: StepGrouping) -> BTreeMap<String, TimeAndOwners> {
    let mut times: BTreeMap<String, TimeAndOwners> = BTreeMap::new();
    for (step, time) in &trace.steps {
        let (sum, owners) = times.entry(by.label(step)).or_default();
        *sum += *time;
        owners.extend(step.owner().map(super::StepOwner::label));
    }
    times
}

impl GroupTimes {
    fn statistics(mut self, label: String, all: Duration) -> GroupStatistics {
        self.owners.sort_unstable();
        self.owners.dedup();
        let sum: Duration = self.times.iter().map(|(time, _)| *time).sum();
        let slowest = self.times.iter().max().map(|(_, id)| *id);
        let owner = match self.owners.as_slice() {
            [owner] => owner,
            _ => "",
        };
        GroupStatistics {
            label,
            owner,
            traces: self.times.len(),
            share: if all.is_zero() {
                0.0
            } else {
                sum.as_secs_f64() / all.as_secs_f64()
            },
            time: TimeQuantiles::new(self.times.into_iter().map(|(time, _)| time).collect()),
            slowest: slowest.unwrap_or_default(),
        }
    }
}

/// A group of steps that is to take more or less time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepChange {
    /// The group, or the operation of steps.
    pub step: String,
    /// Whether it is to take less time.
    pub is_faster: bool,
    /// By how much, in each trace on whose path it is.
    pub by: Duration,
}

/// How long traces would last after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEffect {
    /// The number of traces on whose path the step is.
    pub traces: usize,
    /// How long traces last.
    pub before: TimeQuantiles,
    /// How long they would last.
    pub after: TimeQuantiles,
}

/// How long traces would last if a step took another time; `None` if it is on none of their paths. No step takes less
/// than no time. At most so much is saved: what ran beside the step may be waited for instead.
pub fn what_if(
    traces: &[TraceSummary],
    by: StepGrouping,
    change: &StepChange,
) -> Option<ChangeEffect> {
    let is_meant = |step: &StepName| by.label(step) == change.step || step.operation == change.step;
    let mut affected = 0;
    let mut after = Vec::with_capacity(traces.len());
    for trace in traces {
        let steps = trace.steps.iter().filter(|(step, _)| is_meant(step));
        let mut steps = steps.map(|(_, time)| *time).peekable();
        let is_affected = steps.peek().is_some();
        let time: Duration = steps.sum();
        affected += usize::from(is_affected);
        after.push(match (is_affected, change.is_faster) {
            (false, _) => trace.duration,
            (true, true) => trace.duration.saturating_sub(change.by.min(time)),
            (true, false) => trace.duration.saturating_add(change.by),
        });
    }
    let before = traces.iter().map(|trace| trace.duration);
    (affected > 0).then(|| ChangeEffect {
        traces: affected,
        before: TimeQuantiles::new(before.collect()),
        after: TimeQuantiles::new(after),
    })
}

#[cfg(test)]
#[path = "path_statistics_tests.rs"]
mod tests;
