//! Mounting and unmounting volumes of CSI drivers. The data file is written before the first call to
//! the driver, so that a restarted process can undo it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylet_kit::{CancellationToken, report};

use super::data::{DATA, VolumeData, make_dir, read, remove_dir, remove_file, write};
use super::expand::expand;
use super::identity::{self, VolumeIdentity};
use super::{client, device};
use crate::core::csi_volume::{CsiVolume, RegisteredDriver, sha256};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::operation::VolumeUpdate;
use crate::core::resize::{self, Expansion};
use crate::keyed_lock::KeyedMutex;
use crate::subprocess::Subprocesses;
use crate::volume::fs_group::SetOwnershipTask;
use crate::volume::progress::OwnershipProgress;
use crate::volume::{VolumeError, blocking, dir, mount};

const STAGE_STEP: &str = "MountVolume.MountDevice failed";

/// The drivers on this node. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct CsiDrivers {
    node: Arc<str>,
    endpoints: Arc<Mutex<BTreeMap<String, PathBuf>>>,
    /// One call at a time for each volume.
    locks: KeyedMutex,
    /// The volumes set up by this process, in case their data files are lost.
    identities: Arc<Mutex<BTreeMap<VolumeId, VolumeIdentity>>>,
}

/// What accompanies the set-up of a volume.
#[derive(Debug, Clone, Copy)]
pub struct SetUpContext<'a> {
    /// For calls to the volume's file system.
    pub subprocesses: &'a Subprocesses,
    /// The progress of a change of ownership.
    pub progress: &'a OwnershipProgress,
    /// The set-up is abandoned.
    pub cancel: &'a CancellationToken,
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
        context: SetUpContext<'_>,
    ) -> Result<(), VolumeError> {
        let _lock = self.locks.lock(lock_key(&csi.driver, &csi.handle)).await;
        self.identities().insert(id.clone(), csi.into());
        if csi.block {
            return device::set_up(layout, id, csi, &self.node, context.subprocesses).await;
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
            let task = SetOwnershipTask {
                path: target.clone(),
                gid,
                on_root_mismatch: csi.on_root_mismatch,
            };
            let SetUpContext {
                subprocesses,
                progress,
                cancel,
            } = context;
            task.start(&id.uid, subprocesses, progress, cancel).await?;
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
    pub async fn tear_down(
        &self,
        layout: &Layout,
        id: &VolumeId,
        subprocesses: &Subprocesses,
    ) -> Result<(), VolumeError> {
        let known = self.identities().get(id).cloned();
        let (at, volume) = (layout.clone(), id.clone());
        let identity = blocking(move || identity::find(&at, &volume, known)).await?;
        let Some(VolumeIdentity { driver, handle }) = identity else {
            return match id.plugin.as_str() {
                layout::CSI_DEVICE => device::clean_up(layout, id, subprocesses).await,
                _ => self.clean_up(layout, id).await,
            };
        };
        let _lock = self.locks.lock(lock_key(&driver, &handle)).await;
        let endpoint = self.endpoint(&driver)?;
        if id.plugin == layout::CSI_DEVICE {
            device::tear_down(layout, id, &endpoint, &handle, subprocesses).await?;
            self.identities().remove(id);
            return Ok(());
        }
        let target = layout.mounted(id);
        client::unpublish(&endpoint, &handle, &target).await?;
        let staging = layout.staging(&driver, &sha256(&handle));
        let (pods, at, own_dir) = (layout.clone(), staging.clone(), layout.volume(id));
        let identity = VolumeIdentity {
            driver: driver.clone(),
            handle: handle.clone(),
        };
        let last = blocking(move || {
            let others = used_by_others(&pods, &own_dir, &identity);
            let is_staged = dir::exists(&at).map_err(|source| VolumeError::Open {
                path: at.clone(),
                source,
            })?;
            Ok(!others && is_staged)
        });
        if last.await? {
            client::unstage(&endpoint, &handle, &staging).await?;
        }
        blocking(move || match remove_data_if_empty(&staging)? {
            true => remove_dir(&staging),
            false => Ok(()),
        })
        .await?;
        self.clean_up(layout, id).await
    }

    /// Removes what is left of a volume that is not mounted.
    async fn clean_up(&self, layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
        let (target, data) = (layout.mounted(id), layout.volume(id).join(DATA));
        blocking(move || {
            remove_dir(&target)?;
            remove_file(&data)
        })
        .await?;
        self.identities().remove(id);
        Ok(())
    }

    fn identities(&self) -> MutexGuard<'_, BTreeMap<VolumeId, VolumeIdentity>> {
        self.identities
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
fn remove_data_if_empty(staging: &Path) -> Result<bool, VolumeError> {
    // What is mounted may not answer.
    if mount::table()?
        .iter()
        .any(|mount| mount.mount_point == staging)
    {
        return Ok(false);
    }
    let empty = std::fs::read_dir(staging).is_ok_and(|mut names| names.next().is_none());
    let beside = staging.parent().map(|dir| dir.join(DATA));
    Ok(empty && beside.is_some_and(|data| std::fs::remove_file(data).is_ok()))
}

/// Whether another pod has the volume.
fn used_by_others(layout: &Layout, own_dir: &Path, identity: &VolumeIdentity) -> bool {
    let list = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut volumes = list(&layout.pods())
        .flat_map(|pod| list(&pod.path().join("volumes").join(layout::CSI)))
        .map(|volume| volume.path())
        .filter(|volume| volume != own_dir);
    volumes.any(|volume| match read(&volume.join(DATA)) {
        Ok(data) => data.is_some_and(|data| VolumeIdentity::from(data) == *identity),
        Err(error) => {
            let (path, error) = (volume.display(), report(&error));
            tracing::warn!(%path, error, "data of a volume unusable; not unstaging another one");
            true
        }
    })
}
