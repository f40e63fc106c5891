//! Which driver a volume is of, when it is torn down.

use std::path::Path;

use polylet_kit::report;

use super::data::{DATA, VolumeData, read};
use super::device;
use crate::core::csi_volume::CsiVolume;
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::mounts;
use crate::volume::{VolumeError, mount};

/// A volume as its driver knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumeIdentity {
    /// The name of the driver.
    pub(super) driver: String,
    /// The volume handle.
    pub(super) handle: String,
}

impl From<&CsiVolume> for VolumeIdentity {
    fn from(csi: &CsiVolume) -> Self {
        Self {
            driver: csi.driver.clone(),
            handle: csi.handle.clone(),
        }
    }
}

impl From<VolumeData> for VolumeIdentity {
    fn from(data: VolumeData) -> Self {
        Self {
            driver: data.driver_name,
            handle: data.volume_handle,
        }
    }
}

/// Finds the identity of a volume on disk: in its data file, else as this process knows it, else in
/// the data of the staging directory that the same file system is mounted at. `None` if there is
/// nothing to undo.
pub(super) fn find(
    layout: &Layout,
    id: &VolumeId,
    known: Option<VolumeIdentity>,
) -> Result<Option<VolumeIdentity>, VolumeError> {
    let is_device = id.plugin == layout::CSI_DEVICE;
    let file = match is_device {
        true => device::data_file(layout, &id.name),
        false => layout.volume(id).join(DATA),
    };
    let problem = match read(&file) {
        Ok(Some(data)) => return Ok(Some(data.into())),
        Ok(None) => None,
        Err(error) => Some(error),
    };
    let target = match is_device {
        true => layout.device(id),
        false => layout.mounted(id),
    };
    let identity = match known {
        Some(known) => Some(known),
        None => staged(layout, &target)?,
    };
    let Some(problem) = problem else {
        return Ok(identity);
    };
    let (path, error) = (file.display(), report(&problem));
    if identity.is_some() {
        tracing::warn!(%path, error, "unusable volume data; its driver is known from elsewhere");
        return Ok(identity);
    }
    if mount::table()?
        .iter()
        .any(|mount| mount.mount_point == target)
    {
        return Err(VolumeError::UnknownDriver {
            path: layout.volume(id),
            source: Box::new(problem),
        });
    }
    tracing::warn!(%path, error, "unusable data of a volume that is not mounted; removing it");
    Ok(None)
}

/// The identity of the staged volume whose file system is mounted at `target`, too.
fn staged(layout: &Layout, target: &Path) -> Result<Option<VolumeIdentity>, VolumeError> {
    let table = mount::table()?;
    if !table.iter().any(|mount| mount.mount_point == target) {
        return Ok(None);
    }
    let all = layout.csi_plugins();
    let others = mounts::other_mounts(&table, target);
    let staged = others
        .iter()
        .filter(|mount| mount.mount_point.starts_with(&all));
    let data = |dir: &Path| read(&dir.parent()?.join(DATA)).ok().flatten();
    let mut data = staged.filter_map(|mount| data(&mount.mount_point));
    Ok(data.next().map(VolumeIdentity::from))
}
