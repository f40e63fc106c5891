//! The devices of containers in the status.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, ResourceHealth, ResourceStatus};

use super::{PodWorkerState, StatusInputs};

/// The allocated devices of a regular container with their health, sorted.
///
/// The previous ones stay while devices are unknown, and after the pod's end: its devices may be another
/// pod's by then, and the health of those that it had tells why it failed.
pub(super) fn resource_statuses(
    facts: &StatusInputs<'_>,
    container: &str,
    previous: Option<&ContainerStatus>,
) -> Option<Vec<ResourceStatus>> {
    let retained = || previous.and_then(|it| it.allocated_resources_status.clone());
    let Some(devices) = facts.devices else {
        return retained();
    };
    let mut resources = BTreeMap::<&str, BTreeMap<&str, bool>>::new();
    for device in devices.iter().filter(|it| it.container == container) {
        let of_resource = resources.entry(&device.resource).or_default();
        of_resource.insert(&device.id, device.healthy);
    }
    if resources.is_empty() && facts.worker_state == PodWorkerState::Terminated {
        return retained();
    }
    let statuses = resources.into_iter().map(|(name, devices)| ResourceStatus {
        name: name.to_owned(),
        resources: Some(devices.into_iter().map(health).collect()),
    });
    super::non_empty_list(statuses.collect())
}

fn health((id, healthy): (&str, bool)) -> ResourceHealth {
    ResourceHealth {
        resource_id: id.to_owned(),
        health: Some(if healthy { "Healthy" } else { "Unhealthy" }.to_owned()),
        ..ResourceHealth::default()
    }
}
