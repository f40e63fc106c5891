//! Events about the node.

use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};

use super::conditions::READY;

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEvent {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The events of a status change.
pub(crate) fn status_changed(
    name: &str,
    before: &NodeStatus,
    written: &NodeStatus,
) -> Vec<NodeEvent> {
    let mut events = Vec::new();
    let boot = |status: &NodeStatus| {
        let info = status.node_info.as_ref();
        info.map(|info| info.boot_id.clone()).unwrap_or_default()
    };
    let (old_boot, boot) = (boot(before), boot(written));
    if !old_boot.is_empty() && old_boot != boot {
        events.push(NodeEvent {
            warning: true,
            reason: "Rebooted",
            message: format!("Node {name} has been rebooted, boot id: {boot}"),
        });
    }
    let before = before.conditions.as_deref().unwrap_or_default();
    for condition in written.conditions.iter().flatten() {
        let was = before.iter().find(|was| was.type_ == condition.type_);
        let new = condition.type_ != READY && was.is_none();
        if new || was.is_some_and(|was| was.status != condition.status) {
            events.extend(reason(condition).map(|reason| status_event(name, reason)));
        }
    }
    events
}

/// The events of the initial pressures, which upstream records at each start.
pub(crate) fn started(name: &str, status: &NodeStatus) -> Vec<NodeEvent> {
    let pressures = status.conditions.iter().flatten();
    let pressures = pressures.filter(|condition| condition.type_ != READY);
    let reasons = pressures.filter_map(reason);
    reasons.map(|reason| status_event(name, reason)).collect()
}

/// The machine has cgroup v1 only.
pub(crate) fn cgroup_v1() -> NodeEvent {
    NodeEvent {
        warning: true,
        reason: "CgroupV1",
        message: "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. \
                  Please migrate to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"
            .to_owned(),
    }
}

/// Memory-backed volumes may be swapped to disk.
pub(crate) fn memory_backed_volumes_on_disk() -> NodeEvent {
    NodeEvent {
        warning: true,
        reason: "PossibleMemoryBackedVolumesOnDisk",
        message: "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) \
                  might be swapped to disk and should no longer be considered secure."
            .to_owned(),
    }
}

/// The node was cordoned or uncordoned.
pub(crate) fn scheduling_changed(name: &str, unschedulable: bool) -> NodeEvent {
    status_event(
        name,
        if unschedulable {
            "NodeNotSchedulable"
        } else {
            "NodeSchedulable"
        },
    )
}

fn status_event(name: &str, reason: &'static str) -> NodeEvent {
    NodeEvent {
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
