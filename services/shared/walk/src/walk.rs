//! A walk through a directory tree.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, chmodat, chownat,
    fstat, openat, openat2,
};
use rustix::io::Errno;

use crate::budget::{Budget, Progress};
use crate::error::{WalkError, WalkOperation};
use crate::open::{MountsBelow, has_openat2, open_entry};

/// Directories that stay open: this many at the bottom, where the walk is, …
const OPEN_BOTTOM: usize = 28;
/// … and this many at the top, to return to when a pod moves a deep directory away meanwhile.
const OPEN_TOP: usize = 4;
/// What is deeper is not entered: a level takes some 60 bytes.
const MAX_DEPTH: usize = 250_000;

/// What a walk does with a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descent {
    /// Visit what is in it.
    Enter,
    /// Leave it out.
    Skip,
}

/// What is called during a walk. An error ends the walk as [`WalkOperation::Visit`].
pub trait Visitor {
    /// A directory below the root, before what is in it.
    ///
    /// # Errors
    /// Ends the walk.
    fn enter(&mut self, dir: &VisitedEntry<'_>) -> io::Result<Descent> {
        let _ = dir;
        Ok(Descent::Enter)
    }

    /// Anything but a directory.
    ///
    /// # Errors
    /// Ends the walk.
    fn visit(&mut self, entry: &VisitedEntry<'_>) -> io::Result<()>;

    /// A directory below the root, after all that is in it: deepest first. Its name is unknown.
    ///
    /// # Errors
    /// Ends the walk.
    fn leave(&mut self, dir: &VisitedEntry<'_>) -> io::Result<()> {
        let _ = dir;
        Ok(())
    }

    /// A mount point; it is never entered.
    fn skip_mount(&mut self, name: &CStr) {
        let _ = name;
    }

    /// An entry that cannot be read; one that was deleted meanwhile is not reported. `Ok` continues
    /// with the next entry.
    ///
    /// # Errors
    /// Ends the walk, as the provided method does.
    fn skip_failed(&mut self, error: WalkError) -> Result<(), WalkError> {
        Err(error)
    }
}

/// A visited entry: its descriptor and status, which belong to the same inode.
#[derive(Debug)]
pub struct VisitedEntry<'a> {
    name: &'a CStr,
    fd: BorrowedFd<'a>,
    stat: Stat,
}

impl VisitedEntry<'_> {
    /// The last component of its path; empty in [`Visitor::leave`].
    pub fn name(&self) -> &CStr {
        self.name
    }

    /// Its status when it was opened.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// The kind of the entry.
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Changes its owner, or only one of user and group. A link's own owner is changed. Clears the
    /// set-user-ID and set-group-ID bits of files: set the mode afterwards.
    ///
    /// # Errors
    /// As chown(2).
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        Ok(chownat(self.fd, c"", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    /// Changes its mode. Not for links, which have none.
    ///
    /// # Errors
    /// As chmod(2).
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        // The descriptor of the entry may be `O_PATH`, which fchmod refuses.
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        Ok(chmodat(
            CWD,
            path,
            Mode::from_raw_mode(mode),
            AtFlags::empty(),
        )?)
    }
}

impl AsFd for VisitedEntry<'_> {
    /// Opened with `O_PATH`, except in [`Visitor::leave`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}

/// A walk of what is below a directory, not of that directory itself.
#[derive(Debug)]
pub struct Walk {
    levels: VecDeque<Level>,
}

/// A directory on the way from the root to where the walk is.
#[derive(Debug)]
struct Level {
    /// Closed while many directories below it are open.
    dir: Option<Dir>,
    /// Where to continue reading.
    offset: i64,
    inode: (u64, u64),
    /// What is mounted below it, if the kernel cannot be asked.
    mounts: Option<Box<MountsBelow>>,
}

impl Walk {
    /// A walk of what is below this open directory.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn new(root: impl AsFd) -> Result<Self, WalkError> {
        let failed = |errno: Errno| WalkError::new(WalkOperation::Open, c".", errno);
        let root = root.as_fd();
        let mounts = if has_openat2() {
            None
        } else {
            Some(MountsBelow::read(root).map_err(failed)?)
        };
        // A descriptor of its own: the position in a directory belongs to the descriptor.
        let level = open_level(root).map_err(failed)?;
        let level = Level {
            mounts: mounts.map(Box::new),
            ..level
        };
        Ok(Self {
            levels: VecDeque::from([level]),
        })
    }

    /// Walks until the end, or until the budget is exhausted: call it again to continue.
    ///
    /// # Errors
    /// Fails if the visitor does.
    pub fn run(
        &mut self,
        budget: &mut Budget,
        visitor: &mut impl Visitor,
    ) -> Result<Progress, WalkError> {
        loop {
            let Some(level) = self.levels.back_mut() else {
                return Ok(Progress::Finished);
            };
            if !budget.take() {
                return Ok(Progress::Paused);
            }
            match level.dir.as_mut().and_then(Dir::read) {
                Some(Ok(entry)) => {
                    level.offset = entry.offset();
                    let name = entry.file_name();
                    if name != c"." && name != c".." {
                        self.visit(name, visitor)?;
                    }
                }
                // Reading cannot go on after an error: the next round leaves the directory.
                Some(Err(errno)) => {
                    visitor.skip_failed(WalkError::new(WalkOperation::Read, c".", errno))?;
                }
                None => self.leave(visitor)?,
            }
        }
    }

    fn visit(&mut self, name: &CStr, visitor: &mut impl Visitor) -> Result<(), WalkError> {
        let Some(level) = self.levels.back() else {
            return Ok(());
        };
        let (fd, stat, mounts) = match level.open(name) {
            Ok(opened) => opened,
            Err(error) if error.is_mount() => {
                visitor.skip_mount(name);
                return Ok(());
            }
            Err(error) if error.is_gone() => return Ok(()),
            Err(error) => return visitor.skip_failed(error),
        };
        let entry = VisitedEntry {
            name,
            fd: fd.as_fd(),
            stat,
        };
        let failed = |error| WalkError::new(WalkOperation::Visit, name, error);
        if entry.file_type() != FileType::Directory {
            return visitor.visit(&entry).map_err(failed);
        }
        if visitor.enter(&entry).map_err(failed)? == Descent::Skip {
            return Ok(());
        }
        let opened = if self.levels.len() < MAX_DEPTH {
            open_level(&fd)
        } else {
            Err(Errno::LOOP)
        };
        match opened {
            Ok(level) => self.levels.push_back(Level { mounts, ..level }),
            Err(errno) => {
                return visitor.skip_failed(WalkError::new(WalkOperation::Open, name, errno));
            }
        }
        // The one that is now neither near the bottom nor at the top.
        if let Some(index) = self.levels.len().checked_sub(OPEN_BOTTOM + 1)
            && index >= OPEN_TOP
            && let Some(level) = self.levels.get_mut(index)
        {
            level.dir = None;
        }
        Ok(())
    }

    /// Leaves the directory at the bottom for the one above it.
    fn leave(&mut self, visitor: &mut impl Visitor) -> Result<(), WalkError> {
        let Some(Level { dir, .. }) = self.levels.pop_back() else {
            return Ok(());
        };
        let Some(dir) = dir.filter(|_| !self.levels.is_empty()) else {
            return Ok(());
        };
        let fd = dir
            .fd()
            .map_err(|errno| WalkError::new(WalkOperation::Read, c".", errno))?;
        if let Some(above) = self.levels.back_mut().filter(|above| above.dir.is_none())
            && let Err(errno) = above.reopen(fd)
        {
            // Moved away by a pod: what is left of the directories between is lost to this walk.
            let is_open = |level: &Level| level.dir.is_some();
            let open = self.levels.iter().rposition(is_open);
            self.levels.truncate(open.map_or(0, |index| index + 1));
            visitor.skip_failed(WalkError::new(WalkOperation::Ascend, c"..", errno))?;
        }
        let stat = fstat(fd).map_err(|errno| WalkError::new(WalkOperation::Stat, c".", errno))?;
        let entry = VisitedEntry {
            name: c"",
            fd,
            stat,
        };
        let failed = |error| WalkError::new(WalkOperation::Visit, c".", error);
        visitor.leave(&entry).map_err(failed)
    }
}

type Opened = (OwnedFd, Stat, Option<Box<MountsBelow>>);

impl Level {
    fn open(&self, name: &CStr) -> Result<Opened, WalkError> {
        let failed = |operation| move |errno: Errno| WalkError::new(operation, name, errno);
        let dir = self.dir.as_ref().ok_or(Errno::BADF).and_then(Dir::fd);
        let dir = dir.map_err(failed(WalkOperation::Open))?;
        let mounts = match &self.mounts {
            None => None,
            Some(mounts) => match mounts.enter_entry(name) {
                Some(mounts) => Some(Box::new(mounts)),
                None => return Err(failed(WalkOperation::Open)(Errno::XDEV)),
            },
        };
        let fd = match &mounts {
            None => open_entry(dir, name),
            Some(_) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(dir, name, flags, Mode::empty())
            }
        };
        let fd = fd.map_err(failed(WalkOperation::Open))?;
        let stat = fstat(&fd).map_err(failed(WalkOperation::Stat))?;
        if mounts.is_some() && stat.st_dev != self.inode.0 {
            return Err(failed(WalkOperation::Open)(Errno::XDEV));
        }
        Ok((fd, stat, mounts))
    }

    /// Opens this directory again, from one that was in it.
    fn reopen(&mut self, below: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = if has_openat2() {
            openat2(below, c"..", flags, Mode::empty(), ResolveFlags::NO_XDEV)?
        } else {
            openat(below, c"..", flags, Mode::empty())?
        };
        let stat = fstat(&fd)?;
        if (stat.st_dev, stat.st_ino) != self.inode {
            return Err(Errno::STALE);
        }
        let mut dir = Dir::new(fd)?;
        dir.seek(self.offset)?;
        self.dir = Some(dir);
        Ok(())
    }
}

/// Opens an open directory for reading, from its beginning.
fn open_level(dir: impl AsFd) -> rustix::io::Result<Level> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(dir, c".", flags, Mode::empty())?;
    let stat = fstat(&fd)?;
    Ok(Level {
        dir: Some(Dir::new(fd)?),
        offset: 0,
        inode: (stat.st_dev, stat.st_ino),
        mounts: None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::*;
    use crate::measure::Measurement;
    use crate::open::open_root;

    /// On a kernel without `openat2`.
    #[test]
    fn the_mount_table_names_mounts_too() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounting needs root");
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let inside = temp.path().join("a/b");
        fs::create_dir_all(&inside).unwrap();
        fs::write(temp.path().join("a/f"), "").unwrap();
        mount("tmpfs", &inside, "tmpfs", MountFlags::empty(), None).unwrap();
        fs::write(inside.join("hidden"), "").unwrap();
        let root = open_root(temp.path()).unwrap();
        let mut walk = Walk::new(&root).unwrap();
        let mounts = MountsBelow::read(&root).map(Box::new).unwrap();
        walk.levels.back_mut().unwrap().mounts = Some(mounts);
        let mut measurement = Measurement::default();
        let progress = walk.run(&mut Budget::unlimited(), &mut measurement);
        unmount(&inside, UnmountFlags::DETACH).unwrap();
        let measured = measurement.measured(progress.unwrap());
        assert_eq!((measured.usage.inodes, measured.mounts), (2, 1));
    }
}
