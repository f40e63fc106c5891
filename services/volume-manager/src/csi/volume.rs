//! A driver's volume, mounted for a pod and taken away again. What is told of it lies beside it on
//! disk before its driver is asked for anything, so that whoever comes later can undo it.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;

use super::client;
use crate::core::csi::{Csi, Registered, sha256};
use crate::core::layout::{self, Layout, VolumeId};
use crate::volume::{VolumeError, dir, group};

const DATA: &str = "vol_data.json";

/// Upstream's file beside a volume, to the letter.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeData {
    #[serde(rename = "attachmentID")]
    attachment_id: String,
    driver_name: String,
    node_name: String,
    #[serde(rename = "specVolID")]
    spec_vol_id: String,
    volume_handle: String,
    volume_lifecycle_mode: String,
}

/// What is needed to speak with drivers. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Drivers {
    node: Arc<str>,
    known: Arc<Mutex<BTreeMap<String, PathBuf>>>,
    /// One at a time goes to a volume's driver: the last pod takes the node's mount away.
    busy: Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>,
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

    async fn alone(&self, driver: &str, handle: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            busy.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(busy.entry(format!("{driver}^{handle}")).or_default())
        };
        lock.lock_owned().await
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
    ) -> Result<(), VolumeError> {
        let _alone = self.alone(&csi.driver, &csi.handle).await;
        let target = layout.mounted(id);
        let data = VolumeData {
            attachment_id: csi.attachment.clone(),
            driver_name: csi.driver.clone(),
            node_name: self.node.to_string(),
            spec_vol_id: csi.name.clone(),
            volume_handle: csi.handle.clone(),
            volume_lifecycle_mode: if csi.ephemeral {
                "Ephemeral"
            } else {
                "Persistent"
            }
            .to_owned(),
        };
        let place = layout.volume(id);
        blocking(move || {
            make(&place)?;
            write(&place.join(DATA), &data)
        })
        .await?;
        let staged = csi
            .stages
            .then(|| layout.staged(&csi.driver, &sha256(&csi.handle)));
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
            client::stage(csi, staged).await?;
        }
        client::publish(csi, staged.as_deref(), &target).await?;
        if let Some(gid) = csi.gid {
            blocking(move || group::give(&dir::open(&target)?, &target, gid)).await?;
        }
        Ok(())
    }

    /// Takes a volume away from a pod, and from the node when no other pod has it.
    ///
    /// # Errors
    /// When the driver cannot, or is not there.
    pub async fn tear_down(&self, layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
        let place = layout.volume(id);
        let file = place.join(DATA);
        let Some(data) = blocking(move || Ok(read(&file))).await? else {
            return Ok(());
        };
        let (driver, handle) = (data.driver_name, data.volume_handle);
        let _alone = self.alone(&driver, &handle).await;
        let endpoint = self.endpoint(&driver)?;
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

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(VolumeError::BrokenOff(PathBuf::new())))
}

fn make(path: &Path) -> Result<(), VolumeError> {
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o750).create(path);
    made.map_err(|source| VolumeError::MakeDir {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, data: &impl Serialize) -> Result<(), VolumeError> {
    let aside = path.with_extension("new");
    // Plain strings: nothing in it can fail to be written.
    let text = serde_json::to_vec(data).unwrap_or_default();
    let written = std::fs::write(&aside, text).and_then(|()| std::fs::rename(&aside, path));
    written.map_err(|source| VolumeError::Write {
        path: path.to_owned(),
        source,
    })
}

fn read(path: &Path) -> Option<VolumeData> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn gone(path: &Path, done: std::io::Result<()>) -> Result<(), VolumeError> {
    match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(VolumeError::Remove {
            path: path.to_owned(),
            source: error,
        }),
        _ => Ok(()),
    }
}

fn remove_dir(path: &Path) -> Result<(), VolumeError> {
    gone(path, std::fs::remove_dir(path))
}

fn remove_file(path: &Path) -> Result<(), VolumeError> {
    gone(path, std::fs::remove_file(path))
}
