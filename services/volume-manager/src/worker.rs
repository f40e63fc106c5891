//! Performs steps: local work on a blocking thread, what can hang in a child.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polylet_kit::CancellationToken;

use crate::alone::Alone;
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::plan::Step;
use crate::core::spec::{PathCheck, SetUp};
use crate::core::sub_path::{self, Stage};
use crate::csi::volume::Drivers;
use crate::job::{Job, JobError, Jobs};
use crate::volume::progress::Progress;
use crate::volume::remove::Budget;
use crate::volume::sub_path::Parts;
use crate::volume::{
    VolumeError, Warning, device, host_path, local_volume, note, set_up, tear_down,
};

/// Everything that steps need.
#[derive(Debug, Clone)]
pub struct Worker {
    layout: Layout,
    jobs: Jobs,
    drivers: Drivers,
    alone: Alone,
    stop: Arc<AtomicBool>,
}

impl Worker {
    /// A worker under this layout.
    pub fn new(layout: Layout, jobs: Jobs) -> Self {
        Self {
            layout,
            jobs,
            drivers: Drivers::default(),
            alone: Alone::default(),
            stop: Arc::new(AtomicBool::new(false)),
        }
    }

    /// The same, with these drivers.
    pub fn with(self, drivers: Drivers) -> Self {
        Self { drivers, ..self }
    }

    /// The drivers that it asks.
    pub fn drivers(&self) -> &Drivers {
        &self.drivers
    }

    /// Breaks long work off: the process is about to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Performs one step. What is set up and hangs is given up when it is called off.
    pub async fn perform(
        &self,
        step: &Step,
        off: &CancellationToken,
        progress: &Progress,
    ) -> Result<Option<Warning>, VolumeError> {
        let done = match step {
            Step::SetUp(id, what) => match &**what {
                SetUp::Local(local) => {
                    let alone = &self.alone;
                    return local_volume::set_up(&self.layout, id, local, alone, progress).await;
                }
                _ => self.set_up(id, what, off, progress).await,
            },
            Step::Ask(id, what, asked) => match &**what {
                SetUp::Csi(csi) => self.drivers.ask(&self.layout, id, csi, *asked).await,
                SetUp::Local(local) => {
                    local_volume::grow(&self.layout, id, local, &self.alone).await
                }
                // A device is as large as it is.
                _ => Ok(()),
            },
            Step::TearDown(id) => self.tear_down(id).await,
            Step::RemovePod(uid) => self.remove_pod(uid).await,
        };
        done.map(|()| None)
    }

    async fn set_up(
        &self,
        id: &VolumeId,
        what: &Arc<SetUp>,
        off: &CancellationToken,
        progress: &Progress,
    ) -> Result<(), VolumeError> {
        if let SetUp::HostPath { path, check } = &**what {
            return self.host_path(path.into(), *check, off).await;
        }
        if let SetUp::Csi(csi) = &**what {
            return self.drivers.set_up(&self.layout, id, csi, progress).await;
        }
        if let SetUp::LocalDevice { path, .. } = &**what {
            return device::map_local(&self.layout, id, path).await;
        }
        let (layout, volume, what) = (self.layout.clone(), id.clone(), what.clone());
        let budget = Budget::new(&self.stop);
        let work = move || match &*what {
            SetUp::EmptyDir { medium, gid } => set_up::empty_dir(&layout, &volume, *medium, *gid),
            SetUp::Files(files) => set_up::files(&layout, &volume, files, &budget),
            SetUp::HostPath { .. }
            | SetUp::Local(_)
            | SetUp::LocalDevice { .. }
            | SetUp::Csi(_) => Ok(()),
        };
        local(&self.layout.volume(id), work).await
    }

    async fn host_path(
        &self,
        path: PathBuf,
        check: PathCheck,
        off: &CancellationToken,
    ) -> Result<(), VolumeError> {
        if check == PathCheck::None {
            return Ok(());
        }
        let at = path.clone();
        let known = local(&path, move || {
            Ok(host_path::is_local(&at).then(|| host_path::check(&at, check)))
        });
        match known.await? {
            Some(result) => result,
            None => Ok(self.jobs.run(&Job::HostPath { path, check }, off).await?),
        }
    }

    async fn tear_down(&self, id: &VolumeId) -> Result<(), VolumeError> {
        match id.plugin.as_str() {
            layout::CSI_DEVICE => return self.drivers.tear_down(&self.layout, id).await,
            layout::LOCAL_DEVICE => return device::unmap_local(&self.layout, id).await,
            _ => {}
        }
        // What containers mounted of it goes first, as upstream does it.
        let parts = match layout::is_ours(&id.plugin) || id.plugin == layout::HOST_PATH {
            true => self.layout.sub_paths(&id.uid, &id.name),
            // The name there is the pod's, and this is the persistent volume's.
            false => self.layout.pod(&id.uid).join(layout::SUB_PATHS),
        };
        tear_down::unmount_all(&parts, &self.jobs).await?;
        let path = self.layout.volume(id);
        if id.plugin == layout::CSI {
            self.drivers.tear_down(&self.layout, id).await?;
        }
        match id.plugin.as_str() {
            layout::HOST_PATH => {}
            layout::LOCAL => {
                local_volume::tear_down(&self.layout, id, &self.alone, &self.jobs).await?;
            }
            _ => tear_down::unmount_all(&path, &self.jobs).await?,
        }
        let (layout, id, budget) = (self.layout.clone(), id.clone(), Budget::new(&self.stop));
        local(&path, move || {
            tear_down::remove_volume(&layout, &id, &budget)
        })
        .await
    }

    /// Binds parts of volumes for a container; what its status says when one cannot be had.
    pub async fn sub_paths(&self, uid: &str, parts: Parts) -> Result<(), String> {
        let (container, job) = (parts.container.clone(), Job::SubPaths(parts));
        let done = self.jobs.run(&job, &CancellationToken::new()).await;
        done.map_err(|error| {
            tracing::warn!(
                uid,
                container,
                error = polylet_kit::report(&error),
                "a container's subPath cannot be had"
            );
            let Job::SubPaths(parts) = job else {
                return error.to_string();
            };
            match error {
                JobError::NoSubPath { stage, volume, .. } => {
                    sub_path::failed(stage, &container, &volume)
                }
                // It is not known at which one.
                error => match parts.parts.first() {
                    Some((_, part)) => {
                        let failed = sub_path::failed(Stage::Prepare, &container, &part.volume);
                        format!("{failed}: {error}")
                    }
                    None => error.to_string(),
                },
            }
        })
    }

    async fn remove_pod(&self, uid: &str) -> Result<(), VolumeError> {
        let path = self.layout.pod(uid);
        tear_down::unmount_all(&path, &self.jobs).await?;
        let (layout, uid, budget) = (self.layout.clone(), uid.to_owned(), Budget::new(&self.stop));
        local(&path, move || tear_down::remove_pod(&layout, &uid, &budget)).await
    }

    /// Notes a pod for a later process. That it failed is told and disturbs nothing.
    pub async fn note(&self, noted: Noted) {
        let (layout, uid) = (self.layout.clone(), noted.0.uid.clone());
        let path = layout.note(&uid);
        let saved = local(&path, move || note::save(&layout, &noted.0, noted.1)).await;
        if let Err(error) = saved {
            tracing::warn!(
                uid,
                error = polylet_kit::report(&error),
                "a pod is not noted"
            );
        }
    }
}

/// What is noted of a pod: who it is, and its paths of the node by volume.
pub type Noted = (
    crate::core::spec::PodName,
    std::collections::BTreeMap<String, String>,
);

/// Runs local work on a thread of its own, within the current span.
async fn local<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.unwrap_or_else(|_| Err(VolumeError::BrokenOff(path.to_owned())))
}
