//! When the event of a blocked volume is repeated.

use std::time::Duration;

use polylet_schedule::BackoffPolicy;

use super::blocked::Blocked;

/// Upstream's delays between attempts to mount a volume.
const RETRY: BackoffPolicy =
    BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(122));
/// The time between two syncs of a pod that fail: upstream waits 10 s to 15 s.
const SYNC_PERIOD: Duration = Duration::from_millis(12_500);
/// How long upstream's sync of a pod waits for volumes, with the time until the next one.
const TIMEOUT_PERIOD: Duration = Duration::from_millis(123_000 + 12_500);

/// When upstream emits the event of a blocked volume again. That of a failed operation is emitted
/// with each failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningRepeat {
    /// With each attempt to mount it.
    Retry,
    /// With each sync of the pod.
    Sync,
    /// Each time that a sync of the pod has waited in vain.
    Timeout,
}

impl WarningRepeat {
    /// For a volume that is blocked.
    pub(super) fn new(blocked: &Blocked) -> Option<Self> {
        match blocked {
            Blocked::Waiting(_) | Blocked::Imminent(_) => None,
            Blocked::Unresolved(_) => Some(Self::Sync),
            Blocked::NotAttached(_) | Blocked::LimitReached { .. } => Some(Self::Timeout),
            Blocked::Missing(_)
            | Blocked::MissingFor(..)
            | Blocked::Failed(_)
            | Blocked::FailedIn(..) => Some(Self::Retry),
        }
    }

    /// The delay after the nth event, counted from one.
    pub(super) fn delay(self, nth: u32) -> Duration {
        match self {
            Self::Retry => RETRY.delay(nth),
            Self::Sync => SYNC_PERIOD,
            Self::Timeout => TIMEOUT_PERIOD,
        }
    }
}
