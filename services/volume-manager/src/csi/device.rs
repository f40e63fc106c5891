//! Block devices of CSI drivers. Their data files are at upstream's paths, by persistent volume: a
//! node has one device of each, even if several pods share it.

use std::path::{Path, PathBuf};

use super::client;
use super::data::{DATA, VolumeData, ignore_missing, make_dir, remove_dir, write};
use super::expand::expand;
use crate::core::csi_volume::CsiVolume;
use crate::core::layout::{Layout, VolumeId};
use crate::core::resize::{self, Expansion};
use crate::subprocess::Subprocesses;
use crate::volume::{VolumeError, blocking, device, dir};

const STAGE_STEP: &str = "MapVolume.SetUpDevice failed";
const PUBLISH_STEP: &str = "MapVolume.MapPodDevice failed";

/// The staging path of a device.
pub(super) fn staging_path(layout: &Layout, name: &str) -> PathBuf {
    layout.csi_devices().join("staging").join(name)
}

/// The path at which the driver publishes it for a pod.
fn publish_path(layout: &Layout, id: &VolumeId) -> PathBuf {
    let dir = layout.csi_devices().join("publish");
    dir.join(&id.name).join(id.uid.as_str())
}

/// The path of its data file.
pub fn data_file(layout: &Layout, name: &str) -> PathBuf {
    layout.csi_devices().join(name).join("data").join(DATA)
}

/// Stages and publishes a device, and maps it to the pod.
pub(super) async fn set_up(
    layout: &Layout,
    id: &VolumeId,
    csi: &CsiVolume,
    node: &str,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    let (file, data) = (data_file(layout, &csi.name), VolumeData::new(csi, node));
    let (staging, target) = (staging_path(layout, &csi.name), publish_path(layout, id));
    let (stages, staging_dir, parent) = (csi.stages, staging.clone(), target.clone());
    blocking(move || {
        file.parent().map_or(Ok(()), make_dir)?;
        write(&file, &data)?;
        parent.parent().map_or(Ok(()), make_dir)?;
        if stages {
            make_dir(&staging_dir)
        } else {
            Ok(())
        }
    })
    .await?;
    device::link(layout, id, &target).await?;
    let staging = csi.stages.then_some(staging);
    if let Some(staging) = &staging {
        let done = client::stage(csi, staging).await;
        done.map_err(|error| VolumeError::from(error).in_step(STAGE_STEP))?;
    }
    let done = client::publish(csi, staging.as_deref(), &target).await;
    done.map_err(|error| VolumeError::from(error).in_step(PUBLISH_STEP))?;
    let mapped = device::map(layout, id, &target, subprocesses).await;
    mapped.map_err(|error| error.in_step(device::MAP_STEP))?;
    if csi.size.expansion == Expansion::Requested {
        let done = expand(csi, staging.as_deref(), &layout.mounted(id)).await;
        done.map_err(|error| error.in_step(resize::MAP_STEP))?;
    }
    Ok(())
}

/// Unmaps and unpublishes a device, and unstages it when no other pod has it.
pub(super) async fn tear_down(
    layout: &Layout,
    id: &VolumeId,
    endpoint: &Path,
    handle: &str,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    device::unmap(layout, id, subprocesses).await?;
    let target = publish_path(layout, id);
    client::unpublish(endpoint, handle, &target).await?;
    let staging = staging_path(layout, &id.name);
    let (pods_dir, staging_dir) = (target.parent().map(Path::to_owned), staging.clone());
    let last = blocking(move || {
        ignore_missing(&target, std::fs::remove_file(&target))?;
        // Fails while other pods have the device.
        let last = pods_dir.is_none_or(|dir| std::fs::remove_dir(&dir).is_ok() || !dir.exists());
        let is_staged = dir::exists(&staging_dir).map_err(|source| VolumeError::Open {
            path: staging_dir.clone(),
            source,
        })?;
        Ok((last, is_staged))
    });
    let (last, is_staged) = last.await?;
    if !last {
        return device::unlink(layout, id).await;
    }
    if is_staged {
        client::unstage(endpoint, handle, &staging).await?;
    }
    let (file, dir) = (
        data_file(layout, &id.name),
        layout.csi_devices().join(&id.name),
    );
    blocking(move || {
        remove_dir(&staging)?;
        remove_dir(&dir.join("dev"))?;
        ignore_missing(&file, std::fs::remove_file(&file))?;
        remove_dir(&dir.join("data"))?;
        remove_dir(&dir)
    })
    .await?;
    device::unlink(layout, id).await
}

/// Removes what is left of a device without a data file.
pub(super) async fn clean_up(
    layout: &Layout,
    id: &VolumeId,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    device::unmap(layout, id, subprocesses).await?;
    device::unlink(layout, id).await
}
