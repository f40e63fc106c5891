//! One probe of one running container: when it is due, and what its results mean.
//!
//! Results are counted as upstream counts them: the outcome changes after a threshold of equal results
//! in a row; a failed liveness probe and either outcome of a startup probe are final for the
//! container; an attempt that itself failed does not count.
//!
//! Two things differ, and neither makes a failure come sooner than upstream's:
//! - A readiness probe that has never succeeded is also tried between its ticks, with growing delays.
//!   These attempts can succeed, so that a pod start waits for no tick; their failures do not count,
//!   and are neither events nor in the metrics. (Upstream triggers such a probe at every status change.)
//! - After the first success, and for liveness from the start, attempts are due at a phase of the
//!   period that is derived from the container's id, which spreads the load of many containers.

use std::time::Duration;

use jiff::Timestamp;
use polylet_model::probe::ProbeKind;

use super::types::{OutcomeChange, ProbeOutcome, ProbeOutput, ProbeTiming};

/// Attempts that a pod start waits for are part of its trace. A pod that never becomes ready must not
/// fill the trace.
const MAX_TRACED_ATTEMPTS: u32 = 20;

/// The state of one probe.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    kind: ProbeKind,
    timing: ProbeTiming,
    /// The end of the initial delay.
    first_due: Timestamp,
    phase: u64,
    /// The current outcome; `None` for the initial one.
    outcome: Option<ProbeOutcome>,
    last_result: Option<ProbeOutcome>,
    /// Equal results in a row.
    run_length: u32,
    /// When the next attempt is due whose result counts.
    next_tick: Timestamp,
    due: Timestamp,
    retry_delay: Duration,
    /// Whether the attempt in flight counts.
    counts: bool,
    attempts: u32,
    /// There was a success, in this or a previous process instance.
    succeeded: bool,
}

impl Worker {
    /// A worker for a container that was started at `started_at`. `outcome` is the one reached by a
    /// previous process instance.
    pub(crate) fn new(
        kind: ProbeKind,
        timing: ProbeTiming,
        started_at: Timestamp,
        outcome: Option<ProbeOutcome>,
        phase: u64,
        now: Timestamp,
    ) -> Self {
        // A start in the future: the clock was set back since.
        let first_due = started_at.min(now) + timing.initial_delay;
        let retry_delay = timing.first_retry;
        let mut worker = Worker {
            kind,
            timing,
            first_due,
            phase,
            outcome,
            last_result: outcome,
            run_length: 0,
            next_tick: first_due,
            due: first_due,
            retry_delay,
            counts: true,
            attempts: 0,
            succeeded: outcome.is_some(),
        };
        worker.schedule_first(now);
        worker
    }

    /// Schedules the first attempt: at once for readiness and startup, which a pod's start waits for.
    pub(crate) fn schedule_first(&mut self, now: Timestamp) {
        let from = self.first_due.max(now);
        let awaited = self.kind != ProbeKind::Liveness && !self.succeeded;
        self.next_tick = if awaited {
            from
        } else {
            self.next_in_phase(from)
        };
        self.due = self.next_tick;
    }

    /// When the next attempt is due; `None` once the outcome is final.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let is_final = match self.kind {
            ProbeKind::Startup => self.outcome.is_some(),
            ProbeKind::Liveness => self.outcome == Some(ProbeOutcome::Failure),
            ProbeKind::Readiness => false,
        };
        (!is_final).then_some(self.due)
    }

    /// Whether a pod's start waits for the next attempt.
    pub(crate) fn is_awaited(&self) -> bool {
        self.kind != ProbeKind::Liveness && !self.succeeded && self.attempts <= MAX_TRACED_ATTEMPTS
    }

    /// Whether the attempt in flight counts: it is one that upstream would make, too.
    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    /// Starts an attempt.
    pub(crate) fn start_attempt(&mut self, now: Timestamp) {
        self.attempts = self.attempts.saturating_add(1);
        self.counts = now >= self.next_tick;
        // Skips ticks that passed during a long attempt or while the process was suspended.
        if self.counts {
            let missed = now.duration_since(self.next_tick).as_millis() / self.period_ms();
            let periods = u32::try_from(missed).unwrap_or(0).saturating_add(1);
            self.next_tick += self.timing.period.saturating_mul(periods);
        }
    }

    /// Completes the attempt in flight. Returns the change of the outcome, if any.
    pub(crate) fn complete_attempt(
        &mut self,
        output: ProbeOutput,
        now: Timestamp,
    ) -> Option<OutcomeChange> {
        let (outcome, message) = match output {
            ProbeOutput::Success => (ProbeOutcome::Success, String::new()),
            ProbeOutput::Warning(message) => (ProbeOutcome::Success, message),
            ProbeOutput::Failure(message) => (ProbeOutcome::Failure, message),
            ProbeOutput::Unknown(_) => {
                self.schedule_next(now);
                return None;
            }
        };
        if outcome == ProbeOutcome::Success && !self.succeeded {
            self.succeeded = true;
            self.next_tick = now + self.timing.period;
        }
        let change = (self.counts || outcome == ProbeOutcome::Success)
            .then(|| self.count(outcome))
            .flatten()
            .map(|run_length| OutcomeChange {
                outcome,
                run_length,
                message,
            });
        if change
            .as_ref()
            .is_some_and(|change| change.outcome == ProbeOutcome::Success)
        {
            self.next_tick = self.next_in_phase(now);
        }
        self.schedule_next(now);
        change
    }

    /// Counts a result. Returns the length of its run if the outcome changes.
    fn count(&mut self, result: ProbeOutcome) -> Option<u32> {
        self.run_length = if self.last_result == Some(result) {
            self.run_length.saturating_add(1)
        } else {
            1
        };
        self.last_result = Some(result);
        let threshold = match result {
            ProbeOutcome::Success => self.timing.success_threshold,
            ProbeOutcome::Failure => self.timing.failure_threshold,
        };
        let current = self.outcome.or(default_outcome(self.kind));
        if self.run_length < threshold || current == Some(result) {
            return None;
        }
        self.outcome = Some(result);
        Some(self.run_length)
    }

    fn schedule_next(&mut self, now: Timestamp) {
        if self.next_tick <= now {
            let missed = now.duration_since(self.next_tick).as_millis() / self.period_ms();
            let periods = u32::try_from(missed).unwrap_or(0).saturating_add(1);
            self.next_tick += self.timing.period.saturating_mul(periods);
        }
        self.due = self.next_tick;
        if self.kind == ProbeKind::Readiness && !self.succeeded {
            self.due = self.next_tick.min(now + self.retry_delay);
            self.retry_delay = self.retry_delay.saturating_mul(2).min(self.timing.period);
        }
    }

    /// The first time after `at` in this worker's phase.
    fn next_in_phase(&self, at: Timestamp) -> Timestamp {
        let period = self.period_ms();
        let phase = i128::from(self.phase).rem_euclid(period);
        let next = i128::from(at.as_millisecond()) + 1;
        let due = next + (phase - next).rem_euclid(period);
        let due = i64::try_from(due)
            .ok()
            .and_then(|ms| Timestamp::from_millisecond(ms).ok());
        due.unwrap_or(Timestamp::MAX)
    }

    fn period_ms(&self) -> i128 {
        i128::try_from(self.timing.period.as_millis())
            .unwrap_or(i128::MAX)
            .max(1)
    }
}

/// The outcome that need not be published: a container is alive until a liveness probe fails. "Not
/// ready" is published, because the agent that ran on this node before may have published "ready".
fn default_outcome(kind: ProbeKind) -> Option<ProbeOutcome> {
    (kind == ProbeKind::Liveness).then_some(ProbeOutcome::Success)
}

#[cfg(test)]
mod tests;
