//! The moments at which all processes of the machine do what they do regularly at rest. A wake-up costs
//! more than what it is for; at a common moment one serves all timers of a process, and mostly the
//! messages of its peers as well.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Between two pulses.
pub const PULSE: Duration = Duration::from_secs(15);
/// A pulse that is nearer is left out: something was done just now.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The time until the next pulse: at least one second, at most [`PULSE`] and one second.
pub fn until_pulse() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    until_pulse_from(Duration::new(seconds, nanoseconds))
}

fn until_pulse_from(now: Duration) -> Duration {
    let since = Duration::from_secs(now.as_secs() % PULSE.as_secs());
    let wait = PULSE - since - Duration::from_nanos(now.subsec_nanos().into());
    if wait < MIN_WAIT { wait + PULSE } else { wait }
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
            assert_eq!(until_pulse_from(now), wait, "{now:?}");
        }
    }
}
