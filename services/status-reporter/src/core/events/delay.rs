//! When an event is sent. Normal events wait a moment, and longer while status patches are pending or in
//! flight, so that pods that start have the node and the API server for themselves: only users read
//! events. Patches that are repeated do not count: that may go on without end. Warnings are sent at once.

use std::time::Duration;

/// Delay of normal events; most pod starts are over by then.
const DELAY: Duration = Duration::from_millis(300);
/// Delay of normal events while status patches are pending or in flight: a hundred starts at once are over by then.
const BUSY_DELAY: Duration = Duration::from_secs(20);
/// Length of the queue, as upstream; further notices are dropped.
pub(crate) const MAX_QUEUED: usize = 1000;
/// With more events than this in the queue, none waits, so that none is dropped for it.
const MAX_WAITING: usize = MAX_QUEUED / 2;

/// When the first of `queued` events, received at `received`, is sent. It goes ahead of a warning behind it,
/// as events are sent in order.
pub(crate) fn due(received: Duration, queued: usize, has_warning: bool, busy: bool) -> Duration {
    match (has_warning || queued > MAX_WAITING, busy) {
        (true, _) => received,
        (false, false) => received + DELAY,
        (false, true) => received + BUSY_DELAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_sent_at_once_and_normal_events_later() {
        let received = Duration::from_secs(10);
        assert_eq!(due(received, 2, true, true), received);
        assert_eq!(due(received, 2, true, false), received);
        assert_eq!(due(received, 2, false, false), received + DELAY);
        assert_eq!(due(received, 2, false, true), received + BUSY_DELAY);
    }

    #[test]
    fn a_long_queue_does_not_wait() {
        let received = Duration::from_secs(10);
        assert_eq!(
            due(received, MAX_WAITING, false, true),
            received + BUSY_DELAY
        );
        assert_eq!(due(received, MAX_WAITING + 1, false, true), received);
    }
}
