//! The pod's volumes: declared once for each manifest, awaited before containers start.

use jiff::Timestamp;

use super::admission;
use super::plan::Plan;
use super::step::{Step, StepKey};
use super::view::{SeenVolume, Terminal, View};
use super::wanted::Wanted;

/// How long released volumes may take before they are asked about.
const AGAIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

/// Declares the pod's volumes where that was not done for this manifest.
pub fn declare(view: &View<'_>, wanted: &Wanted, plan: &mut Plan) {
    if wanted.has_volumes && view.pod.volumes.declared.as_ref() != Some(&wanted.digest) {
        plan.step(view, Step::ApplyVolumes);
    }
}

/// The end of a pod that may not stay on this node for want of a volume.
pub fn refused(view: &View<'_>, wanted: &Wanted) -> Option<Terminal> {
    let volumes = &view.pod.volumes;
    let (sequence, seen) = volumes.seen.as_ref().filter(|_| wanted.has_volumes)?;
    if volumes.declared.as_ref() != Some(&wanted.digest) || *sequence < volumes.sequence {
        return None;
    }
    let volume = seen.iter().find(|volume| !volume.refusal.is_empty())?;
    Some(admission::rejected(
        view.now,
        &volume.refusal,
        &volume.message,
    ))
}

/// Whether containers may start; says what is missing.
pub fn mounted(view: &View<'_>, wanted: &Wanted, plan: &mut Plan) -> bool {
    there(view, wanted, plan, |volume| volume.mounted)
}

/// Whether a sandbox may be made. As upstream it is not while a volume is missing, which may be for
/// ever; one that is about to come is not waited for.
pub fn at_hand(view: &View<'_>, wanted: &Wanted, plan: &mut Plan) -> bool {
    there(view, wanted, plan, |volume| volume.mounted || volume.coming)
}

fn there(
    view: &View<'_>,
    wanted: &Wanted,
    plan: &mut Plan,
    is_there: impl Fn(&SeenVolume) -> bool,
) -> bool {
    let volumes = &view.pod.volumes;
    if !wanted.has_volumes {
        return true;
    }
    let Some((sequence, seen)) = &volumes.seen else {
        plan.wait_for("volumes", None);
        return false;
    };
    if volumes.declared.as_ref() != Some(&wanted.digest) || *sequence < volumes.sequence {
        return false;
    }
    let mut whole = true;
    for volume in seen.iter().filter(|v| !is_there(v)) {
        whole = false;
        plan.waiting.push(super::plan::Waiting {
            what: format!("volume {}", volume.name),
            since: None,
            error: volume.message.clone(),
        });
    }
    whole
}

/// Releases the volumes; true when nothing of them is left.
pub fn released(view: &View<'_>, plan: &mut Plan) -> bool {
    let volumes = &view.pod.volumes;
    // An orphan's volumes are volume-manager's to find; it must hear that they are free.
    let any = volumes.seen.is_some() || volumes.declared.is_some() || view.pod.wanted.is_none();
    if !any && !view.in_flight(&StepKey::Volumes) {
        return true;
    }
    if !view.node.volumes_fresh {
        plan.wait_for("volume-manager", None);
        return false;
    }
    if !volumes.released {
        if view.in_flight(&StepKey::Volumes) {
            plan.wait_for("volumes to be declared", None);
        } else {
            plan.step(view, Step::ReleaseVolumes);
        }
        return false;
    }
    let Some((_, seen)) = &volumes.seen else {
        return true;
    };
    for volume in seen.iter().filter(|v| !v.gone) {
        plan.waiting.push(super::plan::Waiting {
            what: format!("volume {} to be unmounted", volume.name),
            since: None::<Timestamp>,
            error: volume.message.clone(),
        });
    }
    let gone = seen.iter().all(|v| v.gone);
    if !gone
        && let Some(due) = volumes
            .released_at
            .and_then(|at| at.checked_add(AGAIN).ok())
    {
        // A watcher that is slow never hears of what came and went meanwhile: the answer tells.
        if due <= view.now {
            plan.step(view, Step::ReleaseVolumes);
        } else {
            plan.wake(due);
        }
    }
    gone
}
