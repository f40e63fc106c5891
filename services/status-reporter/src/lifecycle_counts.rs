//! What is counted about the starts and ends of pods.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::PodUid;
use polylet_model::constants::phase;
use polylet_wire::common::v1::Cause;
use polylet_wire::time;

use crate::core::pod_start::{PodStarts, init_container_time};
use crate::core::published::PublishedStatus;
use crate::core::terminations;
use crate::metrics;
use crate::state::State;

/// First sights of pods, and starts in progress.
#[derive(Default)]
pub(crate) struct LifecycleCounts {
    first_seen: BTreeMap<PodUid, Timestamp>,
    starts: PodStarts,
}

impl LifecycleCounts {
    /// Handles a pod of a source; pod-config names the time of its first sight as that of the cause.
    pub(crate) fn on_pod(&mut self, uid: &PodUid, cause: Option<&Cause>) {
        if !self.first_seen.contains_key(uid) {
            let seen = cause.and_then(|cause| time::from_wire_opt(cause.observed_at.as_ref()));
            let seen = seen.unwrap_or_else(Timestamp::now);
            self.first_seen.insert(uid.clone(), seen);
        }
    }

    /// Handles the status of a pod at the API server, as the watch delivers it.
    pub(crate) fn on_watched(&mut self, uid: &PodUid, state: &State) {
        let empty = PodStatus::default();
        let status = state.api_status(uid).map_or(&empty, Deref::deref);
        self.starts.on_watched(uid, status, Timestamp::now());
        self.count_ended(uid, state);
    }

    /// Handles a status that was patched.
    pub(crate) fn on_patched(&mut self, uid: &str, status: &PodStatus, state: &State) {
        self.starts.on_patched(uid, status);
        self.count_ended(uid, state);
    }

    fn count_ended(&mut self, uid: &str, state: &State) {
        let Some(manifest) = state.desired_manifest(uid) else {
            return;
        };
        let containers = state
            .runtime_state(uid)
            .map(|state| state.containers.as_slice());
        let pulls = state.progress(uid).map(|progress| progress.image_pull_time);
        let init_containers = init_container_time(manifest, containers.unwrap_or_default());
        let excluded = pulls.unwrap_or_default() + init_containers;
        if let Some(start) = self.starts.take_ended(uid, manifest, excluded) {
            metrics::count_ended_start(start);
        }
    }

    /// Handles a published status; `before` is the last one with a decided admission.
    pub(crate) fn on_published(
        &mut self,
        uid: &str,
        before: Option<&PodStatus>,
        published: &PublishedStatus,
    ) {
        if published.unadmitted {
            return;
        }
        metrics::count_terminations(&terminations::between(before, &published.status));
        if counts_as_start(before, &published.status)
            && let Some(seen) = self.first_seen.get(uid)
        {
            // Negative if the clock was set back meanwhile.
            let since = Duration::try_from(Timestamp::now().duration_since(*seen));
            metrics::count_start(since.unwrap_or_default());
        }
    }

    /// Forgets a pod.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.first_seen.remove(uid);
        self.starts.remove(uid);
    }
}

/// Upstream counts the first status of a pod, and the one with which it begins to run; none that is
/// terminal.
fn counts_as_start(before: Option<&PodStatus>, now: &PodStatus) -> bool {
    let is = |status: &PodStatus, phase: &str| status.phase.as_deref() == Some(phase);
    if is(now, phase::SUCCEEDED) || is(now, phase::FAILED) {
        return false;
    }
    before.is_none_or(|before| is(before, phase::PENDING) && is(now, phase::RUNNING))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_status_and_the_first_run_count() {
        let status = |phase: &str| PodStatus {
            phase: Some(phase.to_owned()),
            ..PodStatus::default()
        };
        let (pending, running) = (status("Pending"), status("Running"));
        for (before, now, expected) in [
            (None, &pending, true),
            (Some(&pending), &pending, false),
            (Some(&pending), &running, true),
            (Some(&running), &running, false),
            (None, &status("Failed"), false),
        ] {
            assert_eq!(counts_as_start(before, now), expected, "{before:?} {now:?}");
        }
    }
}
