//! Requests for devices, and what device-manager answers.

use polylet_wire::common::v1::PodRef;
use polylet_wire::device::v1::{
    AllocateDevicesRequest, AllocateDevicesResponse, ContainerDeviceRequest,
    PrepareContainerResponse,
};

use crate::core::devices::{
    ContainerDeviceLimits, DeviceAdmission, PodDeviceRequest, PreparedDeviceMount,
    PreparedDeviceNode, PreparedDevices,
};

/// The request for a pod's devices, made from the present span.
pub(crate) fn device_request(pod: &PodRef, request: &PodDeviceRequest) -> AllocateDevicesRequest {
    let container = |container: &ContainerDeviceLimits| ContainerDeviceRequest {
        name: container.container.clone(),
        limits: container.limits.clone(),
        releases_devices: container.releases_devices,
        running: container.running,
    };
    AllocateDevicesRequest {
        r#ref: Some(pod.clone()),
        containers: request.containers.iter().map(container).collect(),
        active_pod_uids: request.active_pod_uids.clone(),
        pods_synced: request.pods_synced,
        cause: Some(polylet_kit::cause::from_current_span()),
        active_as_of: u64::try_from(request.active_as_of.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Whether the pod got its devices.
pub(crate) fn device_admission(response: AllocateDevicesResponse) -> DeviceAdmission {
    if !response.error.is_empty() {
        return DeviceAdmission::Refused(response.error);
    }
    let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
    let allocated = response.allocated.into_iter();
    DeviceAdmission::Allocated(allocated.map(|(name, all)| (name, count(all))).collect())
}

/// What a container needs to use its devices.
///
/// # Errors
/// Why it cannot be started with them.
pub(crate) fn prepared_devices(
    response: PrepareContainerResponse,
) -> Result<PreparedDevices, String> {
    if !response.error.is_empty() {
        return Err(response.error);
    }
    let mounts = response
        .mounts
        .into_iter()
        .map(|mount| PreparedDeviceMount {
            container_path: mount.container_path,
            host_path: mount.host_path,
            read_only: mount.read_only,
        });
    let nodes = response.devices.into_iter().map(|node| PreparedDeviceNode {
        container_path: node.container_path,
        host_path: node.host_path,
        permissions: node.permissions,
    });
    Ok(PreparedDevices {
        envs: response.envs,
        mounts: mounts.collect(),
        nodes: nodes.collect(),
        annotations: response.annotations,
        cdi_devices: response.cdi_devices,
    })
}

#[cfg(test)]
mod tests {
    use polylet_wire::device::v1::{DeviceMount, DeviceNode};

    use std::time::Duration;

    use super::*;

    #[test]
    fn an_error_refuses_the_devices_whatever_is_allocated() {
        let counts = |amount| [("example.com/device".to_owned(), amount)].into();
        for (error, count, expected) in [
            ("", 3, DeviceAdmission::Allocated(counts(3))),
            (
                "",
                u64::MAX,
                DeviceAdmission::Allocated([("example.com/device".to_owned(), i64::MAX)].into()),
            ),
            ("none left", 3, DeviceAdmission::Refused("none left".into())),
        ] {
            let response = AllocateDevicesResponse {
                error: error.to_owned(),
                allocated: [("example.com/device".to_owned(), count)].into(),
            };
            assert_eq!(device_admission(response), expected);
        }
        let none = device_admission(AllocateDevicesResponse::default());
        assert_eq!(none, DeviceAdmission::Allocated(Default::default()));
    }

    #[test]
    fn the_request_has_all_containers_with_their_limits() {
        let pod = PodRef {
            uid: "u1".to_owned(),
            ..PodRef::default()
        };
        let request = PodDeviceRequest {
            active_as_of: Duration::from_nanos(7),
            containers: vec![ContainerDeviceLimits {
                container: "a".to_owned(),
                limits: [("example.com/device".to_owned(), 2)].into(),
                releases_devices: true,
                running: true,
            }],
            active_pod_uids: vec!["u1".to_owned(), "u2".to_owned()],
            pods_synced: true,
        };
        let wire = device_request(&pod, &request);
        let container = ContainerDeviceRequest {
            name: "a".to_owned(),
            limits: [("example.com/device".to_owned(), 2)].into(),
            releases_devices: true,
            running: true,
        };
        assert_eq!(wire.r#ref, Some(pod));
        assert_eq!(wire.containers, [container]);
        assert_eq!(wire.active_pod_uids, ["u1", "u2"]);
        assert!(wire.pods_synced && wire.cause.is_some());
        assert_eq!(wire.active_as_of, 7);
    }

    #[test]
    fn prepared_devices_keep_every_field() {
        let response = PrepareContainerResponse {
            error: String::new(),
            envs: [("A".to_owned(), "1".to_owned())].into(),
            mounts: vec![DeviceMount {
                container_path: "/in".to_owned(),
                host_path: "/out".to_owned(),
                read_only: true,
            }],
            devices: vec![DeviceNode {
                container_path: "/dev/in".to_owned(),
                host_path: "/dev/out".to_owned(),
                permissions: "rw".to_owned(),
            }],
            annotations: [("k".to_owned(), "v".to_owned())].into(),
            cdi_devices: vec!["example.com/class=a".to_owned()],
        };
        let prepared = prepared_devices(response.clone()).expect("no error");
        assert_eq!(prepared.envs, response.envs);
        assert_eq!(prepared.annotations, response.annotations);
        assert_eq!(prepared.cdi_devices, response.cdi_devices);
        let mount = &prepared.mounts[0];
        let paths = (mount.container_path.as_str(), mount.host_path.as_str());
        assert_eq!((paths, mount.read_only), (("/in", "/out"), true));
        let node = &prepared.nodes[0];
        let paths = (node.container_path.as_str(), node.host_path.as_str());
        let permissions = node.permissions.as_str();
        assert_eq!((paths, permissions), (("/dev/in", "/dev/out"), "rw"));
        let failed = PrepareContainerResponse {
            error: "no devices".to_owned(),
            ..response
        };
        assert_eq!(prepared_devices(failed), Err("no devices".to_owned()));
    }
}
