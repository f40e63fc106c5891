//! When a pod's status is published.

use std::mem::take;

use jiff::{SignedDuration, Timestamp};
use polylet_wire::sync::v1::PodSync;

/// A pod that starts waits for one step after the other, each of them for milliseconds: what it waits for is
/// published only once it has waited this long.
const WAIT: SignedDuration = SignedDuration::from_secs(1);

/// What to do with a new status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishDecision {
    /// Publish it.
    Now,
    /// Publish it at this time, unless it changes before.
    At(Timestamp),
    /// Everybody knows it.
    Known,
}

/// Compares a status with the published one, from which it differs since then, or may. A cause alone,
/// without anything that it caused, is not published.
pub(crate) fn decide(
    published: Option<PodSync>,
    status: &mut PodSync,
    differs_since: Timestamp,
    now: Timestamp,
) -> PublishDecision {
    let Some(mut published) = published else {
        return PublishDecision::Now;
    };
    published.cause = None;
    let known = take(&mut published.waiting_for);
    let (cause, waiting_for) = (status.cause.take(), take(&mut status.waiting_for));
    let differs = published != *status;
    let waits_for_other = known != waiting_for;
    (status.cause, status.waiting_for) = (cause, waiting_for);
    if differs {
        return PublishDecision::Now;
    }
    if !waits_for_other {
        return PublishDecision::Known;
    }
    match differs_since.checked_add(WAIT) {
        Ok(at) if at > now => PublishDecision::At(at),
        _ => PublishDecision::Now,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use polylet_wire::common::v1::Cause;
    use polylet_wire::sync::v1::WaitingFor;

    use super::*;

    fn status(digest: &str, step: &str, waiting_for: &str) -> PodSync {
        PodSync {
            digest_synced: digest.to_owned(),
            cause: Some(Cause {
                traceparent: step.to_owned(),
                ..Cause::default()
            }),
            waiting_for: vec![WaitingFor {
                what: waiting_for.to_owned(),
                ..WaitingFor::default()
            }],
            ..PodSync::default()
        }
    }

    #[test]
    fn what_a_pod_waits_for_is_published_when_it_has_waited() {
        let at = |ms| Timestamp::UNIX_EPOCH + Duration::from_millis(ms);
        let published = || Some(status("a", "1", "sandbox"));
        for (name, published, mut next, since, now, expected) in [
            (
                "first",
                None,
                status("a", "1", "x"),
                0,
                0,
                PublishDecision::Now,
            ),
            (
                "same",
                published(),
                status("a", "1", "sandbox"),
                0,
                2000,
                PublishDecision::Known,
            ),
            (
                "cause",
                published(),
                status("a", "2", "sandbox"),
                0,
                2000,
                PublishDecision::Known,
            ),
            (
                "digest",
                published(),
                status("b", "2", "sandbox"),
                0,
                0,
                PublishDecision::Now,
            ),
            (
                "other step",
                published(),
                status("a", "2", "image"),
                5,
                5,
                PublishDecision::At(at(1005)),
            ),
            (
                "soon",
                published(),
                status("a", "2", "image"),
                0,
                5,
                PublishDecision::At(at(1000)),
            ),
            (
                "waited",
                published(),
                status("a", "2", "image"),
                0,
                1000,
                PublishDecision::Now,
            ),
        ] {
            let before = next.clone();
            let outcome = decide(published, &mut next, at(since), at(now));
            assert_eq!(outcome, expected, "{name}");
            assert_eq!(next, before, "{name}");
        }
    }
}
