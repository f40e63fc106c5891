//! Devices of device plugins: what a pod requests, and what device-manager answers.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use polylet_model::extended_resource::is_extended;
use polylet_model::node::ResourceList;
use polylet_model::{ContainerKind, quantity};

/// The limits of extended resources of a container, which device plugins may offer. Ephemeral
/// containers have none.
pub fn device_limits(kind: ContainerKind, container: &Container) -> BTreeMap<String, u64> {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let limits = quantity::parse_list(limits.filter(|_| kind != ContainerKind::Ephemeral));
    let limits = limits
        .into_iter()
        .map(|(name, amount)| (name, amount.bytes()));
    limits
        .filter(|(name, count)| is_extended(name) && *count > 0)
        .collect()
}

/// The devices that a pod requests, with what device-manager has to know of the node's other pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodDeviceRequest {
    /// When the active pods were listed, since the machine's boot.
    pub active_as_of: Duration,
    /// The containers that request devices, init containers first.
    pub containers: Vec<ContainerDeviceLimits>,
    /// UIDs of all pods that may still use devices.
    pub active_pod_uids: Vec<String>,
    /// Whether these are all pods of the node.
    pub pods_synced: bool,
}

/// The devices that a container requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerDeviceLimits {
    /// The container's name.
    pub container: String,
    /// Limits of extended resources.
    pub limits: BTreeMap<String, u64>,
    /// Later containers may have its devices.
    pub releases_devices: bool,
    /// The container runs.
    pub running: bool,
}

/// Whether a pod got the devices that it requests.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceAdmission {
    /// It has them. The devices that are allocated to all pods, by resource; empty if the pod has none.
    Allocated(ResourceList),
    /// It cannot have them, with upstream's error.
    Refused(String),
}

/// What the next start of a container needs to use its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreparedDevices {
    /// Environment variables.
    pub envs: BTreeMap<String, String>,
    /// Directories and files of the node.
    pub mounts: Vec<PreparedDeviceMount>,
    /// Device nodes.
    pub nodes: Vec<PreparedDeviceNode>,
    /// Annotations of the container in the runtime.
    pub annotations: BTreeMap<String, String>,
    /// Names of CDI devices.
    pub cdi_devices: Vec<String>,
}

/// A mount that devices need.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedDeviceMount {
    /// The path in the container.
    pub container_path: String,
    /// The path on the node.
    pub host_path: String,
    /// Whether the container may only read it.
    pub read_only: bool,
}

/// A device node that a container gets.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedDeviceNode {
    /// The path in the container.
    pub container_path: String,
    /// The path on the node.
    pub host_path: String,
    /// Of r (read), w (write), m (mknod).
    pub permissions: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_limits_of_extended_resources_request_devices() {
        let container = json!({"name": "a", "resources": {
            "requests": {"example.com/requested": "1"},
            "limits": {"cpu": "1", "hugepages-2Mi": "2Mi", "kubernetes.io/own": "1",
                "requests.example.com/quota": "1", "example.com/none": "0",
                "example.com/device": "2", "example.com/kilo": "1k"}}});
        let container: Container = serde_json::from_value(container).unwrap();
        let expected = [("example.com/device", 2), ("example.com/kilo", 1000)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        for kind in [
            ContainerKind::Init,
            ContainerKind::Sidecar,
            ContainerKind::Regular,
        ] {
            assert_eq!(device_limits(kind, &container), expected.clone().into());
        }
        let ephemeral = device_limits(ContainerKind::Ephemeral, &container);
        assert_eq!(ephemeral, BTreeMap::new());
    }
}
