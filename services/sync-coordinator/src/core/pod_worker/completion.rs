//! Decisions that a pod never runs again: eviction, deadline, completion.

use polylet_model::ContainerKind;
use polylet_model::constants::{phase, reason};

use crate::core::checkpoint::PodTermination;
use crate::core::plan::Plan;
use crate::core::pod_spec::PodSpecView;
use crate::core::pod_worker::replacement;
use crate::core::runtime_state::{ContainerState, SandboxRecord};
use crate::core::view::View;

/// Progress of the init containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitProgress {
    /// Not all have completed.
    Running,
    /// Regular containers may start.
    Done,
    /// One failed and is not restarted.
    Failed,
}

/// Whether an eviction or the pod's active deadline terminates it.
pub fn check_termination(
    view: &View<'_>,
    spec: &PodSpecView,
    plan: &mut Plan,
) -> Option<PodTermination> {
    if let Some(eviction) = &view.pod.eviction {
        return Some(eviction.clone());
    }
    let started_at = view.pod.checkpoint.acknowledged_at?;
    let allowed = jiff::SignedDuration::try_from(spec.active_deadline?).ok()?;
    let deadline = started_at.checked_add(allowed).ok()?;
    if deadline > view.now {
        plan.wake_by(deadline);
        return None;
    }
    Some(PodTermination {
        reason: reason::DEADLINE_EXCEEDED.to_owned(),
        message: "Pod was active on the node longer than the specified deadline".to_owned(),
        phase: phase::FAILED.to_owned(),
        disruption_target: false,
        decided_at: view.now,
        grace_period: None,
    })
}

/// Whether the pod has completed: no container runs or will run again.
pub fn check_completion(
    view: &View<'_>,
    spec: &PodSpecView,
    sandbox: &SandboxRecord,
    init: InitProgress,
) -> Option<PodTermination> {
    match init {
        InitProgress::Failed => return Some(PodTermination::completed(view.now, false)),
        InitProgress::Running => return None,
        InitProgress::Done => {}
    }
    let observed = view.observed();
    let mut succeeded = true;
    for container in spec.containers_of_kind(ContainerKind::Regular) {
        let newest = observed
            .newest_container_in(&container.name, &sandbox.id)
            .or_else(|| observed.newest_container(&container.name))?;
        if newest.state != ContainerState::Exited
            || replacement::should_restart(view, spec, container, Some(newest))
        {
            return None;
        }
        succeeded &= newest.exit_code == 0;
    }
    Some(PodTermination::completed(view.now, succeeded))
}

/// The termination of a pod whose sandbox is lost and not recreated.
pub fn completed_without_sandbox(view: &View<'_>, spec: &PodSpecView) -> PodTermination {
    let observed = view.observed();
    let succeeded = spec
        .containers
        .iter()
        .filter(|c| c.kind != ContainerKind::Ephemeral && c.kind != ContainerKind::Sidecar)
        .all(|c| {
            let newest = observed.newest_container(&c.name);
            newest.is_some_and(|newest| newest.succeeded())
        });
    PodTermination::completed(view.now, succeeded)
}
