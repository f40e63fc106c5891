//! The checkpoint file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use polylet_kit::{report, state_file};
use polylet_wire::deviceplugin::v1beta1::ContainerAllocateResponse;
use prost::Message;
use thiserror::Error;

use crate::convert;
use crate::core::allocations::{AllocatedResource, AllocationKey, DeviceAllocations};
use crate::core::checkpoint::{
    Base64, DeviceCheckpoint, DeviceCheckpointError, FILE_NAME, PodDevicesEntry,
};
use crate::core::inventory::DeviceInventory;

/// Why an allocation cannot be stored.
#[derive(Debug, Error)]
pub(crate) enum SaveDevicesError {
    /// The checkpoint cannot be encoded.
    #[error("failed to encode checkpoint {path}")]
    Encode {
        path: PathBuf,
        #[source]
        source: DeviceCheckpointError,
    },
    /// The file cannot be written.
    #[error("failed to write checkpoint file {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The checkpoint in the directory of plugins, in the kubelet's format.
pub(crate) struct DeviceCheckpointFile {
    path: PathBuf,
    /// What the file holds, unless that is not known.
    written: Option<Vec<u8>>,
}

impl DeviceCheckpointFile {
    pub(crate) fn new(directory: &Path) -> Self {
        DeviceCheckpointFile {
            path: directory.join(FILE_NAME),
            written: None,
        }
    }

    /// What is stored. A file that cannot be used is set aside, and counts as none, as upstream.
    pub(crate) fn restore(&self) -> DeviceCheckpoint {
        let path = self.path.display();
        let effect = "the devices of running containers are not known";
        let content = match std::fs::read(&self.path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return DeviceCheckpoint::default();
            }
            Err(error) => {
                tracing::warn!(%path, %error, effect, "cannot read the checkpoint of devices");
                return DeviceCheckpoint::default();
            }
        };
        match DeviceCheckpoint::decode(&content) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                let error = report(&error);
                tracing::warn!(%path, error, effect, "corrupt checkpoint of devices; setting it aside");
                if let Err(error) = state_file::set_aside(&self.path) {
                    let error = report(&error);
                    tracing::warn!(%path, error, "could not set the corrupt checkpoint aside");
                }
                DeviceCheckpoint::default()
            }
        }
    }

    /// Stores a checkpoint, unless the file holds it already.
    pub(crate) fn save(&mut self, checkpoint: &DeviceCheckpoint) -> Result<(), SaveDevicesError> {
        let path = || self.path.clone();
        let content = checkpoint
            .encode()
            .map_err(|source| SaveDevicesError::Encode {
                path: path(),
                source,
            })?;
        if self.written.as_ref() == Some(&content) {
            return Ok(());
        }
        let written = state_file::replace(&self.path, |file| file.write_all(&content));
        self.written = written.is_ok().then_some(content);
        let failed = |source| SaveDevicesError::Write {
            path: path(),
            source,
        };
        written.map(drop).map_err(failed)
    }
}

/// What a checkpoint holds of the present state.
pub(crate) fn checkpoint_of(
    inventory: &DeviceInventory,
    allocations: &DeviceAllocations,
) -> DeviceCheckpoint {
    let entry = |(key, allocated): (AllocationKey, &AllocatedResource)| {
        let response = convert::allocate_response(&allocated.run_options);
        let devices = allocated.devices.iter();
        PodDevicesEntry {
            pod_uid: key.pod_uid,
            container_name: key.container,
            resource_name: key.resource,
            device_ids: Some(
                devices
                    .map(|(node, ids)| (*node, Some(ids.clone())))
                    .collect(),
            ),
            alloc_resp: Some(Base64(response.encode_to_vec())),
        }
    };
    let registered = inventory.registered().map(|resource| {
        let healthy = inventory.healthy(resource).into_iter().collect();
        (resource.to_owned(), Some(healthy))
    });
    let entries: Vec<PodDevicesEntry> = allocations.iter().map(entry).collect();
    DeviceCheckpoint {
        pod_device_entries: (!entries.is_empty()).then_some(entries),
        registered_devices: Some(registered.collect()),
    }
}

/// The allocations of a checkpoint. An entry whose answer cannot be decoded is left out, as upstream.
pub(crate) fn allocations_of(checkpoint: &DeviceCheckpoint) -> DeviceAllocations {
    let mut allocations = DeviceAllocations::default();
    for entry in checkpoint.pod_device_entries.iter().flatten() {
        let response = entry.alloc_resp.as_ref().map(|bytes| &bytes.0[..]);
        let response = match ContainerAllocateResponse::decode(response.unwrap_or_default()) {
            Ok(response) => response,
            Err(error) => {
                let (pod, container, resource) =
                    (&entry.pod_uid, &entry.container_name, &entry.resource_name);
                tracing::warn!(pod, container, resource, %error, "ignoring an invalid entry of the checkpoint of devices");
                continue;
            }
        };
        let devices = entry.device_ids.iter().flatten();
        let devices = devices.map(|(node, ids)| (*node, ids.clone().unwrap_or_default()));
        let key = AllocationKey {
            pod_uid: entry.pod_uid.clone(),
            container: entry.container_name.clone(),
            resource: entry.resource_name.clone(),
        };
        let allocated = AllocatedResource {
            devices: devices.collect(),
            run_options: convert::run_options(response),
        };
        allocations.insert(key, allocated);
    }
    allocations
}
