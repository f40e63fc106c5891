//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz` and the simulation.

use polylet_cri::v1;
use polylet_wire::pleg::v1::RefreshPodRequest;

use crate::convert;
use crate::core::{
    ContainerStatus, HealthCheck, PodIdentity, PodListing, RecordChange, RuntimeEvent,
    SandboxStatus,
};

/// Converts the runtime's two lists.
pub fn listing(
    sandboxes: v1::ListPodSandboxResponse,
    containers: v1::ListContainersResponse,
) -> PodListing {
    convert::listing(sandboxes.items, containers.containers)
}

/// Converts the status of a sandbox.
pub fn sandbox(status: v1::PodSandboxStatus) -> SandboxStatus {
    convert::sandbox(status)
}

/// Converts the status of a container, with its verbose information.
pub fn container(response: v1::ContainerStatusResponse, sandbox_id: String) -> ContainerStatus {
    convert::pid(&response.info);
    convert::container(response.status.unwrap_or_default(), sandbox_id)
}

/// Converts an event of the runtime.
pub fn event(event: v1::ContainerEventResponse) -> RuntimeEvent {
    convert::event(event)
}

/// Converts the status of the runtime.
pub fn health_check(version: v1::VersionResponse, status: v1::StatusResponse) -> HealthCheck {
    convert::health_check(version, status)
}

/// Converts the pod and the changes of a refresh.
pub fn refresh_scope(request: RefreshPodRequest) -> (PodIdentity, Vec<RecordChange>) {
    convert::refresh_scope(request)
}
