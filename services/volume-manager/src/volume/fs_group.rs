//! Changes the ownership of a volume to the pod's `fsGroup`, as upstream: the group gets the owner's
//! permissions, and new files inherit the group.
//!
//! In a child process, since the volume may be on a file system that does not answer; the walk may
//! take as long as it makes progress.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use polylet_kit::{CancellationToken, report};
use polylet_walk::{Budget, Descent, Progress, VisitedEntry, Visitor, Walk};
use rustix::fs::{FileType, Stat, fstat};
use serde::{Deserialize, Serialize};

use super::progress::OwnershipProgress;
use super::{VolumeError, dir};
use crate::subprocess::Subprocesses;

const DIRECTORY_MODE: u32 = 0o2770;
const FILE_MODE: u32 = 0o660;
/// The longest time for one file.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often the number of files is reported.
const PERIOD: Duration = Duration::from_millis(200);

/// Changes the ownership of a directory and everything below it on its file system.
#[derive(Debug, Serialize, Deserialize)]
pub struct SetOwnershipTask {
    /// The directory.
    pub path: PathBuf,
    /// The group.
    pub gid: u32,
    /// A root that is right stands for everything below it (`OnRootMismatch`).
    pub on_root_mismatch: bool,
}

impl SubprocessTask for SetOwnershipTask {
    const NAME: &'static str = "set-ownership";
    /// The number of files processed.
    type Progress = u64;
    type Output = Result<(), String>;

    fn key(&self) -> String {
        self.path.display().to_string()
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn run(self, progress: &mut TaskProgress<u64>) -> Self::Output {
        let done = self.set_ownership(|files| progress.report(|| files));
        done.map_err(|error| report(&error))
    }
}

impl SetOwnershipTask {
    /// Does it in a child process; `progress` shows how far it is.
    pub async fn start(
        &self,
        pod_uid: &str,
        subprocesses: &Subprocesses,
        progress: &OwnershipProgress,
        cancel: &CancellationToken,
    ) -> Result<(), VolumeError> {
        let _change = progress.begin();
        let on_progress = |files| progress.set_files(files);
        let done = subprocesses.walk(pod_uid, self, cancel, on_progress);
        done.await?.map_err(VolumeError::Task)
    }

    /// Does it in this process. The root directory is changed last: an interrupted walk is repeated.
    pub fn set_ownership(&self, mut on_progress: impl FnMut(u64)) -> Result<(), VolumeError> {
        let failed = |source: io::Error| VolumeError::SetOwner {
            path: self.path.clone(),
            source,
        };
        let root = dir::open(&self.path)?;
        let stat = fstat(&root).map_err(|errno| failed(errno.into()))?;
        if self.on_root_mismatch && is_right(&stat, self.gid) {
            return Ok(());
        }
        let mut change = OwnershipVisitor {
            gid: self.gid,
            files: 0,
        };
        let walked = |error| failed(io::Error::other(error));
        let mut walk = Walk::new(&root).map_err(walked)?;
        loop {
            let mut budget = Budget::unlimited().with_deadline(Instant::now() + PERIOD);
            let done = walk.run(&mut budget, &mut change).map_err(walked)?;
            on_progress(change.files);
            if done == Progress::Finished {
                break;
            }
        }
        change_root(&root, &stat, self.gid).map_err(failed)
    }
}

/// Changes what a walk visits.
struct OwnershipVisitor {
    gid: u32,
    files: u64,
}

impl Visitor for OwnershipVisitor {
    fn enter(&mut self, _dir: &VisitedEntry<'_>) -> io::Result<Descent> {
        Ok(Descent::Enter)
    }

    fn visit(&mut self, entry: &VisitedEntry<'_>) -> io::Result<()> {
        self.files += 1;
        match entry.file_type() {
            FileType::RegularFile => change(entry, FILE_MODE, self.gid),
            _ => entry.set_owner(None, Some(self.gid)),
        }
    }

    fn leave(&mut self, dir: &VisitedEntry<'_>) -> io::Result<()> {
        self.files += 1;
        change(dir, DIRECTORY_MODE, self.gid)
    }
}

fn change(entry: &VisitedEntry<'_>, permissions: u32, gid: u32) -> io::Result<()> {
    let Some(mode) = missing_mode(entry.stat(), permissions, gid) else {
        return Ok(());
    };
    entry.set_owner(None, Some(gid))?;
    entry.set_mode(mode)
}

fn change_root(root: &OwnedFd, stat: &Stat, gid: u32) -> io::Result<()> {
    match missing_mode(stat, DIRECTORY_MODE, gid) {
        Some(mode) => Ok(dir::set_owner(root, mode, Some(gid))?),
        None => Ok(()),
    }
}

/// The mode to set, unless group and mode are right.
fn missing_mode(stat: &Stat, permissions: u32, gid: u32) -> Option<u32> {
    let mode = (stat.st_mode & 0o7777) | permissions;
    (stat.st_gid != gid || stat.st_mode & 0o7777 != mode).then_some(mode)
}

/// The root is changed last: if it is right, everything is.
fn is_right(root: &Stat, gid: u32) -> bool {
    root.st_gid == gid && root.st_mode & DIRECTORY_MODE == DIRECTORY_MODE
}

/// The group that owns a directory.
pub fn group(path: &Path) -> Result<u32, VolumeError> {
    let stat = fstat(dir::open(path)?).map_err(|errno| VolumeError::Open {
        path: path.to_owned(),
        source: errno.into(),
    })?;
    Ok(stat.st_gid)
}
