//! What acts tell people as events, in upstream's words: each belongs to the act, so that a later
//! life of this process, which only sees what came of it, does not tell it again.

use polylet_cri::CriError;
use polylet_model::Manifest;
use polylet_wire::common::v1::PodRef;

use super::{Hands, Job};
use crate::core::learn::{Outcome, Trouble};
use crate::core::notices::part;
use crate::core::step::Step;

/// Tells of a container.
pub fn of_container(
    hands: &Hands,
    job: &Job,
    container: &str,
    warning: bool,
    reason: &str,
    message: impl Into<String>,
) {
    of_part(
        hands,
        job,
        &part_of(job, container),
        warning,
        reason,
        message,
    );
}

/// Tells of the pod.
pub fn of_whole(hands: &Hands, job: &Job, warning: bool, reason: &str, message: impl Into<String>) {
    of_part(hands, job, "", warning, reason, message);
}

fn of_part(
    hands: &Hands,
    job: &Job,
    part: &str,
    warning: bool,
    reason: &str,
    message: impl Into<String>,
) {
    let notices = hands.ctx.notices();
    if warning {
        notices.warning(&job.pod, part, reason, message);
    } else {
        notices.normal(&job.pod, part, reason, message);
    }
}

/// Where a container stands in the pod of a step.
pub fn part_of(job: &Job, container: &str) -> String {
    match &job.manifest {
        Some(manifest) => part(manifest, container),
        None => format!("implicitly required container {container}"),
    }
}

/// A manifest's pod.
pub fn pod_of(manifest: &Manifest) -> PodRef {
    PodRef {
        uid: manifest.uid().to_string(),
        namespace: manifest.namespace().to_owned(),
        name: manifest.name().to_owned(),
    }
}

/// As upstream shows an error of the runtime.
pub fn words(error: &CriError) -> String {
    error.in_words()
}

/// What the end of a step is worth telling.
pub fn after(hands: &Hands, job: &Job, outcome: &Outcome) {
    let tell = |container: &str, warning, reason: &str, message: String| {
        of_container(hands, job, container, warning, reason, message);
    };
    match (&job.step, outcome) {
        (Step::CreateContainer { container, .. }, Outcome::Created(_)) => {
            tell(container, false, "Created", "Container created".to_owned());
        }
        (Step::StartContainer { container, .. }, Outcome::Done) => {
            tell(container, false, "Started", "Container started".to_owned());
        }
        (Step::CreateContainer { container, .. }, Outcome::Failed(trouble))
            if !trouble.reserved =>
        {
            let message = format!("Error: {}", trouble.message);
            tell(container, true, "Failed", message);
        }
        (Step::StartContainer { container, id, .. }, Outcome::Failed(trouble))
            if !trouble.reserved =>
        {
            // Two failures of one kind are told in the same words.
            let message = trouble.message.replace(id.as_str(), container);
            tell(container, true, "Failed", format!("Error: {message}"));
        }
        (Step::PullImage { container }, Outcome::Failed(trouble)) => {
            tell(
                container,
                true,
                "Failed",
                format!("Error: {}", trouble.reason),
            );
        }
        (Step::PostStart { container, .. }, Outcome::HookFailed(_)) => {
            let words = "PostStartHook failed".to_owned();
            tell(container, true, "FailedPostStartHook", words);
        }
        (Step::PreStop { container, .. }, Outcome::HookFailed(_)) => {
            let words = "PreStopHook failed".to_owned();
            tell(container, true, "FailedPreStopHook", words);
        }
        (Step::EnsureCgroup, Outcome::Failed(trouble)) => {
            let words = format!("unable to ensure pod container exists: {}", trouble.message);
            let notices = hands.ctx.notices();
            notices.warning(&job.pod, "", "FailedCreatePodContainer", words);
        }
        (Step::StopContainer { container, .. }, Outcome::Failed(trouble)) => {
            not_killed(hands, job, "KillContainer", container, trouble);
        }
        (Step::StopSandbox { .. }, Outcome::Failed(trouble)) => {
            not_killed(hands, job, "KillPodSandbox", &job.pod.uid, trouble);
        }
        _ => {}
    }
}

/// The runtime did not stop what it was to stop.
fn not_killed(hands: &Hands, job: &Job, action: &str, what: &str, trouble: &Trouble) {
    let Trouble {
        reason, message, ..
    } = trouble;
    let words =
        format!("error killing pod: failed to {action:?} for {what:?} with {reason}: {message:?}");
    of_whole(hands, job, true, "FailedKillPod", words);
}
