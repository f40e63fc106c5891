//! How long a walk may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The steps and the time that a walk may take. An entry is a step, and so is a directory's end.
#[derive(Debug, Clone, Default)]
pub struct Budget {
    steps: Option<u64>,
    until: Option<Instant>,
    stop: Option<Arc<AtomicBool>>,
}

/// How far a walk got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// To its end.
    Finished,
    /// Until its budget was exhausted; there is more.
    Paused,
}

impl Budget {
    /// No limit at all.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// At most this many steps.
    pub fn with_steps(self, steps: u64) -> Self {
        let steps = Some(steps);
        Self { steps, ..self }
    }

    /// Not longer than until then.
    pub fn with_deadline(self, until: Instant) -> Self {
        let until = Some(until);
        Self { until, ..self }
    }

    /// Only while this is unset.
    pub fn with_stop(self, stop: Arc<AtomicBool>) -> Self {
        let stop = Some(stop);
        Self { stop, ..self }
    }

    /// Takes one step; whether there was one left.
    pub(crate) fn take(&mut self) -> bool {
        if let Some(steps) = &mut self.steps {
            match steps.checked_sub(1) {
                Some(left) => *steps = left,
                None => return false,
            }
        }
        let is_stopped = |stop: &Arc<AtomicBool>| stop.load(Ordering::Relaxed);
        !self.stop.as_ref().is_some_and(is_stopped)
            && self.until.is_none_or(|until| Instant::now() < until)
    }
}
