//! Whether a pod that was let in gets other resources than it was given.
//!
//! What a pod has been given is in its journal. A manifest of the same uid that asks for anything
//! else asks anew: it is given when it fits beside the other pods, waits while it does not fit now,
//! and is refused for good where it can never fit or may not be asked. Until it is given all goes
//! on with what the pod had: containers that start anew are made with that.
//!
//! What was given reaches running containers by [`change`].

use std::sync::Arc;

use polylet_model::constants::condition_reason as why;
use polylet_model::{Allocation, resources};

use super::admission;
use super::plan::Plan;
use super::room::{Demand, Room, Swap};
use super::step::{Step, StepKey};
use super::view::View;
use super::wanted::Wanted;

mod change;
#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod tests;

pub use change::{
    Change, Progress, Resource, act, had, is_settled, progress, restarts, since, unsettled,
};

/// What becomes of a change of resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Verdict {
    /// There is none: the manifest asks for what was given.
    #[default]
    Settled,
    /// It is given.
    Granted,
    /// It is not given, or not yet: `PodResizePending`.
    Pending {
        /// The condition's reason: `Deferred` or `Infeasible`.
        reason: &'static str,
        /// Its message.
        message: String,
    },
}

/// Judges what the manifest asks for now; a pod that was not let in yet has nothing to change.
pub fn judge(view: &View<'_>, wanted: &Wanted) -> Verdict {
    let Some(given) = &view.pod.journal.allocated else {
        return Verdict::Settled;
    };
    // The same as was given to this very manifest: the usual case, and cheap to see.
    if Arc::ptr_eq(given, &wanted.allocation) || !given.differs(wanted.manifest.spec()) {
        return Verdict::Settled;
    }
    let pending = |reason, message| Verdict::Pending { reason, message };
    if let Some(message) = infeasible(&view.node.room, wanted, given) {
        return pending(why::INFEASIBLE, message);
    }
    match admission::unfit(view, wanted) {
        Some((_, message)) => pending(why::DEFERRED, message),
        None => Verdict::Granted,
    }
}

/// Has what is given written down, before anything is done by it.
pub fn carry(view: &View<'_>, wanted: &Wanted, plan: &mut Plan) {
    match &plan.resize {
        Verdict::Settled => {}
        Verdict::Granted => {
            let before = view.pod.journal.demand.as_ref();
            let before = before.unwrap_or(&wanted.demand);
            // A resize changes requests: all else was settled when the pod was let in.
            let demand = Demand {
                requests: wanted.demand.requests.clone(),
                ..Demand::clone(before)
            };
            let allocation = Arc::clone(&wanted.allocation);
            // A container on its way may be made with what was given or with what is given now:
            // first it is known.
            let making = |key: &StepKey| matches!(key, StepKey::Create(_) | StepKey::Resize);
            if let Some((_, flight)) = view.pod.flights.iter().find(|(key, _)| making(key)) {
                plan.wait_for("a container on its way to be made", Some(flight.since));
                return;
            }
            plan.step(
                view,
                Step::Allocate {
                    allocation,
                    demand: Arc::new(demand),
                    held: change::held(view),
                    generation: wanted.manifest.generation().unwrap_or_default(),
                },
            );
        }
        Verdict::Pending { reason, .. } => {
            if *reason == why::DEFERRED {
                plan.wants_room = true;
                plan.wait_for("room for the resources that the manifest asks for", None);
            }
        }
    }
}

/// Why it can never be, in upstream's words.
fn infeasible(room: &Room, wanted: &Wanted, given: &Allocation) -> Option<String> {
    if wanted.manifest.is_static() {
        return Some("In-place resize of static-pods is not supported".to_owned());
    }
    let disabled = |gate: &str| Some(format!("{gate} is disabled"));
    if !room.resizes.pods {
        return disabled("InPlacePodVerticalScaling");
    }
    if !room.resizes.pod_level && given.pod != wanted.allocation.pod {
        return disabled("InPlacePodLevelResourcesVerticalScaling");
    }
    if room
        .limited_swap
        .is_some_and(|swap| moves_swap(swap, wanted, given))
    {
        return Some("In-place resize of containers with swap is not supported.".to_owned());
    }
    let most = room.most.as_ref()?;
    // Memory first: what is told last in upstream's order wins there.
    ["memory", "cpu"].into_iter().find_map(|name| {
        let capacity = *most.get(name)?;
        let requested = wanted.demand.of_resource(name);
        (requested > capacity).then(|| {
            format!("Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}")
        })
    })
}

/// Whether a container that may swap, before or after, would get another share of it while it runs.
fn moves_swap(swap: Swap, wanted: &Wanted, given: &Allocation) -> bool {
    let before = given.put_into(&wanted.manifest);
    let swaps = |of: &polylet_model::Manifest, container| {
        let critical = of.is_critical();
        resources::limited_swap(of.spec(), container, critical, swap.memory, swap.swap) > 0
    };
    before.all_containers().any(|(_, old)| {
        let Some((_, new)) = wanted.manifest.container(&old.name) else {
            return false;
        };
        let asked = |container| resources::request(container, "memory").unwrap_or_default();
        let restarts = old.resize_policy.iter().flatten().any(|policy| {
            policy.resource_name == "memory" && policy.restart_policy == "RestartContainer"
        });
        asked(old) != asked(new)
            && !restarts
            && (swaps(&before, old) || swaps(&wanted.manifest, new))
    })
}
