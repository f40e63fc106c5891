//! Back-off of failed steps.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polylet_model::constants::reason;
use polylet_schedule::BackoffPolicy;

use crate::core::step::{StepFailure, StepKey};

/// Back-off of most steps.
const DEFAULT: BackoffPolicy =
    BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(10));
/// Upstream's back-off of image pulls.
const IMAGE_PULL: BackoffPolicy =
    BackoffPolicy::new(Duration::from_secs(10), Duration::from_secs(300));
/// Interval for a step that waits for an API object. The watch ends it early; this is for a watch
/// that is lost.
const MISSING_OBJECT: Duration = Duration::from_secs(60);
/// Interval for an image with `imagePullPolicy: Never`.
const NEVER_PULL: Duration = Duration::from_secs(10);
/// Time for a sandbox call without a known outcome to take effect.
const UNKNOWN_SANDBOX: Duration = Duration::from_secs(2);
/// Interval while the runtime has reserved the name.
const NAME_RESERVED: Duration = Duration::from_millis(200);

/// When a step may be retried after `count` failures in a row.
pub(super) fn retry_at(
    key: &StepKey,
    count: u32,
    failure: &StepFailure,
    now: Timestamp,
) -> Timestamp {
    let delay = SignedDuration::try_from(delay(key, count, failure));
    let delay = delay.unwrap_or(SignedDuration::from_secs(10));
    now.checked_add(delay).unwrap_or(now)
}

fn delay(key: &StepKey, count: u32, failure: &StepFailure) -> Duration {
    match key {
        _ if failure.missing.is_some() => MISSING_OBJECT,
        StepKey::PullImage(_) if failure.permanent => IMAGE_PULL.max,
        StepKey::PullImage(_) if failure.reason == reason::ERR_IMAGE_NEVER_PULL => NEVER_PULL,
        StepKey::PullImage(_) => IMAGE_PULL.delay(count),
        StepKey::CreateSandbox if failure.outcome_unknown => UNKNOWN_SANDBOX,
        StepKey::CreateSandbox | StepKey::CreateContainer(_) | StepKey::StartContainer(_)
            if failure.name_reserved =>
        {
            NAME_RESERVED
        }
        StepKey::CreateContainer(_) if failure.image_missing => Duration::ZERO,
        _ => DEFAULT.delay(count),
    }
}
