//! Steps of the wall clock, measured by the monotonic clock.
//!
//! [`polylet_kit::clock`] wakes sleepers after a step; times that were derived from the clock before it
//! are moved by the step ([`crate::core::clock_step`]).

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

/// A smaller difference is no step: the two clocks are read one after the other.
const JITTER: SignedDuration = SignedDuration::from_millis(500);

/// The last reading of both clocks.
#[derive(Debug, Default)]
pub(crate) struct ClockMonitor {
    last: Option<(Timestamp, Instant)>,
}

impl ClockMonitor {
    /// By how much the wall clock was set since the last call.
    pub(crate) fn step(&mut self, wall: Timestamp, monotonic: Instant) -> Option<SignedDuration> {
        let (last_wall, last_monotonic) = self.last.replace((wall, monotonic))?;
        let passed = monotonic.saturating_duration_since(last_monotonic);
        let passed = SignedDuration::try_from(passed).ok()?;
        let step = wall.duration_since(last_wall).checked_sub(passed)?;
        (step.abs() > JITTER).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_step_is_what_the_wall_clock_moves_more_than_the_monotonic_one() {
        let mut clock = ClockMonitor::default();
        let start = Instant::now();
        for (wall, monotonic, step) in [
            (0, 0, None),
            (70_000, 70_000, None),
            (70_400, 70_000, None),
            (80_000, 80_000, None),
            (3_690_000, 90_000, Some(3_600)),
            (3_700_000, 100_000, None),
            (110_000, 110_000, Some(-3_600)),
            (120_000, 120_000, None),
        ] {
            let wall = Timestamp::from_millisecond(1_800_000_000_000 + wall).unwrap();
            let monotonic = start + Duration::from_millis(monotonic);
            let measured = clock.step(wall, monotonic);
            assert_eq!(measured, step.map(SignedDuration::from_secs), "{wall}");
        }
    }
}
