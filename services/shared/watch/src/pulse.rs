//! The moments at which all processes of the machine do what they do regularly at rest. A wake-up costs
//! more than what it is for; at a common moment one serves all timers of a process, and mostly the
//! messages of its peers as well.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Between two pulses.
pub const PULSE: Duration = Duration::from_secs(15);
/// Between two heartbeats of an idle stream. A process that hangs is ended by its watchdog before one of
/// them is missed: they tell of what is alive and has lost the stream.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(2 * PULSE.as_secs());
/// What is nearer is left out: something was done just now.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The time until the next pulse: at least one second, at most [`PULSE`] and one second.
pub fn until_pulse() -> Duration {
    until_multiple_of(PULSE, now())
}

/// The time until the next heartbeat, at a pulse: at least one second, at most [`HEARTBEAT`] and one second.
pub(crate) fn until_heartbeat() -> Duration {
    until_multiple_of(HEARTBEAT, now())
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

/// `period` is in whole seconds.
fn until_multiple_of(period: Duration, now: Duration) -> Duration {
    let since = Duration::from_secs(now.as_secs() % period.as_secs());
    let wait = period - since - Duration::from_nanos(now.subsec_nanos().into());
    if wait < MIN_WAIT { wait + period } else { wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulses_are_at_multiples() {
        for (now, wait) in [
            (0, 15_000),
            (1, 14_999),
            (30_001, 14_999),
            (44_000, 1_000),
            (44_001, 15_999),
        ] {
            let (now, wait) = (Duration::from_millis(now), Duration::from_millis(wait));
            assert_eq!(until_multiple_of(PULSE, now), wait, "{now:?}");
        }
        let heartbeat = until_multiple_of(HEARTBEAT, Duration::from_secs(44));
        assert_eq!(heartbeat, Duration::from_secs(16), "the second pulse");
    }
}
