//! Reports of pleg and volume-manager, with the effects of later steps applied on top.

use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::{SignedDuration, Timestamp};

use crate::core::runtime_state::{ContainerState, PendingEffect, PodRuntimeState};
use crate::core::step::{Step, StepKey, StepOutcome};
use crate::core::view::{PendingRestart, PodSyncStatus, StepBackoff};
use crate::core::volume_state::ObservedVolume;

/// Delay before a stop is repeated that the runtime does not confirm.
const UNCONFIRMED_STOP_DELAY: SignedDuration = SignedDuration::from_millis(500);

/// Reports that overtake each other are not further apart than this.
const MAX_REORDERING: SignedDuration = SignedDuration::from_secs(5);

/// What became of a report from pleg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReportOutcome {
    /// It is the last one now.
    Applied,
    /// Not applied: the last one has overtaken it.
    Overtaken,
    /// Not applied: by its time it is older, but the clock may have been set back before it. Its content is that
    /// of the last one.
    Repeated,
    /// The same with other content: pleg is to be asked.
    Conflicting,
}

/// Delays the repetition of a stop that succeeded while the container is still reported as running.
pub(super) fn delay_unconfirmed_stop(
    pod: &mut PodSyncStatus,
    key: StepKey,
    now: Timestamp,
    id: &str,
) {
    let container = pod.observed.as_ref().and_then(|o| o.container(id));
    if !container.is_some_and(|container| container.may_run()) {
        return;
    }
    let retry_at = now.checked_add(UNCONFIRMED_STOP_DELAY).unwrap_or(now);
    let backoff = StepBackoff {
        count: 1,
        reason: String::new(),
        message: "stop succeeded; container still reported as running".to_owned(),
        image: String::new(),
        first_failed_at: now,
        last_failed_at: now,
        retry_at,
    };
    pod.failures.insert(key, backoff);
}

pub(super) fn apply_effect(pod: &mut PodSyncStatus, effect: PendingEffect) {
    pod.effect_count += 1;
    pod.pending_effects.push((pod.effect_count, effect));
    recompute(pod);
}

/// Applies a report from pleg's stream. It may be older than the last steps, whose effects stay on
/// top.
///
/// Each conflicting report is a change that pleg has published, and a refresh publishes only what has
/// changed since: refreshes after conflicting reports come to an end. States that are sent again, as
/// after a reconnection, do not conflict.
pub fn on_observed(
    pod: &mut PodSyncStatus,
    reported: PodRuntimeState,
    now: Timestamp,
) -> ReportOutcome {
    let last = &pod.last_reported;
    if reported.observed_at < last.observed_at {
        if !is_order_unknown(last, &reported, now) {
            return ReportOutcome::Overtaken;
        }
        return if reported.has_same_content(last) {
            ReportOutcome::Repeated
        } else {
            ReportOutcome::Conflicting
        };
    }
    pod.last_reported = Rc::new(reported);
    recompute(pod);
    ReportOutcome::Applied
}

/// The runtime has nothing of a pod of which it has not reported yet.
pub fn on_absent(pod: &mut PodSyncStatus) {
    pod.last_reported = Rc::new(PodRuntimeState::default());
    recompute(pod);
}

/// Whether the times of two states do not tell which is the newer one, as the clock was set back in between: the time
/// of one is still to come, or they are further apart than reports that overtake each other.
fn is_order_unknown(newer: &PodRuntimeState, older: &PodRuntimeState, now: Timestamp) -> bool {
    let times = newer.observed_at.zip(older.observed_at);
    times.is_some_and(|(newer, older)| newer > now || newer.duration_since(older) > MAX_REORDERING)
}

/// Applies pleg's response to a refresh that was requested after `effects` effects, when the last
/// report was of time `known`: it is newer than that report, whatever the clock shows. True when the
/// refresh must be repeated: another report was applied meanwhile, and either may be the newer one.
#[must_use]
pub fn on_refreshed(
    pod: &mut PodSyncStatus,
    reported: PodRuntimeState,
    effects: u64,
    known: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    let last = &pod.last_reported;
    let is_overtaken = last.observed_at != known && reported.observed_at < last.observed_at;
    if is_overtaken && is_order_unknown(last, &reported, now) && !reported.has_same_content(last) {
        return true;
    }
    pod.awaits_inspection = false;
    pod.pending_effects.retain(|(number, _)| *number > effects);
    // A pod at rest has none.
    pod.pending_effects.shrink_to_fit();
    if !is_overtaken {
        pod.last_reported = Rc::new(reported);
    }
    recompute(pod);
    false
}

fn recompute(pod: &mut PodSyncStatus) {
    let mut observed = Rc::clone(&pod.last_reported);
    for (_, effect) in &pod.pending_effects {
        Rc::make_mut(&mut observed).apply(effect);
    }
    // An incomplete report may lack containers that exist, and so may one from before this process.
    if !observed.is_partial() && !pod.awaits_inspection {
        pod.lifecycle.retain(|id| observed.container(id).is_some());
        let restarted = |name: &String, restart: &PendingRestart| {
            let newest = observed.newest_container(name);
            newest.is_some_and(|newest| newest.attempt >= restart.attempt)
        };
        let restarts = &mut pod.lifecycle.pending_restarts;
        restarts.retain(|name, restart| !restarted(name, restart));
    }
    record_previous_exits(&mut pod.previous_exits, &observed);
    pod.stopped_sandboxes
        .retain(|id| observed.sandbox(id).is_some());
    if !observed.is_empty() && pod.cleaned_up_at.take().is_some() {
        // A call that was given up has taken effect late: its result is removed as well.
        pod.cgroup_removed = false;
        pod.files_removed = false;
    }
    pod.observed = Some(observed);
}

fn record_previous_exits(exits: &mut BTreeMap<String, Timestamp>, observed: &PodRuntimeState) {
    exits.retain(|id, _| observed.container(id).is_some());
    for container in &observed.containers {
        let before = observed.containers.iter().filter(|other| {
            other.name == container.name
                && other.state == ContainerState::Exited
                && other.attempt < container.attempt
        });
        let last = before.max_by_key(|other| other.attempt);
        if let Some(exited_at) = last.and_then(|last| last.finished_at) {
            exits.insert(container.id.clone(), exited_at);
        }
    }
}

/// Requires a new declaration of the volumes: volume-manager has restarted, or the declared data has
/// changed.
pub fn redeclare_volumes(pod: &mut PodSyncStatus) {
    let calls = [StepKey::ApplyVolumes, StepKey::ReleaseVolumes];
    let volumes = &mut pod.volumes;
    volumes.declared_digest = None;
    volumes.released = false;
    pod.sub_paths.clear();
    volumes.in_flight_is_stale = calls.iter().any(|key| pod.in_flight.contains_key(key));
}

/// Applies a report from volume-manager's stream.
pub fn on_volumes(pod: &mut PodSyncStatus, sequence: u64, reported: Vec<ObservedVolume>) {
    let known = pod.volumes.reported.as_ref();
    if known.is_none_or(|(known, _)| sequence >= *known) {
        pod.volumes.reported = Some((sequence, reported.into()));
    }
}

/// Applies the response to a declaration or release of volumes.
pub(super) fn on_volume_call(
    pod: &mut PodSyncStatus,
    step: &Step,
    outcome: StepOutcome,
    now: Timestamp,
) {
    let volumes = &mut pod.volumes;
    match (step, outcome) {
        (
            Step::ApplyVolumes,
            StepOutcome::VolumesDeclared {
                digest,
                sequence,
                volumes: reported,
            },
        ) => {
            volumes.declared_digest = Some(digest);
            volumes.released = false;
            volumes.declared_sequence = sequence;
            // The stream may have reported this declaration already, in a newer state.
            let known = volumes.reported.as_ref();
            if known.is_none_or(|(known, _)| *known < sequence) {
                volumes.reported = Some((sequence, reported.into()));
            }
        }
        (Step::ReleaseVolumes, outcome) => {
            volumes.released = true;
            volumes.released_at = Some(now);
            if outcome == (StepOutcome::VolumesReleased { gone: true }) {
                volumes.reported = None;
            }
        }
        _ => {}
    }
}
