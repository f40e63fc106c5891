//! When an event is sent. Normal events wait a moment, and longer while status patches are in flight,
//! so that a pod that starts has the node and the API server for itself: only users read
//! events. Warnings are sent at once.

use std::time::Duration;

/// Delay of normal events; most pod starts are over by then.
const DELAY: Duration = Duration::from_millis(300);
/// Delay of normal events while status patches are in flight.
const BUSY_DELAY: Duration = Duration::from_secs(10);

/// When the first queued event, received at `received`, is sent. It goes ahead of a warning behind it,
/// as events are sent in order.
pub(crate) fn due(received: Duration, has_warning: bool, busy: bool) -> Duration {
    match (has_warning, busy) {
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
        assert_eq!(due(received, true, true), received);
        assert_eq!(due(received, true, false), received);
        assert_eq!(due(received, false, false), received + DELAY);
        assert_eq!(due(received, false, true), received + BUSY_DELAY);
    }
}
