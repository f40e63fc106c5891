//! Devices of device plugins: calls to device-manager, and what the runtime gets of its answers.

use std::rc::Rc;
use std::time::Duration;

use polylet_cri::v1;
use polylet_wire::device::v1::PrepareContainerRequest;

use super::{RuntimeManager, StepContext, config_error, failure};
use crate::convert;
use crate::core::devices::PreparedDevices;
use crate::core::step::{StepFailure, StepOutcome};

/// The deadline of both calls. Above device-manager's own deadlines for what it calls plugins for: 30 s
/// to choose devices, 60 s to allocate them, 30 s to prepare a start.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(150);

/// Has the devices of a pod allocated.
pub async fn allocate(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
) -> Result<StepOutcome, StepFailure> {
    const REASON: &str = "DeviceError";
    let request = context.device_request.as_ref();
    let request = request.ok_or_else(|| failure(REASON, "the pod has no manifest"))?;
    let mut request = tonic::Request::new(convert::device_request(&context.pod, request));
    request.set_timeout(DEVICE_TIMEOUT);
    let response = manager.devices.clone().allocate_devices(request).await;
    let response = response.map_err(|status| failure(REASON, status.message()))?;
    let admission = convert::device_admission(response.into_inner());
    Ok(StepOutcome::DevicesAllocated(admission))
}

/// Has the devices of a container prepared for its next start.
pub async fn prepare(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    container: &str,
) -> Result<StepOutcome, StepFailure> {
    let request = context.device_request.as_ref();
    let request = request.ok_or_else(|| config_error("the pod has no manifest"))?;
    let mut request = tonic::Request::new(PrepareContainerRequest {
        pod: Some(convert::device_request(&context.pod, request)),
        container: container.to_owned(),
    });
    request.set_timeout(DEVICE_TIMEOUT);
    let response = manager.devices.clone().prepare_container(request).await;
    let response = response.map_err(|status| config_error(status.message()))?;
    let prepared = convert::prepared_devices(response.into_inner()).map_err(config_error)?;
    Ok(StepOutcome::DevicesPrepared(prepared))
}

/// The mounts of a container: those that its devices need come first.
pub fn with_device_mounts(devices: &PreparedDevices, own: Vec<v1::Mount>) -> Vec<v1::Mount> {
    let mounts = devices.mounts.iter().map(|mount| v1::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.read_only,
        ..Default::default()
    });
    mounts.chain(own).collect()
}

/// The device nodes of a container: those of device plugins before block volumes.
pub fn with_device_nodes(devices: &PreparedDevices, volumes: Vec<v1::Device>) -> Vec<v1::Device> {
    let nodes = devices.nodes.iter().map(|node| v1::Device {
        container_path: node.container_path.clone(),
        host_path: node.host_path.clone(),
        permissions: node.permissions.clone(),
    });
    nodes.chain(volumes).collect()
}

/// The CDI devices of a container.
pub fn cdi_devices(devices: &PreparedDevices) -> Vec<v1::CdiDevice> {
    let names = devices.cdi_devices.iter().cloned();
    names.map(|name| v1::CdiDevice { name }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::devices::{PreparedDeviceMount, PreparedDeviceNode};

    /// As upstream, neither replaces another one of the same path: that is left to the runtime.
    #[test]
    fn mounts_and_nodes_of_devices_come_before_those_of_the_manifest() {
        let devices = PreparedDevices {
            mounts: vec![PreparedDeviceMount {
                container_path: "/data".to_owned(),
                host_path: "/plugin".to_owned(),
                read_only: true,
            }],
            nodes: vec![PreparedDeviceNode {
                container_path: "/dev/a".to_owned(),
                host_path: "/dev/plugin".to_owned(),
                permissions: "rw".to_owned(),
            }],
            cdi_devices: vec!["example.com/class=a".to_owned()],
            ..PreparedDevices::default()
        };
        let own = v1::Mount {
            container_path: "/data".to_owned(),
            host_path: "/volume".to_owned(),
            selinux_relabel: true,
            ..Default::default()
        };
        let plugin = v1::Mount {
            container_path: "/data".to_owned(),
            host_path: "/plugin".to_owned(),
            readonly: true,
            ..Default::default()
        };
        let mounts = with_device_mounts(&devices, vec![own.clone()]);
        assert_eq!(mounts, [plugin, own.clone()]);
        let device = |host_path: &str, permissions: &str| v1::Device {
            container_path: "/dev/a".to_owned(),
            host_path: host_path.to_owned(),
            permissions: permissions.to_owned(),
        };
        let volume = device("/volume", "mrw");
        let nodes = with_device_nodes(&devices, vec![volume.clone()]);
        assert_eq!(nodes, [device("/dev/plugin", "rw"), volume]);
        let [cdi] = &cdi_devices(&devices)[..] else {
            panic!("one CDI device")
        };
        assert_eq!(cdi.name, "example.com/class=a");
        let none = PreparedDevices::default();
        assert_eq!(with_device_mounts(&none, vec![own.clone()]), [own]);
    }
}
