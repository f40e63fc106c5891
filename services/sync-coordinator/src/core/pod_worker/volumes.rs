//! The pod's volumes: declared once per manifest, waited for before containers start.

use jiff::SignedDuration;

use crate::core::checkpoint::PodTermination;
use crate::core::plan::{Plan, WaitingFor};
use crate::core::pod_spec::PodSpecView;
use crate::core::step::{Step, StepKey};
use crate::core::view::View;
use crate::core::volume_state::ObservedVolume;

/// How long released volumes may take before the release is repeated.
const RELEASE_INTERVAL: SignedDuration = SignedDuration::from_secs(2);

/// Declares the volumes of a new manifest.
pub fn declare(view: &View<'_>, spec: &PodSpecView, plan: &mut Plan) {
    if spec.has_volumes && view.pod.volumes.declared_digest.as_ref() != Some(&spec.digest) {
        plan.start_step(view, Step::ApplyVolumes);
    }
}

/// The reported volumes, if the report covers the last declaration of this manifest.
fn current_report<'a>(view: &View<'a>, spec: &PodSpecView) -> Option<&'a [ObservedVolume]> {
    let volumes = &view.pod.volumes;
    let (sequence, reported) = volumes.reported.as_ref()?;
    let is_current = volumes.declared_digest.as_ref() == Some(&spec.digest)
        && *sequence >= volumes.declared_sequence;
    is_current.then_some(&reported[..])
}

/// The termination of a pod that is rejected because of a volume.
pub fn rejection(view: &View<'_>, spec: &PodSpecView) -> Option<PodTermination> {
    let reported = current_report(view, spec).filter(|_| spec.has_volumes)?;
    let volume = reported
        .iter()
        .find(|volume| !volume.rejection_reason.is_empty())?;
    Some(PodTermination::rejected(
        view.now,
        &volume.rejection_reason,
        &volume.message,
    ))
}

/// Whether containers may start: all volumes are mounted.
pub fn are_mounted(view: &View<'_>, spec: &PodSpecView, plan: &mut Plan) -> bool {
    all_match(view, spec, plan, |volume| volume.mounted)
}

/// Whether a sandbox may be created. As upstream, not while a volume is missing, which may last;
/// imminent mounts are not waited for.
pub fn are_imminent(view: &View<'_>, spec: &PodSpecView, plan: &mut Plan) -> bool {
    all_match(view, spec, plan, |volume| volume.mounted || volume.imminent)
}

fn all_match(
    view: &View<'_>,
    spec: &PodSpecView,
    plan: &mut Plan,
    is_ready: impl Fn(&ObservedVolume) -> bool,
) -> bool {
    if !spec.has_volumes {
        return true;
    }
    if view.pod.volumes.reported.is_none() {
        plan.wait_for("volumes", None);
        return false;
    }
    let Some(reported) = current_report(view, spec) else {
        return false;
    };
    let mut all_ready = true;
    for volume in reported.iter().filter(|volume| !is_ready(volume)) {
        all_ready = false;
        plan.waiting_for.push(WaitingFor {
            what: format!("volume {}", volume.name),
            since: None,
            error: volume.message.clone(),
        });
    }
    all_ready
}

/// Releases the volumes; true when nothing of them is left.
pub fn released(view: &View<'_>, plan: &mut Plan) -> bool {
    let volumes = &view.pod.volumes;
    // volume-manager finds an orphan's volumes itself, and must learn that they are no longer used.
    let any =
        volumes.reported.is_some() || volumes.declared_digest.is_some() || view.pod.spec.is_none();
    if !any && !view.in_flight(&StepKey::ApplyVolumes) {
        return true;
    }
    if !view.node.volumes_synced {
        plan.wait_for("volume-manager", None);
        return false;
    }
    if !volumes.released {
        if view.in_flight(&StepKey::ApplyVolumes) {
            plan.wait_for(Step::ApplyVolumes.to_string(), None);
        } else {
            plan.start_step(view, Step::ReleaseVolumes);
        }
        return false;
    }
    let Some((_, reported)) = &volumes.reported else {
        return true;
    };
    for volume in reported.iter().filter(|volume| !volume.gone) {
        plan.waiting_for.push(WaitingFor {
            what: format!("volume {} to be unmounted", volume.name),
            since: None,
            error: volume.message.clone(),
        });
    }
    let all_gone = reported.iter().all(|volume| volume.gone);
    if !all_gone
        && let Some(due) = volumes
            .released_at
            .and_then(|at| at.checked_add(RELEASE_INTERVAL).ok())
    {
        // A slow watcher may miss short-lived volumes; the response of the call is complete.
        if due <= view.now {
            plan.start_step(view, Step::ReleaseVolumes);
        } else {
            plan.wake_by(due);
        }
    }
    all_gone
}
