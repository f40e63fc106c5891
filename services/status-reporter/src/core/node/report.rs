//! When a status is written.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::NodeStatus;

use super::patch;

/// How often a status is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// `nodeStatusUpdateFrequency`: changes of images wait this long for each other.
    pub(crate) gather: SignedDuration,
    /// `nodeStatusReportFrequency`: written this often with nothing changed.
    pub(crate) report: SignedDuration,
}

/// What has been written, and when.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pace: Pace,
    written: Option<Timestamp>,
    /// Added to the report frequency: after a change the next report is shifted, so that nodes
    /// that changed together do not report together for ever.
    shift: SignedDuration,
    gathering: Option<Timestamp>,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Write,
    /// Look again then, should nothing happen before.
    Wait(Timestamp),
}

impl Schedule {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            written: None,
            shift: SignedDuration::ZERO,
            gathering: None,
        }
    }

    /// Whether the wanted status is to be written over the held one; `mislabelled` when labels go with
    /// it, which wait as images do: whoever takes them off again is not fought at once.
    pub(crate) fn decide(
        &mut self,
        held: &NodeStatus,
        wanted: &NodeStatus,
        mislabelled: bool,
        now: Timestamp,
    ) -> Decision {
        let Some(written) = self.written else {
            return Decision::Write;
        };
        if patch::differs_at_once(held, wanted) {
            return Decision::Write;
        }
        let report = later(written, self.pace.report + self.shift);
        let mut due = report;
        if mislabelled || patch::differs(held, wanted) {
            let since = *self.gathering.get_or_insert(now);
            due = due.min(later(since, self.pace.gather));
        } else {
            self.gathering = None;
        }
        if due <= now {
            Decision::Write
        } else {
            Decision::Wait(due)
        }
    }

    /// A status was written; `random` is between 0 and 1.
    pub(crate) fn written(&mut self, changed: bool, random: f64, now: Timestamp) {
        self.written = Some(now);
        self.gathering = None;
        self.shift = if changed {
            let spread = self.pace.report.as_millis() as f64 * (random - 0.5);
            SignedDuration::from_millis(spread as i64)
        } else {
            SignedDuration::ZERO
        };
    }

    /// The next decision is to write, whatever it sees.
    pub(crate) fn forget(&mut self) {
        self.written = None;
    }
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
