//! Where file systems in memory are mounted.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use polylet_machine::mountinfo::{self, MountWatch};
use rustix::fs::FsWord;

/// File systems that need no other machine and no process: they are walked also where they are mounted.
const IN_MEMORY: [(&str, FsWord); 2] = [("tmpfs", 0x0102_1994), ("hugetlbfs", 0x9584_58f6)];

/// The types of what is mounted where. The table is read again only after a change: with many pods that
/// takes milliseconds.
#[derive(Default)]
pub(super) struct MountTypes {
    by_path: HashMap<PathBuf, String>,
    watch: Option<MountWatch>,
}

impl MountTypes {
    /// The magic number of the file system in memory that is mounted at the path below the directory.
    pub(super) fn in_memory(&mut self, base: &OwnedFd, path: &Path) -> io::Result<Option<FsWord>> {
        self.refresh()?;
        let link = format!("/proc/self/fd/{}", base.as_fd().as_raw_fd());
        let mounted = self.by_path.get(&std::fs::read_link(link)?.join(path));
        let known = IN_MEMORY
            .iter()
            .find(|(name, _)| mounted.is_some_and(|mounted| mounted == name));
        Ok(known.map(|(_, magic)| *magic))
    }

    fn refresh(&mut self) -> io::Result<()> {
        if let Some(watch) = &mut self.watch
            && !watch.has_changed()?
        {
            return Ok(());
        }
        // Before the table is read, so that no change is missed, and kept only with what was read.
        self.watch = None;
        let watch = MountWatch::new()?;
        // The last one at a path is on top.
        let mounts = mountinfo::read()?.into_iter();
        self.by_path = mounts
            .map(|mount| (mount.mount_point, mount.fs_type))
            .collect();
        self.watch = Some(watch);
        Ok(())
    }
}
