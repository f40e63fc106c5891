//! What the runtime and volume-manager are seen to hold, with what was done since on top.

use jiff::{SignedDuration, Timestamp};

use super::super::observed::{Observed, Overlay};
use super::super::reset::Reset;
use super::super::step::StepKey;
use super::super::view::{Failure, Pod, SeenVolume};

/// Takes a stop with a grain of salt: where the runtime still shows the container
/// running, it is tried again after a pause and not at once.
pub(super) fn doubt(pod: &mut Pod, key: StepKey, now: Timestamp, id: &str) {
    if !pod
        .observed
        .as_ref()
        .is_some_and(|o| o.container(id).is_some_and(|c| c.may_run()))
    {
        return;
    }
    let message = "the runtime says stopped and still shows it running".to_owned();
    let retry_at = now
        .checked_add(SignedDuration::from_millis(500))
        .unwrap_or(now);
    let failure = Failure {
        count: 1,
        reason: String::new(),
        message,
        image: String::new(),
        since: now,
        at: now,
        retry_at,
    };
    pod.failures.insert(key, failure);
}

pub(super) fn act(pod: &mut Pod, overlay: Overlay) {
    pod.acts += 1;
    pod.overlays.push((pod.acts, overlay));
    recompute(pod);
}

/// The stream of the runtime's states said something. It may be older than our
/// last acts, which therefore stay on top. True when the runtime is to be asked: nobody can tell
/// whether the word is so much older than what is known, or the clock was set back.
#[must_use]
pub fn observed(pod: &mut Pod, state: Observed) -> bool {
    if state.at < pod.base.at {
        return much_older(pod.base.at, state.at);
    }
    pod.base = state;
    recompute(pod);
    false
}

/// Whether two words of the runtime are further apart than words that pass each other usually are.
fn much_older(known: Option<Timestamp>, said: Option<Timestamp>) -> bool {
    known
        .zip(said)
        .is_some_and(|(known, said)| known.duration_since(said) > SignedDuration::from_secs(5))
}

/// The runtime was asked for this pod after so many of our acts, when its last word was of `known`:
/// the answer is newer than that, whatever the clock says. True when it is to be asked again.
#[must_use]
pub fn refreshed(pod: &mut Pod, state: Observed, acts: u64, known: Option<Timestamp>) -> bool {
    let heard_since = pod.base.at != known;
    if heard_since && state.at < pod.base.at && much_older(pod.base.at, state.at) {
        return true;
    }
    pod.overlays.retain(|(number, _)| *number > acts);
    if !heard_since || state.at >= pod.base.at {
        pod.base = state;
    }
    recompute(pod);
    false
}

fn recompute(pod: &mut Pod) {
    let mut now = pod.base.clone();
    for (_, overlay) in &pod.overlays {
        now.overlay(overlay);
    }
    let held = |id: &String| now.container(id).is_some();
    // What was not told of may be there all the same.
    if !now.is_doubtful() {
        pod.lifecycle.retain(held);
        let made = |name: &String| now.newest(name).map(|newest| newest.attempt);
        let begun = |name: &String, reset: &Reset| made(name) >= Some(reset.attempt);
        pod.lifecycle
            .resets
            .retain(|name, reset| !begun(name, reset));
    }
    pod.stopped_sandboxes.retain(|id| now.sandbox(id).is_some());
    if !now.is_empty() && pod.reclaimed_at.take().is_some() {
        // A call that was thought lost came to its end after all: what it made goes as well.
        pod.cgroup_gone = false;
        pod.files_gone = false;
    }
    pod.observed = Some(now);
}

/// Volume-manager has to hear it again: it may be another life of it, which has heard nothing yet,
/// or what it heard is no longer so.
pub fn volumes_anew(pod: &mut Pod) {
    let asking = [StepKey::Volumes, StepKey::ReleaseVolumes];
    let volumes = &mut pod.volumes;
    volumes.declared = None;
    volumes.released = false;
    volumes.void = asking.iter().any(|key| pod.flights.contains_key(key));
}

/// Volume-manager said where the pod's volumes stand.
pub fn volumes_heard(pod: &mut Pod, sequence: u64, seen: Vec<SeenVolume>) {
    let known = pod.volumes.seen.as_ref().map_or(0, |(known, _)| *known);
    if pod.volumes.seen.is_none() || sequence >= known {
        pod.volumes.seen = Some((sequence, seen));
    }
}
