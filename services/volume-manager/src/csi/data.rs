//! `vol_data.json` beside a CSI volume: its driver and handle, in the kubelet's format.

use std::path::Path;

use polylet_kit::state_file;
use serde::{Deserialize, Serialize};

use crate::core::csi_volume::{CsiVolume, unique_name};
use crate::volume::{VolumeError, dir};

/// The name of the file.
pub const DATA: &str = "vol_data.json";

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeData {
    #[serde(rename = "attachmentID")]
    pub(super) attachment_id: String,
    pub(super) driver_name: String,
    pub(super) node_name: String,
    #[serde(rename = "specVolID")]
    pub(super) spec_vol_id: String,
    pub(super) volume_handle: String,
    pub(super) volume_lifecycle_mode: String,
}

impl VolumeData {
    /// The content for a volume.
    pub(super) fn new(csi: &CsiVolume, node: &str) -> Self {
        let mode = match csi.ephemeral {
            true => "Ephemeral",
            false => "Persistent",
        };
        VolumeData {
            attachment_id: csi.attachment.clone(),
            driver_name: csi.driver.clone(),
            node_name: node.to_owned(),
            spec_vol_id: csi.name.clone(),
            volume_handle: csi.handle.clone(),
            volume_lifecycle_mode: mode.to_owned(),
        }
    }
}

/// The name in the Node's `volumesInUse` of the volume in this file, if it is attached. A file that
/// cannot be used is reported when the volume is torn down.
pub fn in_use(file: &Path) -> Option<String> {
    let data = read(file).ok().flatten();
    let data = data.filter(|data| !data.attachment_id.is_empty())?;
    Some(unique_name(&data.driver_name, &data.volume_handle))
}

pub(super) fn make_dir(path: &Path) -> Result<(), VolumeError> {
    dir::create_all(path, 0o750).map_err(|source| VolumeError::MakeDir {
        path: path.to_owned(),
        source,
    })
}

/// Replaces a file; it is on disk when this returns: after a loss of power it still names the driver
/// that has to be called.
pub(super) fn write(path: &Path, data: &impl Serialize) -> Result<(), VolumeError> {
    // Plain strings: they can always be encoded.
    let text = serde_json::to_vec(data).unwrap_or_default();
    // Not again at each attempt.
    if std::fs::read(path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    state_file::write(path, &text).map_err(|source| VolumeError::Write {
        path: path.to_owned(),
        source,
    })
}

/// The content of a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<VolumeData>, VolumeError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(VolumeError::Open {
                path: path.to_owned(),
                source,
            });
        }
    };
    let data: VolumeData =
        serde_json::from_slice(&text).map_err(|source| VolumeError::VolumeData {
            path: path.to_owned(),
            source,
        })?;
    if data.driver_name.is_empty() || data.volume_handle.is_empty() {
        return Err(VolumeError::IncompleteVolumeData(path.to_owned()));
    }
    Ok(Some(data))
}

pub(super) fn ignore_missing(path: &Path, removed: std::io::Result<()>) -> Result<(), VolumeError> {
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(VolumeError::Remove {
            path: path.to_owned(),
            source: error,
        }),
        _ => Ok(()),
    }
}

pub(super) fn remove_dir(path: &Path) -> Result<(), VolumeError> {
    ignore_missing(path, std::fs::remove_dir(path))
}

pub(super) fn remove_file(path: &Path) -> Result<(), VolumeError> {
    ignore_missing(path, std::fs::remove_file(path))
}
