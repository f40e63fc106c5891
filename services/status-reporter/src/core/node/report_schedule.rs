//! When the node's status is written.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::NodeStatus;

use super::patch;

/// How often the status is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportInterval {
    /// `nodeStatusUpdateFrequency`: how long changes that are not urgent are batched.
    pub(crate) batch: SignedDuration,
    /// `nodeStatusReportFrequency`: how often an unchanged status is written.
    pub(crate) report: SignedDuration,
}

/// The schedule of status writes.
#[derive(Clone, Debug)]
pub(crate) struct ReportSchedule {
    interval: ReportInterval,
    written: Option<Timestamp>,
    /// Added to the report interval after a start or a change, so that nodes that started or changed
    /// together do not report together.
    shift: SignedDuration,
    batch_started: Option<Timestamp>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportDecision {
    Write,
    /// Decide again at this time, unless something changes before.
    Wait(Timestamp),
}

impl ReportSchedule {
    pub(crate) fn new(interval: ReportInterval) -> Self {
        Self {
            interval,
            written: None,
            shift: SignedDuration::ZERO,
            batch_started: None,
        }
    }

    /// Whether to write the desired status now. `has_more`: something is to be written with it, batched like
    /// images: labels, so that repeated removals do not cause a write each, or a message that changes with
    /// time.
    pub(crate) fn decide(
        &mut self,
        current: &NodeStatus,
        desired: &NodeStatus,
        has_more: bool,
        now: Timestamp,
    ) -> ReportDecision {
        let Some(written) = self.written else {
            return ReportDecision::Write;
        };
        if patch::differs_urgently(current, desired) {
            return ReportDecision::Write;
        }
        let report = add(written, self.interval.report + self.shift);
        let mut due = report;
        if has_more || patch::differs(current, desired) {
            let since = *self.batch_started.get_or_insert(now);
            due = due.min(add(since, self.interval.batch));
        } else {
            self.batch_started = None;
        }
        if due <= now {
            ReportDecision::Write
        } else {
            ReportDecision::Wait(due)
        }
    }

    /// Records a write; `random` is between 0 and 1.
    pub(crate) fn on_written(&mut self, changed: bool, random: f64, now: Timestamp) {
        let is_first = self.written.replace(now).is_none();
        self.batch_started = None;
        self.shift = if changed || is_first {
            let spread = self.interval.report.as_millis() as f64 * (random - 0.5);
            SignedDuration::from_millis(spread as i64)
        } else {
            SignedDuration::ZERO
        };
    }

    /// Makes the next decision a write.
    pub(crate) fn force(&mut self) {
        self.written = None;
    }
}

fn add(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
