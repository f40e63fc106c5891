//! Whether a pod fits beside those that are here.

use polylet_model::constants::reason;
use polylet_model::node::{EPHEMERAL_STORAGE, PODS};
use polylet_model::resources::is_huge_pages;
use polylet_model::taint;

use super::No;
use crate::core::room::Room;
use crate::core::view::Pod;
use crate::core::wanted::Wanted;

/// Something in which a pod does not fit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Misfit {
    /// Too little of a resource is left.
    Short {
        name: String,
        requested: i64,
        used: i64,
        capacity: i64,
    },
    /// Something that no other pod's end would change.
    Never {
        reason: &'static str,
        why: &'static str,
    },
}

/// A resource, and how much of it is missing.
pub(super) type Shortage = (String, i64);

impl Misfit {
    pub(super) fn told(&self) -> No {
        match self {
            Misfit::Short {
                name,
                requested,
                used,
                capacity,
            } => (
                format!("{}{name}", reason::OUT_OF),
                format!(
                    "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
                ),
            ),
            Misfit::Never { reason, why } => (
                (*reason).to_owned(),
                format!("Predicate {reason} failed: {why}"),
            ),
        }
    }

    /// Judged once, when the pod was let in.
    pub(super) fn is_affinity(&self) -> bool {
        matches!(self, Misfit::Never { reason, .. } if *reason == reason::NODE_AFFINITY)
    }

    pub(super) fn shortage(&self) -> Option<Shortage> {
        match self {
            Misfit::Short {
                name,
                requested,
                used,
                capacity,
            } => {
                let left = capacity.saturating_sub(*used);
                Some((name.clone(), requested.saturating_sub(left)))
            }
            Misfit::Never { .. } => None,
        }
    }
}

/// All in which it does not fit, in upstream's order.
pub(super) fn misfits(pod: &Pod, room: &Room, wanted: &Wanted) -> Vec<Misfit> {
    let mut found = short_of(pod, room, wanted);
    let never = |reason, why| Misfit::Never { reason, why };
    if !super::is_chosen(room, wanted) {
        found.push(never(
            reason::NODE_AFFINITY,
            "node(s) didn't match Pod's node affinity/selector",
        ));
    }
    let named = wanted.manifest.spec().node_name.as_deref();
    if named.is_some_and(|name| !name.is_empty() && name != room.node_name)
        && !room.node_name.is_empty()
    {
        found.push(never(
            reason::NODE_NAME,
            "node(s) didn't match the requested node name",
        ));
    }
    let taken = |port| {
        let others = room.ledger.holders().filter(|(uid, _)| *uid != pod.uid);
        others
            .flat_map(|(_, holder)| &holder.demand.ports)
            .any(|other| other.collides(port))
    };
    if wanted.demand.ports.iter().any(taken) {
        found.push(never(
            reason::NODE_PORTS,
            "node(s) didn't have free ports for the requested pod ports",
        ));
    }
    if !wanted.manifest.is_static() && is_kept_away(room, wanted) {
        found.push(never(
            reason::TAINT_TOLERATION,
            "node(s) had taints that the pod didn't tolerate",
        ));
    }
    found
}

/// Whether a taint that ends pods is not tolerated.
fn is_kept_away(room: &Room, wanted: &Wanted) -> bool {
    let tolerations = wanted.manifest.spec().tolerations.as_deref();
    let mut taints = room.taints().iter().filter(|t| t.effect == "NoExecute");
    taints.any(|taint| !taint::is_tolerated(taint, tolerations.unwrap_or_default()))
}

fn short_of(pod: &Pod, room: &Room, wanted: &Wanted) -> Vec<Misfit> {
    if room.allocatable.is_none() {
        return Vec::new();
    }
    let first = [PODS, "cpu", "memory", EPHEMERAL_STORAGE];
    let others = wanted.demand.requests.keys().map(String::as_str);
    let others = others.filter(|name| !first.contains(name));
    first
        .into_iter()
        .chain(others)
        .filter_map(|name| {
            let requested = wanted.demand.of_resource(name);
            let capacity = match room.allocatable(name) {
                Some(capacity) => capacity,
                // Pages that the kernel has not set aside are not there; what else the node
                // does not know is not its own to count.
                None if is_huge_pages(name) => 0,
                None => return None,
            };
            let used = room.ledger.used_by_others(name, &pod.uid);
            (requested > 0 && requested > capacity.saturating_sub(used)).then(|| Misfit::Short {
                name: name.to_owned(),
                requested,
                used,
                capacity,
            })
        })
        .collect()
}
