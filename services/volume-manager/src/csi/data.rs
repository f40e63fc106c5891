//! `vol_data.json` beside a CSI volume: its driver and handle, in the kubelet's format.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::core::csi_volume::{CsiVolume, unique_name};
use crate::volume::VolumeError;

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

/// The name in the Node's `volumesInUse` of the volume in this file, if it is attached.
pub fn in_use(file: &Path) -> Option<String> {
    let data = read(file).filter(|data| !data.attachment_id.is_empty())?;
    Some(unique_name(&data.driver_name, &data.volume_handle))
}

pub(super) fn make_dir(path: &Path) -> Result<(), VolumeError> {
    let mut builder = std::fs::DirBuilder::new();
    let created = builder.recursive(true).mode(0o750).create(path);
    created.map_err(|source| VolumeError::MakeDir {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn write(path: &Path, data: &impl Serialize) -> Result<(), VolumeError> {
    let temporary = path.with_extension("new");
    // Plain strings: they can always be encoded.
    let text = serde_json::to_vec(data).unwrap_or_default();
    let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|source| VolumeError::Write {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn read(path: &Path) -> Option<VolumeData> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
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
