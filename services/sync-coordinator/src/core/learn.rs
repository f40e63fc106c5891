//! What became of a step, and what was heard, taken into the pod's state.

mod seen;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polylet_model::constants::reason;
use polylet_model::restart::BackOff;

use seen::{act, doubt};
pub use seen::{observed, refreshed, volumes_anew, volumes_heard};

use super::hooks::PostStart;
use super::observed::{Overlay, SeenContainer, SeenSandbox};
use super::plan::{Phase, Plan};
use super::resize::{self, Verdict};
use super::step::{Step, StepKey};
use super::view::{Failure, Flight, Image, Pod, SeenVolume};

/// What became of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Done, and nothing to tell.
    Done,
    /// A sandbox stands.
    Sandbox(SeenSandbox),
    /// The image is on the node.
    Image {
        /// The manifest's word for it.
        image: String,
        /// The runtime's reference.
        image_ref: String,
    },
    /// A container was made.
    Created(SeenContainer),
    /// Volumes were declared.
    Declared {
        /// The manifest's digest.
        digest: String,
        /// The declaration's number.
        sequence: u64,
        /// What volume-manager answered.
        seen: Vec<SeenVolume>,
    },
    /// Volumes were released; whether nothing of them is left already.
    Released {
        /// It is so.
        gone: bool,
    },
    /// A hook came to a bad end; upstream's words.
    HookFailed(String),
    /// It went wrong.
    Failed(Trouble),
    /// Nobody needs it any more.
    Cancelled,
}

/// How a step went wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trouble {
    /// The container's waiting reason, or another short word.
    pub reason: String,
    /// What went wrong.
    pub message: String,
    /// The call may still come to its end in the runtime.
    pub unknown: bool,
    /// The runtime holds the name for another call.
    pub reserved: bool,
    /// The image is not there after all.
    pub image_missing: bool,
    /// The image it was about, as the manifest says it; empty of other steps than pulls.
    pub image: String,
    /// No other answer is to be expected soon.
    pub lasting: bool,
    /// Volume-manager believes another declarer.
    pub followed: bool,
    /// The object that it lacks; once that is there it is tried again at once.
    pub lacking: Option<Box<Lacking>>,
}

/// An object without which a step fails.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lacking {
    /// `ConfigMap` or `Secret`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// It is the cluster's; otherwise it lies beside local manifests.
    pub of_cluster: bool,
    /// It is there, and something in it is missing.
    pub there: bool,
}

/// What a step failed for has changed: it is tried again at once.
pub fn retry(pod: &mut Pod, key: &StepKey, now: Timestamp) {
    if let Some(failure) = pod.failures.get_mut(key) {
        failure.retry_at = now;
    }
}

/// Steps of a plan are now under way.
pub fn began(pod: &mut Pod, plan: &Plan, now: Timestamp) {
    for step in &plan.steps {
        if let Step::StartContainer { container, id, .. } = step
            && has_post_start(pod, container)
        {
            // Known before the start: should this process die in between, the hook is not lost.
            pod.lifecycle.starts.insert(id.clone(), PostStart::Due);
        }
        // From here on it is let in: what is written down is what it asks for now.
        if matches!(step, Step::Journal) && pod.journal.terminal.is_none() {
            let demand = pod.wanted.as_ref().map(|w| Arc::clone(&w.demand));
            pod.journal.demand = pod.journal.demand.take().or(demand);
            let allocation = pod.wanted.as_ref().map(|w| Arc::clone(&w.allocation));
            pod.journal.allocated = pod.journal.allocated.take().or(allocation);
        }
        pod.flights.insert(
            step.key(),
            Flight {
                step: step.clone(),
                since: now,
            },
        );
    }
    let unsure = plan.unsure_until.is_some();
    pod.unsure_since = unsure.then(|| pod.unsure_since.unwrap_or(now));
    let pending = matches!(plan.resize, Verdict::Pending { .. });
    pod.resize_since = pending.then(|| pod.resize_since.unwrap_or(now));
    pod.resizing_since = resize::since(pod.resizing_since, plan, now);
    for (id, stop) in &plan.stops {
        pod.lifecycle.stops.insert(id.clone(), *stop);
    }
    if plan.phase == Phase::Terminating && pod.wanted.is_none() {
        // Should a source want it again, it begins anew when all of this is gone.
        pod.leaving = true;
    }
    for (name, reset) in &plan.resets {
        pod.lifecycle.resets.insert(name.clone(), *reset);
    }
    match plan.phase {
        Phase::Reclaimed if pod.reclaimed_at.is_none() => pod.reclaimed_at = Some(now),
        _ => {}
    }
}

fn has_post_start(pod: &Pod, container: &str) -> bool {
    let wanted = pod.wanted.as_ref();
    wanted
        .and_then(|wanted| wanted.container(container))
        .is_some_and(|container| container.post_start.is_some())
}

/// Whether the end of a declaration says that volume-manager believes another declarer than the
/// one that this process is now.
pub fn is_followed(pod: &Pod, outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(trouble) if trouble.followed) && !pod.volumes.void
}

/// A step has come to its end.
pub fn ended(pod: &mut Pod, key: &StepKey, outcome: Outcome, now: Timestamp) {
    let Some(Flight { step, .. }) = pod.flights.remove(key) else {
        return;
    };
    let declares = matches!(step, Step::ApplyVolumes | Step::ReleaseVolumes);
    let void = declares && std::mem::take(&mut pod.volumes.void);
    match outcome {
        _ if void => {}
        // Another name, and not a later moment, makes it good.
        Outcome::Failed(trouble) if trouble.followed => {}
        Outcome::Failed(trouble) => failed(pod, &step, trouble, now),
        Outcome::Cancelled => {}
        done => {
            pod.failures.remove(key);
            succeeded(pod, step, done, now);
        }
    }
}

fn succeeded(pod: &mut Pod, step: Step, outcome: Outcome, now: Timestamp) {
    match (step, outcome) {
        (Step::Journal, _) => pod.journalled = true,
        (Step::Decide(terminal), _) => {
            pod.journal.terminal = Some(terminal);
            pod.journalled = true;
        }
        (step @ Step::Allocate { .. }, _) => {
            pod.journal = pod.journal.after(&step);
            pod.journalled = true;
            pod.failures.remove(&StepKey::Resize);
            // Volumes show what containers have.
            volumes_anew(pod);
        }
        (step @ Step::Resize { .. }, _) => {
            pod.journal = pod.journal.after(&step);
            pod.cgroup_ready = true;
        }
        (Step::TornDown, _) => pod.journal.torn_down = true,
        (Step::EnsureCgroup, _) => pod.cgroup_ready = true,
        (Step::CreateSandbox { .. }, Outcome::Sandbox(sandbox)) => {
            act(pod, Overlay::Sandbox(sandbox))
        }
        (Step::PullImage { container }, Outcome::Image { image, image_ref }) => {
            pod.images.insert(
                container,
                Image {
                    image,
                    image_ref: Some(image_ref),
                },
            );
        }
        (Step::CreateContainer { container, .. }, Outcome::Created(made)) => {
            // Asked for again before the next start: it may be another one by then.
            pod.images.remove(&container);
            act(pod, Overlay::Created(made));
        }
        (Step::StartContainer { id, .. }, _) => act(pod, Overlay::Started(id, now)),
        (Step::PostStart { id, .. }, Outcome::HookFailed(message)) => {
            let failed = PostStart::Failed { message, at: now };
            pod.lifecycle.starts.insert(id, failed);
        }
        (Step::PostStart { id, .. }, _) => drop(pod.lifecycle.starts.remove(&id)),
        (Step::PreStop { id, .. }, _) => {
            if let Some(stop) = pod.lifecycle.stops.get_mut(&id) {
                stop.hooked = true;
            }
        }
        (Step::StopContainer { id, .. }, _) => {
            doubt(pod, StepKey::StopContainer(id.clone()), now, &id);
        }
        (Step::StopSandbox { id }, _) => {
            pod.stopped_sandboxes.insert(id.clone());
            act(pod, Overlay::SandboxStopped(id));
        }
        (Step::RemoveContainer { id, .. } | Step::ResetContainer { id, .. }, _) => {
            act(pod, Overlay::ContainerGone(id))
        }
        (Step::RemoveSandbox { id }, _) => act(pod, Overlay::SandboxGone(id)),
        (
            Step::ApplyVolumes,
            Outcome::Declared {
                digest,
                sequence,
                seen,
            },
        ) => {
            pod.volumes.declared = Some(digest);
            pod.volumes.released = false;
            pod.volumes.sequence = sequence;
            // The stream may have told of this declaration already, and of more.
            if pod
                .volumes
                .seen
                .as_ref()
                .is_none_or(|(known, _)| *known < sequence)
            {
                pod.volumes.seen = Some((sequence, seen));
            }
        }
        (Step::ReleaseVolumes, outcome) => {
            pod.volumes.released = true;
            pod.volumes.released_at = Some(now);
            if outcome == (Outcome::Released { gone: true }) {
                pod.volumes.seen = None;
            }
        }
        (Step::RemoveCgroup, _) => {
            pod.cgroup_gone = true;
            pod.cgroup_ready = false;
        }
        (Step::RemoveFiles, _) => pod.files_gone = true,
        (_, _) => {}
    }
}

fn failed(pod: &mut Pod, step: &Step, trouble: Trouble, now: Timestamp) {
    let key = step.key();
    let before = pod.failures.get(&key);
    let count = before.map_or(1, |f| f.count.saturating_add(1));
    let since = before.map_or(now, |f| f.since);
    match step {
        // The next try must not meet the first one's name.
        Step::CreateSandbox { attempt } if trouble.unknown || trouble.reserved => {
            pod.sandbox_floor = pod.sandbox_floor.max(attempt.saturating_add(1));
        }
        Step::CreateContainer {
            container, attempt, ..
        } if trouble.reserved && count >= 5 => {
            pod.attempt_floor
                .insert(container.clone(), attempt.saturating_add(1));
        }
        Step::CreateContainer { container, .. } if trouble.image_missing => {
            pod.images.remove(container);
        }
        Step::EnsureCgroup => pod.cgroup_ready = false,
        // A full disk must not keep the pod that fills it: obeyed now, written down when it can be.
        Step::Decide(terminal) if count >= 2 => {
            pod.journal.terminal = Some(terminal.clone());
            pod.journalled = false;
        }
        _ => {}
    }
    let wait = SignedDuration::try_from(pause(&key, count, &trouble))
        .unwrap_or(SignedDuration::from_secs(10));
    let retry_at = now.checked_add(wait).unwrap_or(now);
    let Trouble {
        reason,
        message,
        image,
        ..
    } = trouble;
    pod.failures.insert(
        key,
        Failure {
            count,
            reason,
            message,
            image,
            since,
            at: now,
            retry_at,
        },
    );
}

/// How long to wait after a number of failures in a row.
fn pause(key: &StepKey, count: u32, trouble: &Trouble) -> Duration {
    let usual = || {
        let doubled =
            Duration::from_millis(500).saturating_mul(1 << count.saturating_sub(1).min(5));
        doubled.min(Duration::from_secs(10))
    };
    match key {
        // Told at once by the watch; this is for a watch that is lost.
        _ if trouble.lacking.is_some() => Duration::from_secs(60),
        StepKey::Pull(_) if trouble.lasting => Duration::from_secs(300),
        StepKey::Pull(_) if trouble.reason == reason::ERR_IMAGE_NEVER_PULL => {
            Duration::from_secs(10)
        }
        StepKey::Pull(_) => BackOff::default().delay(count),
        StepKey::Sandbox if trouble.unknown => Duration::from_secs(2),
        StepKey::Sandbox | StepKey::Create(_) | StepKey::Start(_) if trouble.reserved => {
            Duration::from_millis(200)
        }
        StepKey::Create(_) if trouble.image_missing => Duration::ZERO,
        _ => usual(),
    }
}
