//! The operation executor: local work on blocking threads, calls that can hang in child processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use polylet_kit::{CancellationToken, report};

use crate::core::layout::{self, Layout, VolumeId};
use crate::core::mount_plan::MountPlan;
use crate::core::operation::Operation;
use crate::core::pod::PodMetadata;
use crate::core::sub_path::{self, ContainerSubPaths, SubPathStage};
use crate::csi::volume::{CsiDrivers, SetUpContext};
use crate::keyed_lock::KeyedMutex;
use crate::metrics;
use crate::subprocess::Subprocesses;
use crate::volume::host_path::CheckPathTask;
use crate::volume::local_volume::LocalVolumes;
use crate::volume::progress::OwnershipProgress;
use crate::volume::sub_path::{BindSubPathsTask, FailedSubPath};
use crate::volume::{
    VolumeError, Warning, device, host_path, local_volume, metadata, nfs, removal, set_up,
    tear_down,
};

/// Executes operations. Clones share it.
#[derive(Debug, Clone)]
pub struct OperationExecutor {
    layout: Layout,
    subprocesses: Subprocesses,
    drivers: CsiDrivers,
    /// One operation at a time on each local volume.
    local_volumes: KeyedMutex,
    /// One write at a time of each pod's metadata, in the order of the requests.
    metadata: KeyedMutex,
}

impl OperationExecutor {
    /// An executor without CSI drivers.
    pub fn new(layout: Layout, subprocesses: Subprocesses) -> Self {
        Self {
            layout,
            subprocesses,
            drivers: CsiDrivers::default(),
            local_volumes: KeyedMutex::default(),
            metadata: KeyedMutex::default(),
        }
    }

    /// Sets the CSI drivers.
    pub fn with_drivers(self, drivers: CsiDrivers) -> Self {
        Self { drivers, ..self }
    }

    /// The CSI drivers.
    pub fn drivers(&self) -> &CsiDrivers {
        &self.drivers
    }

    fn local_volumes(&self) -> LocalVolumes<'_> {
        LocalVolumes {
            layout: &self.layout,
            locks: &self.local_volumes,
            subprocesses: &self.subprocesses,
        }
    }

    /// Executes one operation. Canceling abandons a set-up that hangs.
    pub async fn execute(
        &self,
        operation: &Operation,
        cancel: &CancellationToken,
        progress: &OwnershipProgress,
    ) -> Result<Option<Warning>, VolumeError> {
        let started = Instant::now();
        let result = self.run(operation, cancel, progress).await;
        metrics::count(operation, started.elapsed(), result.is_err());
        result
    }

    async fn run(
        &self,
        operation: &Operation,
        cancel: &CancellationToken,
        progress: &OwnershipProgress,
    ) -> Result<Option<Warning>, VolumeError> {
        let layout = &self.layout;
        let done = match operation {
            Operation::SetUp(id, plan) => match &**plan {
                MountPlan::Local(local) => {
                    let volumes = self.local_volumes();
                    return local_volume::set_up(volumes, id, local, progress, cancel).await;
                }
                _ => self.set_up(id, plan, cancel, progress).await,
            },
            Operation::Update(id, plan, update) => match &**plan {
                MountPlan::Csi(csi) => self.drivers.update(layout, id, csi, *update).await,
                MountPlan::Local(local) => {
                    local_volume::expand(self.local_volumes(), id, local).await
                }
                // A block device has the size of its disk.
                _ => Ok(()),
            },
            Operation::TearDown(id) => self.tear_down(id).await,
            Operation::RemovePodDir(uid) => self.remove_pod_dir(uid).await,
        };
        done.map(|()| None)
    }

    async fn set_up(
        &self,
        id: &VolumeId,
        plan: &Arc<MountPlan>,
        cancel: &CancellationToken,
        progress: &OwnershipProgress,
    ) -> Result<(), VolumeError> {
        let (layout, subprocesses) = (&self.layout, &self.subprocesses);
        match &**plan {
            MountPlan::HostPath { path, check } => {
                let task = CheckPathTask {
                    path: path.into(),
                    check: *check,
                };
                return host_path::check_for_pod(task, &id.uid, subprocesses, cancel).await;
            }
            MountPlan::Csi(csi) => {
                let context = SetUpContext {
                    subprocesses,
                    progress,
                    cancel,
                };
                return self.drivers.set_up(layout, id, csi, context).await;
            }
            MountPlan::Nfs(nfs) => {
                return nfs::set_up(layout, id, nfs, subprocesses, cancel).await;
            }
            MountPlan::LocalDevice { path, .. } => {
                return device::map_local(layout, id, path, subprocesses).await;
            }
            MountPlan::EmptyDir { .. } | MountPlan::Files(_) | MountPlan::Local(_) => {}
        }
        let (layout, volume, plan) = (self.layout.clone(), id.clone(), plan.clone());
        let work = move || match &*plan {
            MountPlan::EmptyDir { medium, gid } => {
                set_up::empty_dir(&layout, &volume, *medium, *gid)
            }
            MountPlan::Files(files) => set_up::files(&layout, &volume, files),
            MountPlan::HostPath { .. }
            | MountPlan::Local(_)
            | MountPlan::LocalDevice { .. }
            | MountPlan::Nfs(_)
            | MountPlan::Csi(_) => Ok(()),
        };
        run_blocking(&self.layout.volume(id), work).await
    }

    async fn tear_down(&self, id: &VolumeId) -> Result<(), VolumeError> {
        let (layout, subprocesses) = (&self.layout, &self.subprocesses);
        self.remove_host_paths(&id.uid).await?;
        match id.plugin.as_str() {
            layout::CSI_DEVICE => return self.drivers.tear_down(layout, id, subprocesses).await,
            layout::LOCAL_DEVICE => return device::unmap_local(layout, id, subprocesses).await,
            _ => {}
        }
        // The subPaths go first, as upstream.
        let sub_paths = match layout::is_owned(&id.plugin) || id.plugin == layout::HOST_PATH {
            true => layout.sub_paths(&id.uid, &id.name),
            // Their directory has the name in the pod; the id has that of the persistent volume.
            false => layout.pod(&id.uid).join(layout::SUB_PATHS),
        };
        tear_down::unmount_all(&sub_paths, &id.uid, subprocesses).await?;
        if id.plugin == layout::CSI {
            self.drivers.tear_down(layout, id, subprocesses).await?;
        }
        match id.plugin.as_str() {
            layout::HOST_PATH => {}
            layout::LOCAL => local_volume::tear_down(self.local_volumes(), id).await?,
            _ => tear_down::unmount_all(&layout.volume(id), &id.uid, subprocesses).await?,
        }
        removal::volume(layout, id, subprocesses).await
    }

    async fn remove_pod_dir(&self, uid: &str) -> Result<(), VolumeError> {
        self.remove_host_paths(uid).await?;
        tear_down::unmount_all(&self.layout.pod(uid), uid, &self.subprocesses).await?;
        removal::pod_dir(&self.layout, uid, &self.subprocesses).await
    }

    /// Binds the subPaths of a container; an error is the message of the container's status.
    pub async fn bind_sub_paths(
        &self,
        uid: &str,
        sub_paths: ContainerSubPaths,
    ) -> Result<(), String> {
        let container = sub_paths.container.clone();
        let first = sub_paths.sub_paths.first();
        let first_volume = first.map(|(_, sub_path)| sub_path.volume.clone());
        let bound = self
            .subprocesses
            .call(uid, &BindSubPathsTask(sub_paths))
            .await;
        let warn = |error: &str| {
            tracing::warn!(pod_uid = uid, container, error, "failed to bind subPaths");
        };
        match (bound, first_volume) {
            (Ok(Ok(())), _) => Ok(()),
            (
                Ok(Err(FailedSubPath {
                    stage,
                    volume,
                    error,
                })),
                _,
            ) => {
                warn(&error);
                Err(sub_path::stage_failed(stage, &container, &volume))
            }
            (Err(error), first_volume) => {
                warn(&report(&error));
                // It is not known which subPath hangs.
                let message = first_volume.map(|volume| {
                    sub_path::stage_failed(SubPathStage::Prepare, &container, &volume)
                });
                Err(message.map_or_else(
                    || error.to_string(),
                    |message| format!("{message}: {error}"),
                ))
            }
        }
    }

    /// Removes the stored host paths of a pod.
    async fn remove_host_paths(&self, uid: &str) -> Result<(), VolumeError> {
        let (layout, uid) = (self.layout.clone(), uid.to_owned());
        let path = layout.metadata(&uid);
        let _lock = self.metadata.lock(uid.clone()).await;
        run_blocking(&path, move || metadata::remove_host_paths(&layout, &uid)).await
    }

    /// Stores the metadata of a pod for the next process. A failure is logged only.
    pub async fn store_metadata(&self, metadata: PodMetadata) {
        let (layout, uid) = (self.layout.clone(), metadata.pod.uid.clone());
        let path = layout.metadata(&uid);
        let _lock = self.metadata.lock(uid.as_str().to_owned()).await;
        let stored = run_blocking(&path, move || metadata::store(&layout, metadata)).await;
        if let Err(error) = stored {
            let error = report(&error);
            tracing::warn!(
                pod_uid = uid.as_str(),
                error,
                "failed to store pod metadata"
            );
        }
    }
}

/// Runs work on a blocking thread, within the current span.
async fn run_blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.unwrap_or_else(|_| Err(VolumeError::Aborted(path.to_owned())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::core::pod::PodName;

    #[tokio::test]
    async fn torn_down_volumes_are_not_stored_as_complete() {
        for plugin in [layout::CSI, layout::CSI_DEVICE, layout::EMPTY_DIR] {
            let temp = tempfile::tempdir().unwrap();
            let layout = Layout::new(temp.path());
            let id = VolumeId::new("u1", plugin, "pv");
            std::fs::create_dir_all(layout.pod("u1")).unwrap();
            let at = layout.mounted(&id).display().to_string();
            let stored = PodMetadata {
                pod: PodName {
                    uid: "u1".into(),
                    name: "p".to_owned(),
                    ..PodName::default()
                },
                host_paths: BTreeMap::from([("v".to_owned(), at)]),
            };
            let subprocesses = Subprocesses::new(&crate::DESCRIPTOR);
            let executor = OperationExecutor::new(layout.clone(), subprocesses);
            executor.store_metadata(stored.clone()).await;
            assert_eq!(metadata::load(&layout, &id.uid), stored);
            let (cancel, progress) = (CancellationToken::new(), OwnershipProgress::default());
            let tear_down = Operation::TearDown(id.clone());
            // Whether it succeeds or not: a part of the volume may be gone.
            let _ = executor.execute(&tear_down, &cancel, &progress).await;
            let left = metadata::load(&layout, &id.uid);
            assert_eq!((left.pod, left.host_paths), (stored.pod, BTreeMap::new()));
        }
    }
}
