//! When an event is told: people read events, pods and those who wait for them do not. What is
//! normal waits a moment, and while statuses are on their way a little longer, so that a pod that
//! starts has the node and the API server for itself. A warning goes at once.

use std::time::Duration;

use crate::core::bucket::Moment;

/// What is normal waits so long: a start is over by then, more often than not.
const PAUSE: Duration = Duration::from_millis(300);
/// And no longer than this, whatever is going on.
const LATEST: Duration = Duration::from_secs(10);

/// When the first of those that wait is told, heard at that moment. It goes with a warning behind
/// it, since they are told in order.
pub(crate) fn due(heard: Moment, warned: bool, busy: bool) -> Moment {
    match (warned, busy) {
        (true, _) => heard,
        (false, false) => heard + PAUSE,
        (false, true) => heard + LATEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_go_at_once_and_the_rest_when_there_is_time() {
        let heard = Moment::from_secs(10);
        assert_eq!(due(heard, true, true), heard);
        assert_eq!(due(heard, true, false), heard);
        assert_eq!(due(heard, false, false), heard + PAUSE);
        assert_eq!(due(heard, false, true), heard + LATEST);
    }
}
