//! Deletes directory trees: a little at once in this process, the rest of large ones in a child
//! process, which goes on as long as it makes progress.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use polylet_kit::{CancellationToken, report};
use polylet_walk::{Budget, Progress, remove_tree};
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::tear_down::{remove_pod_dir, remove_volume};
use super::{VolumeError, blocking};
use crate::core::layout::{Layout, VolumeId};
use crate::subprocess::Subprocesses;

/// The longest time on a thread of this process: few trees need more.
const MAX_ATTEMPT: Duration = Duration::from_millis(200);
/// How often a child process reports that it goes on.
const PERIOD: Duration = Duration::from_secs(1);

/// Why a tree could not be deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The budget is exhausted.
    #[error("deletion not finished; continuing with the next attempt")]
    Unfinished,
    /// The tree, or a part of it, cannot be deleted.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl DeleteError {
    /// The error of the volume at this path.
    pub fn at(self, path: &Path) -> VolumeError {
        let path = path.to_owned();
        match self {
            Self::Unfinished => VolumeError::DeletionUnfinished(path),
            Self::Failed(source) => VolumeError::Remove { path, source },
        }
    }
}

/// The budget of an attempt in this process.
pub fn attempt() -> Budget {
    Budget::unlimited().with_deadline(Instant::now() + MAX_ATTEMPT)
}

/// Deletes `name` and everything in it, but nothing on another file system; success if it does not
/// exist.
pub fn tree(parent: impl AsFd, name: &CStr, budget: &mut Budget) -> Result<(), DeleteError> {
    match remove_tree(parent, name, budget) {
        Ok(Progress::Finished) => Ok(()),
        Ok(Progress::Paused) => Err(DeleteError::Unfinished),
        Err(error) if error.is_mount() => {
            let name = error.name.to_string_lossy().into_owned();
            Err(io::Error::other(format!("{name:?} is a mount")).into())
        }
        Err(error) => Err(io::Error::other(error).into()),
    }
}

/// Removes an empty directory; success if it does not exist.
pub fn empty_dir(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

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
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::core::layout;
    use crate::volume::dir;

    #[test]
    fn deletes_deep_trees_and_does_not_follow_links() {
        let temp = tempfile::tempdir().unwrap();
        let keep = temp.path().join("keep");
        std::fs::create_dir(&keep).unwrap();
        std::fs::write(keep.join("f"), "x").unwrap();
        let root = temp.path().join("t");
        std::fs::create_dir(&root).unwrap();
        symlink(&keep, root.join("link")).unwrap();
        let mut deep = root.clone();
        for _ in 0..300 {
            deep.push("d");
            std::fs::create_dir(&deep).unwrap();
            std::fs::write(deep.join("f"), "").unwrap();
        }
        let parent = dir::open(temp.path()).unwrap();
        tree(&parent, c"t", &mut Budget::unlimited()).unwrap();
        tree(&parent, c"t", &mut Budget::unlimited()).unwrap();
        assert!(!root.exists() && keep.join("f").exists());
    }

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
