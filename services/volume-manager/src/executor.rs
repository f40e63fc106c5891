//! The operation executor: local work on blocking threads, calls that can hang in child processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polylet_kit::CancellationToken;

use crate::core::builtin::PathCheck;
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::mount_plan::MountPlan;
use crate::core::operation::Operation;
use crate::core::pod::PodMetadata;
use crate::core::sub_path::{self, ContainerSubPaths, SubPathStage};
use crate::csi::volume::CsiDrivers;
use crate::keyed_lock::KeyedMutex;
use crate::subprocess::{HelperTask, SubprocessError, SubprocessPool};
use crate::volume::delete::DeleteLimit;
use crate::volume::progress::OwnershipProgress;
use crate::volume::{
    VolumeError, Warning, device, host_path, local_volume, metadata, set_up, tear_down,
};

/// Executes operations. Clones share it.
#[derive(Debug, Clone)]
pub struct OperationExecutor {
    layout: Layout,
    subprocesses: SubprocessPool,
    drivers: CsiDrivers,
    /// One operation at a time on each local volume.
    local_volumes: KeyedMutex,
    stop: Arc<AtomicBool>,
}

impl OperationExecutor {
    /// An executor without CSI drivers.
    pub fn new(layout: Layout, subprocesses: SubprocessPool) -> Self {
        Self {
            layout,
            subprocesses,
            drivers: CsiDrivers::default(),
            local_volumes: KeyedMutex::default(),
            stop: Arc::new(AtomicBool::new(false)),
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

    /// Interrupts long deletions: the process is about to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Executes one operation. Canceling abandons a set-up that hangs.
    pub async fn execute(
        &self,
        operation: &Operation,
        cancel: &CancellationToken,
        progress: &OwnershipProgress,
    ) -> Result<Option<Warning>, VolumeError> {
        let (layout, locks) = (&self.layout, &self.local_volumes);
        let done = match operation {
            Operation::SetUp(id, plan) => match &**plan {
                MountPlan::Local(local) => {
                    return local_volume::set_up(layout, id, local, locks, progress).await;
                }
                _ => self.set_up(id, plan, cancel, progress).await,
            },
            Operation::Update(id, plan, update) => match &**plan {
                MountPlan::Csi(csi) => self.drivers.update(layout, id, csi, *update).await,
                MountPlan::Local(local) => local_volume::expand(layout, id, local, locks).await,
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
        match &**plan {
            MountPlan::HostPath { path, check } => {
                return self.check_host_path(path.into(), *check, cancel).await;
            }
            MountPlan::Csi(csi) => {
                return self.drivers.set_up(&self.layout, id, csi, progress).await;
            }
            MountPlan::LocalDevice { path, .. } => {
                return device::map_local(&self.layout, id, path).await;
            }
            MountPlan::EmptyDir { .. } | MountPlan::Files(_) | MountPlan::Local(_) => {}
        }
        let (layout, volume, plan) = (self.layout.clone(), id.clone(), plan.clone());
        let limit = DeleteLimit::new(&self.stop);
        let work = move || match &*plan {
            MountPlan::EmptyDir { medium, gid } => {
                set_up::empty_dir(&layout, &volume, *medium, *gid)
            }
            MountPlan::Files(files) => set_up::files(&layout, &volume, files, &limit),
            MountPlan::HostPath { .. }
            | MountPlan::Local(_)
            | MountPlan::LocalDevice { .. }
            | MountPlan::Csi(_) => Ok(()),
        };
        run_blocking(&self.layout.volume(id), work).await
    }

    async fn check_host_path(
        &self,
        path: PathBuf,
        check: PathCheck,
        cancel: &CancellationToken,
    ) -> Result<(), VolumeError> {
        if check == PathCheck::None {
            return Ok(());
        }
        let local_path = path.clone();
        let checked = run_blocking(&path, move || {
            let is_local = host_path::is_local(&local_path);
            Ok(is_local.then(|| host_path::check(&local_path, check)))
        });
        match checked.await? {
            Some(result) => result,
            None => {
                let task = HelperTask::HostPath { path, check };
                Ok(self.subprocesses.run(&task, cancel).await?)
            }
        }
    }

    async fn tear_down(&self, id: &VolumeId) -> Result<(), VolumeError> {
        match id.plugin.as_str() {
            layout::CSI_DEVICE => return self.drivers.tear_down(&self.layout, id).await,
            layout::LOCAL_DEVICE => return device::unmap_local(&self.layout, id).await,
            _ => {}
        }
        // The subPaths go first, as upstream.
        let sub_paths = match layout::is_owned(&id.plugin) || id.plugin == layout::HOST_PATH {
            true => self.layout.sub_paths(&id.uid, &id.name),
            // Their directory has the name in the pod; the id has that of the persistent volume.
            false => self.layout.pod(&id.uid).join(layout::SUB_PATHS),
        };
        tear_down::unmount_all(&sub_paths, &self.subprocesses).await?;
        let path = self.layout.volume(id);
        if id.plugin == layout::CSI {
            self.drivers.tear_down(&self.layout, id).await?;
        }
        match id.plugin.as_str() {
            layout::HOST_PATH => {}
            layout::LOCAL => {
                let (locks, subprocesses) = (&self.local_volumes, &self.subprocesses);
                local_volume::tear_down(&self.layout, id, locks, subprocesses).await?;
            }
            _ => tear_down::unmount_all(&path, &self.subprocesses).await?,
        }
        let (layout, id) = (self.layout.clone(), id.clone());
        let limit = DeleteLimit::new(&self.stop);
        run_blocking(&path, move || {
            tear_down::remove_volume(&layout, &id, &limit)
        })
        .await
    }

    async fn remove_pod_dir(&self, uid: &str) -> Result<(), VolumeError> {
        let path = self.layout.pod(uid);
        tear_down::unmount_all(&path, &self.subprocesses).await?;
        let (layout, uid) = (self.layout.clone(), uid.to_owned());
        let limit = DeleteLimit::new(&self.stop);
        run_blocking(&path, move || {
            tear_down::remove_pod_dir(&layout, &uid, &limit)
        })
        .await
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
        let task = HelperTask::SubPaths(sub_paths);
        let done = self
            .subprocesses
            .run(&task, &CancellationToken::new())
            .await;
        done.map_err(|error| {
            tracing::warn!(
                pod_uid = uid,
                container,
                error = polylet_kit::report(&error),
                "failed to bind subPaths"
            );
            match (error, first_volume) {
                (SubprocessError::SubPath { stage, volume, .. }, _) => {
                    sub_path::stage_failed(stage, &container, &volume)
                }
                // It is not known which subPath hangs.
                (error, Some(volume)) => {
                    let message =
                        sub_path::stage_failed(SubPathStage::Prepare, &container, &volume);
                    format!("{message}: {error}")
                }
                (error, None) => error.to_string(),
            }
        })
    }

    /// Stores the metadata of a pod for the next process. A failure is logged only.
    pub async fn store_metadata(&self, metadata: PodMetadata) {
        let (layout, uid) = (self.layout.clone(), metadata.pod.uid.clone());
        let path = layout.metadata(&uid);
        let stored = run_blocking(&path, move || metadata::store(&layout, metadata)).await;
        if let Err(error) = stored {
            let error = polylet_kit::report(&error);
            tracing::warn!(pod_uid = uid, error, "failed to store pod metadata");
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
