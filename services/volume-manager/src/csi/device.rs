//! A driver's block device, handed to a pod and taken away again. What is told of it lies in
//! upstream's place, by persistent volume: one on a node has one device, whatever pods share it.

use std::path::{Path, PathBuf};

use super::client;
use super::data::{DATA, VolumeData, gone, make, remove_dir, write};
use super::volume::grow;
use crate::core::csi::Csi;
use crate::core::growth::{self, Growth};
use crate::core::layout::{Layout, VolumeId};
use crate::volume::{VolumeError, blocking, device};

const STAGE: &str = "MapVolume.SetUpDevice failed";
const PUBLISH: &str = "MapVolume.MapPodDevice failed";

/// Where the device is made ready for the whole node.
pub(super) fn staged(layout: &Layout, name: &str) -> PathBuf {
    layout.csi_devices().join("staging").join(name)
}

/// Where the driver puts it for a pod.
fn published(layout: &Layout, id: &VolumeId) -> PathBuf {
    let all = layout.csi_devices().join("publish");
    all.join(&id.name).join(&id.uid)
}

/// What is told of it.
pub fn data(layout: &Layout, name: &str) -> PathBuf {
    layout.csi_devices().join(name).join("data").join(DATA)
}

/// Has the driver make it ready, and hands it to the pod.
pub(super) async fn set_up(
    layout: &Layout,
    id: &VolumeId,
    csi: &Csi,
    node: &str,
) -> Result<(), VolumeError> {
    let (file, told) = (data(layout, &csi.name), VolumeData::of(csi, node));
    let (staging, target) = (staged(layout, &csi.name), published(layout, id));
    let (stages, at, parent) = (csi.stages, staging.clone(), target.clone());
    blocking(move || {
        file.parent().map_or(Ok(()), make)?;
        write(&file, &told)?;
        parent.parent().map_or(Ok(()), make)?;
        if stages { make(&at) } else { Ok(()) }
    })
    .await?;
    device::link(layout, id, &target).await?;
    let staging = csi.stages.then_some(staging);
    if let Some(staging) = &staging {
        let done = client::stage(csi, staging).await;
        done.map_err(|error| VolumeError::from(error).during(STAGE))?;
    }
    let done = client::publish(csi, staging.as_deref(), &target).await;
    done.map_err(|error| VolumeError::from(error).during(PUBLISH))?;
    let mapped = device::map(layout, id, &target).await;
    mapped.map_err(|error| error.during(device::MAP))?;
    if csi.size.growth == Growth::Asked {
        let done = grow(csi, staging.as_deref(), &layout.mounted(id)).await;
        done.map_err(|error| error.during(growth::MAPPING))?;
    }
    Ok(())
}

/// Takes it away from a pod, and from the node when no other pod has it.
pub(super) async fn tear_down(
    layout: &Layout,
    id: &VolumeId,
    endpoint: &Path,
    handle: &str,
) -> Result<(), VolumeError> {
    device::unmap(layout, id).await?;
    let target = published(layout, id);
    client::unpublish(endpoint, handle, &target).await?;
    let staging = staged(layout, &id.name);
    let (of_pods, at) = (target.parent().map(Path::to_owned), staging.clone());
    let last = blocking(move || {
        gone(&target, std::fs::remove_file(&target))?;
        // It goes with the last pod only.
        let last = of_pods.is_none_or(|dir| std::fs::remove_dir(&dir).is_ok() || !dir.exists());
        Ok((last, at.exists()))
    });
    let (last, staged) = last.await?;
    if !last {
        return device::unlink(layout, id).await;
    }
    if staged {
        client::unstage(endpoint, handle, &staging).await?;
    }
    let (file, all) = (data(layout, &id.name), layout.csi_devices().join(&id.name));
    blocking(move || {
        remove_dir(&staging)?;
        remove_dir(&all.join("dev"))?;
        gone(&file, std::fs::remove_file(&file))?;
        remove_dir(&all.join("data"))?;
        remove_dir(&all)
    })
    .await?;
    device::unlink(layout, id).await
}

/// Takes away what is left of one of which nothing is told any more.
pub(super) async fn clear(layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
    device::unmap(layout, id).await?;
    device::unlink(layout, id).await
}
