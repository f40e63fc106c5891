//! A driver's volume, mounted for a pod and taken away again. What is told of it lies beside it on
//! disk before its driver is asked for anything, so that whoever comes later can undo it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::data::{DATA, VolumeData, make, read, remove_dir, remove_file, write};
use super::{client, device};
use crate::alone::Alone;
use crate::core::csi::{Csi, Registered, sha256};
use crate::core::growth::{self, Growth};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::plan::Asked;
use crate::volume::progress::Progress;
use crate::volume::{VolumeError, blocking, dir, group};

const STAGE: &str = "MountVolume.MountDevice failed";

/// What is needed to speak with drivers. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Drivers {
    node: Arc<str>,
    known: Arc<Mutex<BTreeMap<String, PathBuf>>>,
    alone: Alone,
}

impl Drivers {
    /// On a node of this name.
    pub fn of(node: &str) -> Self {
        Drivers {
            node: node.into(),
            ..Drivers::default()
        }
    }

    /// These are registered now.
    pub fn set(&self, drivers: &BTreeMap<String, Registered>) {
        let drivers = drivers
            .values()
            .map(|d| (d.name.clone(), d.endpoint.clone()));
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = drivers.collect();
    }

    fn endpoint(&self, driver: &str) -> Result<PathBuf, VolumeError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoint = known.get(driver).cloned();
        endpoint.ok_or_else(|| VolumeError::NoDriver(driver.to_owned()))
    }

    /// Mounts a volume for a pod.
    ///
    /// # Errors
    /// When the driver cannot, or the disk.
    pub async fn set_up(
        &self,
        layout: &Layout,
        id: &VolumeId,
        csi: &Csi,
        progress: &Progress,
    ) -> Result<(), VolumeError> {
        let _alone = self.alone.with(key(&csi.driver, &csi.handle)).await;
        if csi.block {
            return device::set_up(layout, id, csi, &self.node).await;
        }
        let target = layout.mounted(id);
        let data = VolumeData::of(csi, &self.node);
        let place = layout.volume(id);
        blocking(move || {
            make(&place)?;
            write(&place.join(DATA), &data)
        })
        .await?;
        let staged = staged(layout, csi);
        if let Some(staged) = &staged {
            let (at, driver, handle) = (staged.clone(), csi.driver.clone(), csi.handle.clone());
            blocking(move || {
                make(&at)?;
                let of_node = BTreeMap::from([("driverName", driver), ("volumeHandle", handle)]);
                match at.parent() {
                    Some(beside) => write(&beside.join(DATA), &of_node),
                    None => Ok(()),
                }
            })
            .await?;
            let done = client::stage(csi, staged).await;
            done.map_err(|error| VolumeError::from(error).during(STAGE))?;
        }
        client::publish(csi, staged.as_deref(), &target).await?;
        if let Some(gid) = csi.gid {
            let (at, lazy) = (target.clone(), csi.on_root_mismatch);
            let progress = progress.clone();
            blocking(move || group::give(&dir::open(&at)?, &at, gid, lazy, &progress)).await?;
        }
        if csi.size.growth == Growth::Asked {
            let done = grow(csi, staged.as_deref(), &target).await;
            done.map_err(|error| error.during(growth::MOUNTING))?;
        }
        Ok(())
    }

    /// Asks a driver once more about a volume that is mounted.
    ///
    /// # Errors
    /// When the driver cannot.
    pub async fn ask(
        &self,
        layout: &Layout,
        id: &VolumeId,
        csi: &Csi,
        asked: Asked,
    ) -> Result<(), VolumeError> {
        let _alone = self.alone.with(key(&csi.driver, &csi.handle)).await;
        let staged = staged(layout, csi);
        let target = layout.mounted(id);
        match asked {
            Asked::Publish => client::publish(csi, staged.as_deref(), &target).await?,
            Asked::Grow => grow(csi, staged.as_deref(), &target).await?,
        }
        Ok(())
    }

    /// Takes a volume away from a pod, and from the node when no other pod has it.
    ///
    /// # Errors
    /// When the driver cannot, or is not there.
    pub async fn tear_down(&self, layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
        let place = layout.volume(id);
        let file = match id.plugin.as_str() {
            layout::CSI_DEVICE => device::data(layout, &id.name),
            _ => place.join(DATA),
        };
        let Some(data) = blocking(move || Ok(read(&file))).await? else {
            return match id.plugin.as_str() {
                layout::CSI_DEVICE => device::clear(layout, id).await,
                _ => Ok(()),
            };
        };
        let (driver, handle) = (data.driver_name, data.volume_handle);
        let _alone = self.alone.with(key(&driver, &handle)).await;
        let endpoint = self.endpoint(&driver)?;
        if id.plugin == layout::CSI_DEVICE {
            return device::tear_down(layout, id, &endpoint, &handle).await;
        }
        let target = layout.mounted(id);
        client::unpublish(&endpoint, &handle, &target).await?;
        let staged = layout.staged(&driver, &sha256(&handle));
        let (pods, at) = (layout.clone(), staged.clone());
        let (name, volume, mine) = (driver.clone(), handle.clone(), place.clone());
        let last = blocking(move || {
            let others = others(&pods, &mine, &name, &volume);
            Ok(!others && at.exists())
        });
        if last.await? {
            client::unstage(&endpoint, &handle, &staged).await?;
        }
        blocking(move || {
            remove_dir(&target)?;
            if !staged.as_os_str().is_empty() && last_one(&staged) {
                remove_dir(&staged)?;
            }
            remove_file(&place.join(DATA))
        })
        .await
    }
}

/// Has a volume made larger. A driver that does not do that while it is in use is not asked again.
pub(super) async fn grow(csi: &Csi, staged: Option<&Path>, at: &Path) -> Result<(), VolumeError> {
    let done = client::expand(csi, staged, at).await;
    done.map_err(|error| match error.code {
        tonic::Code::FailedPrecondition => VolumeError::InUse(error),
        _ => error.into(),
    })
}

fn key(driver: &str, handle: &str) -> String {
    format!("{driver}^{handle}")
}

/// Where a volume is mounted for the whole node, if its driver does that.
pub fn staged(layout: &Layout, csi: &Csi) -> Option<PathBuf> {
    let at = match csi.block {
        true => device::staged(layout, &csi.name),
        false => layout.staged(&csi.driver, &sha256(&csi.handle)),
    };
    csi.stages.then_some(at)
}

/// The node's mount is gone, and its directory may go.
fn last_one(staged: &Path) -> bool {
    let empty = std::fs::read_dir(staged).is_ok_and(|mut names| names.next().is_none());
    let beside = staged.parent().map(|dir| dir.join(DATA));
    empty && beside.is_some_and(|data| std::fs::remove_file(data).is_ok())
}

/// Whether another pod has the volume.
fn others(layout: &Layout, mine: &Path, driver: &str, handle: &str) -> bool {
    let list = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut volumes = list(&layout.pods())
        .flat_map(|pod| list(&pod.path().join("volumes").join(layout::CSI)))
        .map(|volume| volume.path())
        .filter(|volume| volume != mine);
    volumes.any(|volume| {
        read(&volume.join(DATA))
            .is_some_and(|d| d.driver_name == driver && d.volume_handle == handle)
    })
}
