//! Containers by name: in the runtime, in the previous status and in the new one.

use k8s_openapi::api::core::v1::ContainerStatus;

use super::{RuntimeContainer, StatusInputs};
use crate::pod::ContainerKind;

/// The container statuses of a pod.
#[derive(Clone, Default)]
pub(super) struct ContainerStatuses {
    /// Sorted by name.
    pub(super) regular: Vec<ContainerStatus>,
    /// In the order of their start.
    pub(super) init: Vec<ContainerStatus>,
    /// Sorted by name.
    pub(super) ephemeral: Vec<ContainerStatus>,
}

impl ContainerStatuses {
    /// The status of a regular or init container.
    pub(super) fn get(&self, name: &str) -> Option<&ContainerStatus> {
        self.regular
            .iter()
            .chain(&self.init)
            .find(|status| status.name == name)
    }
}

/// The containers of a name in the runtime, newest first.
pub(super) fn by_name<'a>(
    facts: &'a StatusInputs<'_>,
    name: &str,
) -> impl Iterator<Item = &'a RuntimeContainer> {
    facts
        .containers
        .iter()
        .filter(move |container| container.name == name)
}

/// The previously published status of a container.
pub(super) fn previous_status<'a>(
    facts: &'a StatusInputs<'_>,
    kind: ContainerKind,
    name: &str,
) -> Option<&'a ContainerStatus> {
    let previous = facts.previous?;
    let list = match kind {
        ContainerKind::Init | ContainerKind::Sidecar => &previous.init_container_statuses,
        ContainerKind::Regular => &previous.container_statuses,
        ContainerKind::Ephemeral => &previous.ephemeral_container_statuses,
    };
    list.iter().flatten().find(|status| status.name == name)
}
