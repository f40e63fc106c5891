//! Deletes directory trees: never across file systems, never through a link, and interruptible.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, renameat, unlinkat};
use rustix::io::Errno;

use super::dir;

/// The longest time of one attempt; the next one deletes the rest.
const MAX_ATTEMPT: Duration = Duration::from_secs(20);
/// Directories of this depth are moved up first: pods may nest them without limit.
const MAX_DEPTH: usize = 32;

/// When to interrupt a deletion.
#[derive(Debug, Clone)]
pub struct DeleteLimit {
    until: Instant,
    stop: Arc<AtomicBool>,
}

impl DeleteLimit {
    /// The limit of a new attempt; it also ends when `stop` is set.
    pub fn new(stop: &Arc<AtomicBool>) -> Self {
        Self {
            until: Instant::now() + MAX_ATTEMPT,
            stop: stop.clone(),
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) || Instant::now() > self.until {
            let text = "deletion not finished; continuing with the next attempt";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Ok(())
    }
}

/// Deletes `name` and everything in it; success if it does not exist.
pub fn tree(parent: impl AsFd, name: &CStr, limit: &DeleteLimit) -> io::Result<()> {
    entry(parent.as_fd(), name, None, 0, limit)
}

/// Removes an empty directory; success if it does not exist.
pub fn empty_dir(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn entry(
    parent: BorrowedFd<'_>,
    name: &CStr,
    top: Option<BorrowedFd<'_>>,
    depth: usize,
    limit: &DeleteLimit,
) -> io::Result<()> {
    limit.check()?;
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    if let Some(top) = top.filter(|_| depth >= MAX_DEPTH) {
        return move_up(parent, name, top);
    }
    let dir = match dir::open_on_same_fs(parent, name) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::XDEV) => {
            return Err(io::Error::other(format!("{name:?} is a mount")));
        }
        Err(errno) => return Err(errno.into()),
    };
    loop {
        let names = dir::names(&dir)?;
        for (name, _) in &names {
            entry(
                dir.as_fd(),
                name,
                top.or(Some(dir.as_fd())),
                depth + 1,
                limit,
            )?;
        }
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // A directory was moved up into it, or a process still writes.
            Err(Errno::NOTEMPTY) => limit.check()?,
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn move_up(parent: BorrowedFd<'_>, name: &CStr, top: BorrowedFd<'_>) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let to = CString::new(format!(".removing-{}-{count}", std::process::id()))?;
    Ok(renameat(parent, name, top, &to)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn limit() -> DeleteLimit {
        DeleteLimit::new(&Arc::new(AtomicBool::new(false)))
    }

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
        tree(&parent, c"t", &limit()).unwrap();
        tree(&parent, c"t", &limit()).unwrap();
        assert!(!root.exists() && keep.join("f").exists());
    }

    #[test]
    fn an_attempt_ends_when_stopped() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("t")).unwrap();
        let parent = dir::open(temp.path()).unwrap();
        let stopped = DeleteLimit::new(&Arc::new(AtomicBool::new(true)));
        assert_eq!(
            tree(&parent, c"t", &stopped).unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(temp.path().join("t").exists());
    }
}
