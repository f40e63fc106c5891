//! The clock of probes.

use jiff::Timestamp;
use tokio::time::Instant;

/// A clock that begins with the node's and never jumps: a set clock must neither stop probes nor
/// make all of them due.
pub(crate) struct Clock {
    instant: Instant,
    time: Timestamp,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock {
            instant: Instant::now(),
            time: Timestamp::now(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.time + self.instant.elapsed()
    }

    /// A past moment of the node's clock, on this one. Others read the node's clock as it is: what
    /// both agree on is how long ago it was.
    pub(crate) fn own(&self, moment: Timestamp) -> Timestamp {
        own(self.now(), Timestamp::now(), moment)
    }

    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        let ahead = at.duration_since(self.time);
        self.instant + std::time::Duration::try_from(ahead).unwrap_or_default()
    }
}

/// A moment that is still to come was set before the clock was set back: it was no earlier than now.
fn own(now: Timestamp, node: Timestamp, moment: Timestamp) -> Timestamp {
    let ago = std::time::Duration::try_from(node.duration_since(moment)).unwrap_or_default();
    now.checked_sub(ago).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_as_long_ago_as_the_nodes_clock_says() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        // Our clock, the node's clock, and a start on the node's clock.
        for (now, node, started, expected) in [
            (100, 100, 40, 40),
            // Set back by an hour, before the container started.
            (4000, 400, 380, 3980),
            // Set back by an hour, after it.
            (4000, 400, 3900, 4000),
            // Set forward by an hour, before it.
            (100, 3700, 3690, 90),
        ] {
            assert_eq!(own(at(now), at(node), at(started)), at(expected));
        }
        assert_eq!(own(at(0), Timestamp::MAX, Timestamp::MIN), Timestamp::MIN);
    }
}
