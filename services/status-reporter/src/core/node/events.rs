//! What people are told of a node's status when it changes.

use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};

use super::conditions::READY;

/// An event of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What a write of this status is worth telling.
pub(crate) fn of_change(name: &str, held: &NodeStatus, written: &NodeStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let boot = |status: &NodeStatus| {
        let info = status.node_info.as_ref();
        info.map(|info| info.boot_id.clone()).unwrap_or_default()
    };
    let (before, after) = (boot(held), boot(written));
    if !before.is_empty() && before != after {
        events.push(Event {
            warning: true,
            reason: "Rebooted",
            message: format!("Node {name} has been rebooted, boot id: {after}"),
        });
    }
    let before = held.conditions.as_deref().unwrap_or_default();
    for condition in written.conditions.iter().flatten() {
        let was = before.iter().find(|was| was.type_ == condition.type_);
        let new = condition.type_ != READY && was.is_none();
        if new || was.is_some_and(|was| was.status != condition.status) {
            events.extend(reason(condition).map(|reason| now(name, reason)));
        }
    }
    events
}

/// What is told of the pressures that a node starts with, whatever its object said before.
pub(crate) fn of_start(name: &str, status: &NodeStatus) -> Vec<Event> {
    let pressures = status.conditions.iter().flatten();
    let pressures = pressures.filter(|condition| condition.type_ != READY);
    let told = pressures.filter_map(reason);
    told.map(|reason| now(name, reason)).collect()
}

/// The kernel has only cgroups of the old kind.
pub(crate) fn of_old_cgroups() -> Event {
    Event {
        warning: true,
        reason: "CgroupV1",
        message: "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. \
                  Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
            .to_owned(),
    }
}

/// What volumes hold in memory may be written to a disk.
pub(crate) fn of_swapped_memory() -> Event {
    Event {
        warning: true,
        reason: "PossibleMemoryBackedVolumesOnDisk",
        message: "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) \
                  might be swapped to disk and should no longer be considered secure."
            .to_owned(),
    }
}

/// The node takes new pods, or no longer does.
pub(crate) fn of_scheduling(name: &str, unschedulable: bool) -> Event {
    now(
        name,
        if unschedulable {
            "NodeNotSchedulable"
        } else {
            "NodeSchedulable"
        },
    )
}

fn now(name: &str, reason: &'static str) -> Event {
    Event {
        warning: false,
        reason,
        message: format!("Node {name} status is now: {reason}"),
    }
}

fn reason(condition: &NodeCondition) -> Option<&'static str> {
    Some(
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("Ready", "True") => "NodeReady",
            ("Ready", "False") => "NodeNotReady",
            ("MemoryPressure", "True") => "NodeHasInsufficientMemory",
            ("MemoryPressure", "False") => "NodeHasSufficientMemory",
            ("DiskPressure", "True") => "NodeHasDiskPressure",
            ("DiskPressure", "False") => "NodeHasNoDiskPressure",
            ("PIDPressure", "True") => "NodeHasInsufficientPID",
            ("PIDPressure", "False") => "NodeHasSufficientPID",
            _ => return None,
        },
    )
}
