//! Whether a pod may start here at all.

use polylet_model::constants::{phase, reason};

use super::view::{Terminal, View};
use super::wanted::Wanted;

/// Refuses a pod that the node has no room for. Asked only of a pod of which
/// nothing has run here: what was admitted stays admitted.
pub fn refuse(view: &View<'_>, wanted: &Wanted) -> Option<Terminal> {
    let pod = view.pod;
    let begun = pod.journal.acknowledged_at.is_some() && pod.journalled;
    if begun || !view.observed().is_empty() || !pod.flights.is_empty() {
        return None;
    }
    if let Some(why) = &wanted.forbidden_sysctl {
        return Some(rejected(view, reason::SYSCTL_FORBIDDEN, why));
    }
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
    Some(rejected(
        view,
        reason::EVICTED,
        &format!("The node had condition: [{}]. ", conditions.join(" ")),
    ))
}

fn rejected(view: &View<'_>, reason: &str, why: &str) -> Terminal {
    Terminal {
        reason: reason.to_owned(),
        message: format!("Pod was rejected: {why}"),
        phase: phase::FAILED.to_owned(),
        disruption_target: false,
        decided_at: view.now,
        grace: None,
    }
}
