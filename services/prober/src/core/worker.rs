//! One probe of one running container: when it is due, and what its results mean.
//!
//! Results count as upstream counts them: a verdict changes after a threshold of equal results in a
//! row; a failed liveness and any startup verdict hold until the container is another one; a probe
//! that itself went wrong counts as nothing.
//!
//! Two things differ, and neither makes a failure come sooner than upstream's:
//! - A readiness probe that has never succeeded is also tried between its periods, at growing
//!   pauses. These extra attempts can succeed, and a pod start waits for no tick; when they fail
//!   they count as nothing. (Upstream repeats such a probe at every status change.)
//! - After the first success, and for liveness from the start, attempts fall on a phase of the
//!   period that the container's id decides, so that many containers spread over the period.

use std::time::Duration;

use jiff::Timestamp;
use polylet_model::probe::ProbeKind;

use super::types::{Judged, Observation, Outcome, Timing};

/// Attempts that a pod start waits for are told in its trace; a pod that never becomes ready must
/// not fill the trace for ever.
const TOLD_ATTEMPTS: u32 = 20;

/// The state of one probe.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    kind: ProbeKind,
    timing: Timing,
    /// The container's start and the initial delay.
    from: Timestamp,
    phase: u64,
    /// The verdict that stands; absent while it is the initial one.
    verdict: Option<Outcome>,
    last: Option<Outcome>,
    run: u32,
    /// The next attempt that counts.
    regular: Timestamp,
    due: Timestamp,
    retry: Duration,
    /// The attempt under way counts.
    counts: bool,
    attempts: u32,
    /// There was a success, now or in an earlier life of the process.
    succeeded: bool,
}

impl Worker {
    /// A worker for a container that runs since `started_at`. `kept` is its verdict so far.
    pub(crate) fn new(
        kind: ProbeKind,
        timing: Timing,
        started_at: Timestamp,
        kept: Option<Outcome>,
        phase: u64,
        now: Timestamp,
    ) -> Self {
        // A start in the future is a clock that was set back since.
        let from = started_at.min(now) + timing.initial_delay;
        let retry = timing.first_retry;
        let mut worker = Worker {
            kind,
            timing,
            from,
            phase,
            verdict: kept,
            last: kept,
            run: 0,
            regular: from,
            due: from,
            retry,
            counts: true,
            attempts: 0,
            succeeded: kept.is_some(),
        };
        worker.open(now);
        worker
    }

    /// Nothing holds it back any longer: readiness and startup at once, since a pod's start waits
    /// for them.
    pub(crate) fn open(&mut self, now: Timestamp) {
        let from = self.from.max(now);
        let awaited = self.kind != ProbeKind::Liveness && !self.succeeded;
        self.regular = if awaited { from } else { self.slot_after(from) };
        self.due = self.regular;
    }

    /// When the next attempt is due; never, once its verdict holds.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let held = match self.kind {
            ProbeKind::Startup => self.verdict.is_some(),
            ProbeKind::Liveness => self.verdict == Some(Outcome::Failure),
            ProbeKind::Readiness => false,
        };
        (!held).then_some(self.due)
    }

    /// Whether a pod's start waits for the next attempt.
    pub(crate) fn is_awaited(&self) -> bool {
        self.kind != ProbeKind::Liveness && !self.succeeded && self.attempts <= TOLD_ATTEMPTS
    }

    /// An attempt begins.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        self.attempts = self.attempts.saturating_add(1);
        self.counts = now >= self.regular;
        // Attempts that took too long, or a process that slept, leave periods out.
        if self.counts {
            let missed = now.duration_since(self.regular).as_millis() / self.period_ms();
            let periods = u32::try_from(missed).unwrap_or(0).saturating_add(1);
            self.regular += self.timing.period.saturating_mul(periods);
        }
    }

    /// The attempt under way said this. Gives the verdict if it changes.
    pub(crate) fn observe(&mut self, said: Observation, now: Timestamp) -> Option<Judged> {
        let (outcome, message) = match said {
            Observation::Success => (Outcome::Success, String::new()),
            Observation::Warning(message) => (Outcome::Success, message),
            Observation::Failure(message) => (Outcome::Failure, message),
            Observation::Unknown(_) => {
                self.plan_next(now);
                return None;
            }
        };
        if outcome == Outcome::Success && !self.succeeded {
            self.succeeded = true;
            self.regular = now + self.timing.period;
        }
        let judged = (self.counts || outcome == Outcome::Success)
            .then(|| self.count(outcome))
            .flatten()
            .map(|run_length| Judged {
                outcome,
                run_length,
                message,
            });
        if judged
            .as_ref()
            .is_some_and(|judged| judged.outcome == Outcome::Success)
        {
            self.regular = self.slot_after(now);
        }
        self.plan_next(now);
        judged
    }

    /// Counts a result; the length of its run if the verdict changes.
    fn count(&mut self, outcome: Outcome) -> Option<u32> {
        self.run = if self.last == Some(outcome) {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some(outcome);
        let threshold = match outcome {
            Outcome::Success => self.timing.success_threshold,
            Outcome::Failure => self.timing.failure_threshold,
        };
        if self.run < threshold || self.verdict.or(untold(self.kind)) == Some(outcome) {
            return None;
        }
        self.verdict = Some(outcome);
        Some(self.run)
    }

    fn plan_next(&mut self, now: Timestamp) {
        if self.regular <= now {
            let missed = now.duration_since(self.regular).as_millis() / self.period_ms();
            let periods = u32::try_from(missed).unwrap_or(0).saturating_add(1);
            self.regular += self.timing.period.saturating_mul(periods);
        }
        self.due = self.regular;
        if self.kind == ProbeKind::Readiness && !self.succeeded {
            self.due = self.regular.min(now + self.retry);
            self.retry = self.retry.saturating_mul(2).min(self.timing.period);
        }
    }

    /// The first moment of this worker's phase after `at`.
    fn slot_after(&self, at: Timestamp) -> Timestamp {
        let period = self.period_ms();
        let phase = i128::from(self.phase).rem_euclid(period);
        let next = i128::from(at.as_millisecond()) + 1;
        let slot = next + (phase - next).rem_euclid(period);
        let slot = i64::try_from(slot)
            .ok()
            .and_then(|ms| Timestamp::from_millisecond(ms).ok());
        slot.unwrap_or(Timestamp::MAX)
    }

    fn period_ms(&self) -> i128 {
        i128::try_from(self.timing.period.as_millis())
            .unwrap_or(i128::MAX)
            .max(1)
    }
}

/// What needs no telling: a container is alive until it is told that it is not. Not ready is told: a
/// container may have been found ready by whoever had this node before.
fn untold(kind: ProbeKind) -> Option<Outcome> {
    (kind == ProbeKind::Liveness).then_some(Outcome::Success)
}

#[cfg(test)]
mod tests;
