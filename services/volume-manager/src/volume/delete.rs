//! Deletes directory trees: a little at once in this process, the rest of large ones in a child
//! process, which goes on as long as it makes progress.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use polylet_walk::{Budget, Progress, remove_tree};
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::VolumeError;

/// The longest time on a thread of this process: few trees need more.
const MAX_ATTEMPT: Duration = Duration::from_millis(200);

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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
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
}
