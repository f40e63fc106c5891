//! Whether a pod may start here at all: asked once of each pod, in upstream's order.

mod fit;
mod preempt;

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use polylet_model::constants::{REFUSED, phase, reason};
use polylet_model::{apparmor, resources, selector};

use super::room::NodeObject;
use super::view::{Terminal, View};
use super::wanted::Wanted;
use fit::Misfit;

/// What is to become of a pod that asks to be let in.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It may start.
    Admitted,
    /// It may never run here.
    Refused(Terminal),
    /// It may start once other pods have made room.
    Waits {
        /// Pods that have to end for it, and do not know yet.
        victims: Vec<String>,
    },
    /// Not before the cluster has said what this node is; or, until then, whether it is another
    /// by now.
    Unsure {
        /// Then it is judged by what is known.
        until: Option<Timestamp>,
    },
}

/// How long the node's object may be behind what pods were bound by.
const NODE_NEWS: SignedDuration = SignedDuration::from_secs(1);

/// Why a pod is refused: the reason's name, and words for people.
type No = (String, String);

/// Judges a pod of which nothing has run here; what was admitted stays admitted.
pub fn judge(view: &View<'_>, wanted: &Wanted) -> Verdict {
    if is_admitted(view) {
        return Verdict::Admitted;
    }
    if !wanted.manifest.is_static() && view.node.room.node == NodeObject::Unheard {
        return Verdict::Unsure { until: None };
    }
    if let Some(no) = pressure(view, wanted)
        .or_else(|| sysctl(wanted))
        .or_else(|| operating_system(wanted))
        .or_else(|| groups(view, wanted))
    {
        return refused(view, no);
    }
    let misfits = fit::misfits(view.pod, &view.node.room, wanted);
    let later = || app_armor(view, wanted).or_else(|| pod_features(view, wanted));
    if let Some(until) = until_the_node_is_heard_again(view, wanted, &misfits) {
        return Verdict::Unsure { until: Some(until) };
    }
    let Some(first) = misfits.first() else {
        return later().map_or(Verdict::Admitted, |no| refused(view, no));
    };
    if !wanted.demand.critical {
        return refused(view, first.told());
    }
    // A critical pod is never refused for what other pods hold: they make room.
    if let Some(other) = misfits.iter().find(|misfit| misfit.shortage().is_none()) {
        return refused(view, other.told());
    }
    let shortages: Vec<_> = misfits.iter().filter_map(Misfit::shortage).collect();
    match preempt::victims(&wanted.demand, &view.node.room.ledger, &shortages) {
        // Nobody ends for a pod that is refused after all.
        Ok(victims) => match later() {
            Some(no) => refused(view, no),
            None => Verdict::Waits { victims },
        },
        Err(why) => refused(
            view,
            (
                reason::UNEXPECTED_ADMISSION_ERROR.to_owned(),
                format!(
                    "Unexpected error while attempting to recover from admission failure: {why}"
                ),
            ),
        ),
    }
}

/// A pod that only the node's labels keep out may have been bound by newer ones: the next word of
/// the node is awaited for a moment, where upstream asks for it.
fn until_the_node_is_heard_again(
    view: &View<'_>,
    wanted: &Wanted,
    misfits: &[Misfit],
) -> Option<Timestamp> {
    let only = !misfits.is_empty() && misfits.iter().all(Misfit::is_affinity);
    let known = matches!(view.node.room.node, NodeObject::Known { .. });
    if !only || !known || wanted.manifest.is_static() {
        return None;
    }
    let since = view.pod.unsure_since.unwrap_or(view.now);
    let until = since.checked_add(NODE_NEWS).ok()?;
    (since <= view.now && view.now < until).then_some(until)
}

/// Why the node has no room for what a pod that was let in asks for now. Nobody makes room for it,
/// not even for a critical pod: it has what it was let in with. Its reason and its words.
pub fn unfit(view: &View<'_>, wanted: &Wanted) -> Option<(String, String)> {
    pressure(view, wanted).or_else(|| {
        let misfits = fit::misfits(view.pod, &view.node.room, wanted);
        let first = misfits.iter().find(|misfit| !misfit.is_affinity());
        first.map(Misfit::told)
    })
}

/// The end of a pod that makes room for another.
pub fn preempted(now: jiff::Timestamp) -> Terminal {
    Terminal {
        reason: reason::PREEMPTING.to_owned(),
        message: "Preempted in order to admit critical pod".to_owned(),
        phase: phase::FAILED.to_owned(),
        disruption_target: true,
        decided_at: now,
        grace: None,
    }
}

fn is_admitted(view: &View<'_>) -> bool {
    was_admitted(view) || !view.pod.flights.is_empty()
}

/// Whether the pod was let in before: a refusal on its way to the disk is not.
pub fn was_admitted(view: &View<'_>) -> bool {
    let pod = view.pod;
    pod.journal.demand.is_some()
        || (pod.journal.acknowledged_at.is_some() && pod.journalled)
        || !view.observed().is_empty()
}

fn pressure(view: &View<'_>, wanted: &Wanted) -> Option<No> {
    let pressure = view.node.pressure;
    let short = pressure.disk || pressure.pids;
    let refused =
        short || (pressure.memory && wanted.best_effort && !wanted.tolerates_memory_pressure);
    if !refused || wanted.critical {
        return None;
    }
    let conditions: Vec<&str> = [
        (pressure.memory, "MemoryPressure"),
        (pressure.disk, "DiskPressure"),
        (pressure.pids, "PIDPressure"),
    ]
    .into_iter()
    .filter_map(|(under, name)| under.then_some(name))
    .collect();
    let why = format!("The node had condition: [{}]. ", conditions.join(" "));
    Some((reason::EVICTED.to_owned(), why))
}

fn sysctl(wanted: &Wanted) -> Option<No> {
    let why = wanted.forbidden_sysctl.clone()?;
    Some((reason::SYSCTL_FORBIDDEN.to_owned(), why))
}

fn operating_system(wanted: &Wanted) -> Option<No> {
    const LABEL: &str = "kubernetes.io/os";
    const OURS: &str = "linux";
    // The pod's own label, as upstream has it, and not its selector.
    let labels = wanted.manifest.metadata().labels.as_ref();
    if labels
        .and_then(|labels| labels.get(LABEL))
        .is_some_and(|os| os != OURS)
    {
        let why = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some((reason::POD_OS_SELECTOR.to_owned(), why.to_owned()));
    }
    let os = wanted.manifest.spec().os.as_ref()?;
    let why = "Failed to admit pod as the OS field doesn't match node OS";
    (os.name != OURS).then(|| (reason::POD_OS_NOT_SUPPORTED.to_owned(), why.to_owned()))
}

fn groups(view: &View<'_>, wanted: &Wanted) -> Option<No> {
    let context = wanted.manifest.spec().security_context.as_ref()?;
    let strict = context.supplemental_groups_policy.as_deref() == Some("Strict");
    (strict && !view.node.room.strict_groups).then(|| {
        let why = "SupplementalGroupsPolicy=Strict is not supported in this node";
        (
            reason::SUPPLEMENTAL_GROUPS_POLICY.to_owned(),
            why.to_owned(),
        )
    })
}

fn app_armor(view: &View<'_>, wanted: &Wanted) -> Option<No> {
    if !apparmor::is_wanted(&wanted.manifest) {
        return None;
    }
    let why = view
        .node
        .room
        .no_apparmor
        .clone()
        .or_else(|| apparmor::unusable(&wanted.manifest))?;
    let why = format!("Cannot enforce AppArmor: {why}");
    Some((reason::APP_ARMOR.to_owned(), why))
}

fn pod_features(view: &View<'_>, wanted: &Wanted) -> Option<No> {
    let refused =
        view.node.room.no_pod_level_resources && resources::has_pod_level(wanted.manifest.spec());
    refused.then(|| {
        (
            reason::POD_LEVEL_RESOURCES.to_owned(),
            "PodLevelResources feature gate is disabled".to_owned(),
        )
    })
}

fn refused(view: &View<'_>, (reason, why): No) -> Verdict {
    Verdict::Refused(rejected(view.now, &reason, &why))
}

/// The end of a pod that this node does not take.
pub fn rejected(now: jiff::Timestamp, reason: &str, why: &str) -> Terminal {
    Terminal {
        reason: reason.to_owned(),
        message: format!("{REFUSED}{why}"),
        phase: phase::FAILED.to_owned(),
        disruption_target: false,
        decided_at: now,
        grace: None,
    }
}

/// Whether the node is one that the pod chooses.
fn is_chosen(view: &super::room::Room, wanted: &Wanted) -> bool {
    selector::chooses(wanted.manifest.spec(), &view.node_name, view.labels())
}
