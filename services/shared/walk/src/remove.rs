//! Removes directory trees: never across mounts, never through a link, in batches while it reads.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, renameat, unlinkat};
use rustix::io::Errno;

use crate::budget::{Budget, Progress};
use crate::error::{WalkError, WalkOperation};
use crate::open::open_dir;

/// Entries that are tried before the budget counts: every attempt makes progress, however short.
const BATCH: u32 = 256;
/// Directories of this depth are moved up first: pods may nest them without limit.
const MAX_DEPTH: usize = 32;
/// The depth where moving up is impossible, for example out of a subvolume.
const MAX_DEPTH_UNMOVED: usize = 256;
/// Attempts to find a free name at the top.
const MOVE_ATTEMPTS: u32 = 10_000;

/// Removes `name` in `parent` and everything in it; it is no error if it does not exist. An entry that
/// cannot be removed, such as a mount point, does not keep the others; the first error is returned at
/// the end. After [`Progress::Paused`], call it again: at least a batch is removed each time, even with
/// an exhausted budget.
///
/// # Errors
/// [`WalkError::is_mount`] for a mount point in the tree; else the error of the first entry that could
/// not be removed.
pub fn remove_tree(
    parent: impl AsFd,
    name: &CStr,
    budget: &mut Budget,
) -> Result<Progress, WalkError> {
    let mut removal = Removal {
        budget,
        batch: BATCH,
        moved: 0,
    };
    let parent = Parent {
        dir: parent.as_fd(),
        top: None,
        depth: 0,
    };
    match removal.entry(&parent, name, FileType::Unknown) {
        Ok(()) => Ok(Progress::Finished),
        Err(Interruption::Paused) => Ok(Progress::Paused),
        Err(Interruption::Failed(error)) => Err(error),
    }
}

struct Removal<'a> {
    budget: &'a mut Budget,
    batch: u32,
    moved: u32,
}

/// The directory in which an entry is removed.
struct Parent<'a> {
    dir: BorrowedFd<'a>,
    /// The first directory of the tree.
    top: Option<BorrowedFd<'a>>,
    depth: usize,
}

enum Interruption {
    Paused,
    Failed(WalkError),
}

impl Removal<'_> {
    fn take(&mut self) -> Result<(), Interruption> {
        if let Some(left) = self.batch.checked_sub(1) {
            self.batch = left;
            return Ok(());
        }
        if self.budget.take() {
            Ok(())
        } else {
            Err(Interruption::Paused)
        }
    }

    fn entry(
        &mut self,
        parent: &Parent<'_>,
        name: &CStr,
        kind: FileType,
    ) -> Result<(), Interruption> {
        self.take()?;
        if kind != FileType::Directory {
            match unlinkat(parent.dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // A directory; POSIX says PERM.
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(errno) => return Err(failed(WalkOperation::Remove, name, errno)),
            }
        }
        if let Some(top) = parent.top.filter(|_| parent.depth >= MAX_DEPTH)
            && self.move_up(parent, name, top)?
        {
            return Ok(());
        }
        match open_dir(parent.dir, name) {
            Ok(dir) => self.dir(parent, name, dir),
            Err(Errno::NOENT) => Ok(()),
            // Not a directory: it is a file that must not be removed.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                Err(failed(WalkOperation::Remove, name, Errno::PERM))
            }
            Err(errno) => Err(failed(WalkOperation::Open, name, errno)),
        }
    }

    fn dir(&mut self, parent: &Parent<'_>, name: &CStr, fd: OwnedFd) -> Result<(), Interruption> {
        let reading = |errno| failed(WalkOperation::Read, name, errno);
        // A second descriptor, since the position in the directory belongs to the first.
        let mut entries = Dir::read_from(&fd).map_err(reading)?;
        let inside = Parent {
            dir: fd.as_fd(),
            top: parent.top.or(Some(fd.as_fd())),
            depth: parent.depth + 1,
        };
        loop {
            let mut first_error = None;
            while let Some(entry) = entries.read() {
                let entry = entry.map_err(reading)?;
                if [c".", c".."].contains(&entry.file_name()) {
                    continue;
                }
                match self.entry(&inside, entry.file_name(), entry.file_type()) {
                    Err(Interruption::Failed(error)) => {
                        first_error.get_or_insert(error);
                    }
                    done => done?,
                }
            }
            match unlinkat(parent.dir, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY) => {}
                Err(errno) => return Err(failed(WalkOperation::Remove, name, errno)),
            }
            if let Some(error) = first_error {
                return Err(Interruption::Failed(error));
            }
            // A directory was moved up into it, or a process still writes.
            self.take()?;
            entries.rewind();
        }
    }

    /// Moves a deep directory to the top of its tree, where it is met again; whether that was possible.
    fn move_up(
        &mut self,
        parent: &Parent<'_>,
        name: &CStr,
        top: BorrowedFd<'_>,
    ) -> Result<bool, Interruption> {
        for _ in 0..MOVE_ATTEMPTS {
            self.moved += 1;
            let free = format!(".removing-{}-{}", std::process::id(), self.moved);
            let free = CString::new(free).unwrap_or_default();
            match renameat(parent.dir, name, top, &free) {
                Ok(()) | Err(Errno::NOENT) => return Ok(true),
                // Left by an earlier attempt.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) => {}
                Err(Errno::XDEV | Errno::PERM) if parent.depth < MAX_DEPTH_UNMOVED => {
                    return Ok(false);
                }
                Err(errno) => return Err(failed(WalkOperation::Move, name, errno)),
            }
        }
        Err(failed(WalkOperation::Move, name, Errno::EXIST))
    }
}

fn failed(operation: WalkOperation, name: &CStr, errno: Errno) -> Interruption {
    Interruption::Failed(WalkError::new(operation, name, errno))
}
