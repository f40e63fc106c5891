//! What is told of a driver's volume on disk, beside it, in upstream's words.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::core::csi::{Csi, in_use_name};
use crate::volume::VolumeError;

/// Its name.
pub const DATA: &str = "vol_data.json";

/// Upstream's file beside a volume, to the letter.
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
    /// What is told of this volume.
    pub(super) fn of(csi: &Csi, node: &str) -> Self {
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

/// The name in the Node's status of an attached volume that is told of in this file.
pub fn in_use(file: &Path) -> Option<String> {
    let data = read(file).filter(|data| !data.attachment_id.is_empty())?;
    Some(in_use_name(&data.driver_name, &data.volume_handle))
}

pub(super) fn make(path: &Path) -> Result<(), VolumeError> {
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o750).create(path);
    made.map_err(|source| VolumeError::MakeDir {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn write(path: &Path, data: &impl Serialize) -> Result<(), VolumeError> {
    let aside = path.with_extension("new");
    // Plain strings: nothing in it can fail to be written.
    let text = serde_json::to_vec(data).unwrap_or_default();
    let written = std::fs::write(&aside, text).and_then(|()| std::fs::rename(&aside, path));
    written.map_err(|source| VolumeError::Write {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn read(path: &Path) -> Option<VolumeData> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

pub(super) fn gone(path: &Path, done: std::io::Result<()>) -> Result<(), VolumeError> {
    match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(VolumeError::Remove {
            path: path.to_owned(),
            source: error,
        }),
        _ => Ok(()),
    }
}

pub(super) fn remove_dir(path: &Path) -> Result<(), VolumeError> {
    gone(path, std::fs::remove_dir(path))
}

pub(super) fn remove_file(path: &Path) -> Result<(), VolumeError> {
    gone(path, std::fs::remove_file(path))
}
