//! The clock of probes.

use jiff::Timestamp;
use tokio::time::Instant;

/// A clock that starts at the wall clock and then follows the monotonic clock: setting the wall clock
/// must neither pause probes nor make all of them due.
pub(crate) struct ProbeClock {
    instant: Instant,
    time: Timestamp,
}

impl ProbeClock {
    pub(crate) fn new() -> Self {
        ProbeClock {
            instant: Instant::now(),
            time: Timestamp::now(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.time + self.instant.elapsed()
    }

    /// A past time of the wall clock on this clock, which is as long ago.
    pub(crate) fn wall_clock_to_probe_time(&self, at: Timestamp) -> Timestamp {
        convert(self.now(), Timestamp::now(), at)
    }

    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        let ahead = at.duration_since(self.time);
        self.instant + std::time::Duration::try_from(ahead).unwrap_or_default()
    }
}

/// A time in the future was recorded before the wall clock was set back: it counts as now.
fn convert(now: Timestamp, wall_clock: Timestamp, at: Timestamp) -> Timestamp {
    let ago = std::time::Duration::try_from(wall_clock.duration_since(at)).unwrap_or_default();
    now.checked_sub(ago).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_are_as_long_ago_as_on_the_wall_clock() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        // The probe clock, the wall clock, and a start on the wall clock.
        for (now, wall_clock, started, expected) in [
            (100, 100, 40, 40),
            // Set back by an hour before the container started.
            (4000, 400, 380, 3980),
            // Set back by an hour after it.
            (4000, 400, 3900, 4000),
            // Set forward by an hour before it.
            (100, 3700, 3690, 90),
        ] {
            assert_eq!(convert(at(now), at(wall_clock), at(started)), at(expected));
        }
        let earliest = convert(at(0), Timestamp::MAX, Timestamp::MIN);
        assert_eq!(earliest, Timestamp::MIN);
    }
}
