//! Mounting and unmounting volumes of CSI drivers. The data file is written before the first call to
//! the driver, so that a restarted process can undo it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::data::{DATA, VolumeData, make_dir, read, remove_dir, remove_file, write};
use super::expand::expand;
use super::{client, device};
use crate::core::csi_volume::{CsiVolume, RegisteredDriver, sha256};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::operation::VolumeUpdate;
use crate::core::resize::{self, Expansion};
use crate::keyed_lock::KeyedMutex;
use crate::volume::progress::OwnershipProgress;
use crate::volume::{VolumeError, blocking, dir, fs_group};

const STAGE_STEP: &str = "MountVolume.MountDevice failed";

/// The drivers on this node. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct CsiDrivers {
    node: Arc<str>,
    endpoints: Arc<Mutex<BTreeMap<String, PathBuf>>>,
    /// One call at a time for each volume.
    locks: KeyedMutex,
}

impl CsiDrivers {
    /// No drivers yet, on a node of this name.
    pub fn new(node: &str) -> Self {
        CsiDrivers {
            node: node.into(),
            ..CsiDrivers::default()
        }
    }

    /// Sets the registered drivers.
    pub fn set(&self, drivers: &BTreeMap<String, RegisteredDriver>) {
        let drivers = drivers
            .values()
            .map(|d| (d.name.clone(), d.endpoint.clone()));
        *self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = drivers.collect();
    }

    fn endpoint(&self, driver: &str) -> Result<PathBuf, VolumeError> {
        let endpoints = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let endpoint = endpoints.get(driver).cloned();
        endpoint.ok_or_else(|| VolumeError::DriverNotRegistered(driver.to_owned()))
    }

    /// Stages and publishes a volume for a pod.
    pub async fn set_up(
        &self,
        layout: &Layout,
        id: &VolumeId,
        csi: &CsiVolume,
        progress: &OwnershipProgress,
    ) -> Result<(), VolumeError> {
        let _lock = self.locks.lock(lock_key(&csi.driver, &csi.handle)).await;
        if csi.block {
            return device::set_up(layout, id, csi, &self.node).await;
        }
        let target = layout.mounted(id);
        let data = VolumeData::new(csi, &self.node);
        let volume_dir = layout.volume(id);
        blocking(move || {
            make_dir(&volume_dir)?;
            write(&volume_dir.join(DATA), &data)
        })
        .await?;
        let staging = staging_path(layout, csi);
        if let Some(staging) = &staging {
            let (at, driver, handle) = (staging.clone(), csi.driver.clone(), csi.handle.clone());
            blocking(move || {
                make_dir(&at)?;
                let data = BTreeMap::from([("driverName", driver), ("volumeHandle", handle)]);
                match at.parent() {
                    Some(beside) => write(&beside.join(DATA), &data),
                    None => Ok(()),
                }
            })
            .await?;
            let done = client::stage(csi, staging).await;
            done.map_err(|error| VolumeError::from(error).in_step(STAGE_STEP))?;
        }
        client::publish(csi, staging.as_deref(), &target).await?;
        if let Some(gid) = csi.gid {
            let (at, on_root_mismatch) = (target.clone(), csi.on_root_mismatch);
            let progress = progress.clone();
            blocking(move || {
                fs_group::set_ownership(&dir::open(&at)?, &at, gid, on_root_mismatch, &progress)
            })
            .await?;
        }
        if csi.size.expansion == Expansion::Requested {
            let done = expand(csi, staging.as_deref(), &target).await;
            done.map_err(|error| error.in_step(resize::MOUNT_STEP))?;
        }
        Ok(())
    }

    /// Updates a mounted volume.
    pub async fn update(
        &self,
        layout: &Layout,
        id: &VolumeId,
        csi: &CsiVolume,
        update: VolumeUpdate,
    ) -> Result<(), VolumeError> {
        let _lock = self.locks.lock(lock_key(&csi.driver, &csi.handle)).await;
        let staging = staging_path(layout, csi);
        let target = layout.mounted(id);
        match update {
            VolumeUpdate::Republish => client::publish(csi, staging.as_deref(), &target).await?,
            VolumeUpdate::Expand => expand(csi, staging.as_deref(), &target).await?,
        }
        Ok(())
    }

    /// Unpublishes a volume for a pod, and unstages it when no other pod has it.
    pub async fn tear_down(&self, layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
        let volume_dir = layout.volume(id);
        let file = match id.plugin.as_str() {
            layout::CSI_DEVICE => device::data_file(layout, &id.name),
            _ => volume_dir.join(DATA),
        };
        let Some(data) = blocking(move || Ok(read(&file))).await? else {
            return match id.plugin.as_str() {
                layout::CSI_DEVICE => device::clean_up(layout, id).await,
                _ => Ok(()),
            };
        };
        let (driver, handle) = (data.driver_name, data.volume_handle);
        let _lock = self.locks.lock(lock_key(&driver, &handle)).await;
        let endpoint = self.endpoint(&driver)?;
        if id.plugin == layout::CSI_DEVICE {
            return device::tear_down(layout, id, &endpoint, &handle).await;
        }
        let target = layout.mounted(id);
        client::unpublish(&endpoint, &handle, &target).await?;
        let staging = layout.staging(&driver, &sha256(&handle));
        let (pods, at) = (layout.clone(), staging.clone());
        let (name, volume, own_dir) = (driver.clone(), handle.clone(), volume_dir.clone());
        let last = blocking(move || {
            let others = used_by_others(&pods, &own_dir, &name, &volume);
            Ok(!others && at.exists())
        });
        if last.await? {
            client::unstage(&endpoint, &handle, &staging).await?;
        }
        blocking(move || {
            remove_dir(&target)?;
            if !staging.as_os_str().is_empty() && remove_data_if_empty(&staging) {
                remove_dir(&staging)?;
            }
            remove_file(&volume_dir.join(DATA))
        })
        .await
    }
}

fn lock_key(driver: &str, handle: &str) -> String {
    format!("{driver}^{handle}")
}

/// The staging path of a volume, if its driver stages volumes.
pub fn staging_path(layout: &Layout, csi: &CsiVolume) -> Option<PathBuf> {
    let at = match csi.block {
        true => device::staging_path(layout, &csi.name),
        false => layout.staging(&csi.driver, &sha256(&csi.handle)),
    };
    csi.stages.then_some(at)
}

/// Removes the data file beside an empty staging directory; returns whether it did.
fn remove_data_if_empty(staging: &Path) -> bool {
    let empty = std::fs::read_dir(staging).is_ok_and(|mut names| names.next().is_none());
    let beside = staging.parent().map(|dir| dir.join(DATA));
    empty && beside.is_some_and(|data| std::fs::remove_file(data).is_ok())
}

/// Whether another pod has the volume.
fn used_by_others(layout: &Layout, own_dir: &Path, driver: &str, handle: &str) -> bool {
    let list = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut volumes = list(&layout.pods())
        .flat_map(|pod| list(&pod.path().join("volumes").join(layout::CSI)))
        .map(|volume| volume.path())
        .filter(|volume| volume != own_dir);
    volumes.any(|volume| {
        read(&volume.join(DATA))
            .is_some_and(|d| d.driver_name == driver && d.volume_handle == handle)
    })
}
