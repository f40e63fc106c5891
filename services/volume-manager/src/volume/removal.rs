//! Removal of unmounted volumes and of pods' directories: a moment in this process, and large ones in
//! a child process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use polylet_kit::{CancellationToken, report};
use polylet_walk::Budget;
use serde::{Deserialize, Serialize};

use super::delete::attempt;
use super::tear_down::{remove_pod_dir, remove_volume};
use super::{VolumeError, blocking};
use crate::core::layout::{Layout, VolumeId};
use crate::subprocess::Subprocesses;

/// How often a child process reports that it goes on.
const PERIOD: Duration = Duration::from_secs(1);

/// Removes an unmounted volume and its marker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemoveVolumeTask {
    /// The root directory.
    pub root: PathBuf,
    /// The volume.
    pub id: VolumeId,
}

/// Removes the directory of a pod without volumes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemovePodDirTask {
    /// The root directory.
    pub root: PathBuf,
    /// The uid of the pod.
    pub uid: String,
}

/// A deletion that can be continued.
trait Deletion: SubprocessTask<Progress = (), Output = Result<(), String>> + Clone + Send {
    /// Deletes within the budget.
    fn delete(&self, budget: &mut Budget) -> Result<(), VolumeError>;
}

impl Deletion for RemoveVolumeTask {
    fn delete(&self, budget: &mut Budget) -> Result<(), VolumeError> {
        remove_volume(&Layout::new(&self.root), &self.id, budget)
    }
}

impl Deletion for RemovePodDirTask {
    fn delete(&self, budget: &mut Budget) -> Result<(), VolumeError> {
        remove_pod_dir(&Layout::new(&self.root), &self.uid, budget)
    }
}

impl SubprocessTask for RemoveVolumeTask {
    const NAME: &'static str = "remove-volume";
    type Progress = ();
    type Output = Result<(), String>;

    fn key(&self) -> String {
        let VolumeId { uid, plugin, name } = &self.id;
        format!("{uid} {plugin} {name}")
    }

    fn run(self, progress: &mut TaskProgress<()>) -> Self::Output {
        to_the_end(&self, progress)
    }
}

impl SubprocessTask for RemovePodDirTask {
    const NAME: &'static str = "remove-pod-dir";
    type Progress = ();
    type Output = Result<(), String>;

    fn key(&self) -> String {
        self.uid.clone()
    }

    fn run(self, progress: &mut TaskProgress<()>) -> Self::Output {
        to_the_end(&self, progress)
    }
}

fn to_the_end(task: &impl Deletion, progress: &mut TaskProgress<()>) -> Result<(), String> {
    loop {
        let mut budget = Budget::unlimited().with_deadline(Instant::now() + PERIOD);
        match task.delete(&mut budget) {
            Err(VolumeError::DeletionUnfinished(_)) => progress.report(|| ()),
            done => return done.map_err(|error| report(&error)),
        }
    }
}

/// Removes an unmounted volume and its marker.
pub async fn volume(
    layout: &Layout,
    id: &VolumeId,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    let task = RemoveVolumeTask {
        root: layout.root().to_owned(),
        id: id.clone(),
    };
    delete(&id.uid, task, &layout.volume(id), subprocesses).await
}

/// Removes the directory of a pod without volumes.
pub async fn pod_dir(
    layout: &Layout,
    uid: &str,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    let task = RemovePodDirTask {
        root: layout.root().to_owned(),
        uid: uid.to_owned(),
    };
    delete(uid, task, &layout.pod(uid), subprocesses).await
}

async fn delete<T: Deletion + 'static>(
    uid: &str,
    task: T,
    path: &Path,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    let here = task.clone();
    match blocking(move || here.delete(&mut attempt())).await {
        Err(VolumeError::DeletionUnfinished(_)) => {}
        done => return done,
    }
    tracing::info!(path = %path.display(), "large directory; deleting it in a child process");
    // Only the end of the process interrupts it.
    let cancel = CancellationToken::new();
    let done = subprocesses.walk(uid, &task, &cancel, |()| {});
    done.await?.map_err(VolumeError::Task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::layout;

    #[test]
    fn every_attempt_makes_progress_even_without_a_budget() {
        let temp = tempfile::tempdir().unwrap();
        let id = VolumeId::new("u", layout::EMPTY_DIR, "v");
        let layout = Layout::new(temp.path());
        let volume = layout.volume(&id);
        std::fs::create_dir_all(&volume).unwrap();
        for number in 0..1000 {
            std::fs::write(volume.join(number.to_string()), "").unwrap();
        }
        let task = RemoveVolumeTask {
            root: temp.path().to_owned(),
            id,
        };
        let left = || std::fs::read_dir(&volume).map_or(0, Iterator::count);
        let mut before = left();
        loop {
            let done = task.delete(&mut Budget::unlimited().with_steps(0));
            if !matches!(done, Err(VolumeError::DeletionUnfinished(_))) {
                done.unwrap();
                break;
            }
            assert!(left() < before, "{before} files stay");
            before = left();
        }
        assert!(!volume.exists());
    }
}
