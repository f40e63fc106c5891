//! A temporary root directory, whose mounts are removed with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polylet_volume_manager::core::layout::Layout;

/// A root directory.
pub struct Root {
    pub dir: tempfile::TempDir,
}

impl Root {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn layout(&self) -> Layout {
        Layout::new(self.dir.path())
    }

    pub fn pod(&self, uid: &str) -> PathBuf {
        self.layout().pod(uid)
    }

    /// The lines of the mount table below it.
    pub fn mounts(&self) -> Vec<String> {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let inside = self.dir.path().to_str().unwrap();
        table
            .lines()
            .filter(|line| line.contains(inside))
            // The root directory itself may be bind-mounted.
            .filter(|line| line.split(' ').nth(4) != Some(inside))
            .map(str::to_owned)
            .collect()
    }

    /// Every file and directory with inode, mode, owner and time of change.
    pub fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        list(self.dir.path(), &mut all);
        all
    }
}

fn list(dir: &Path, all: &mut BTreeMap<PathBuf, String>) {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let m = path.symlink_metadata().unwrap();
        let description = format!(
            "{} {:o} {}:{} {}.{}",
            m.ino(),
            m.mode(),
            m.uid(),
            m.gid(),
            m.ctime(),
            m.ctime_nsec()
        );
        if m.is_dir() {
            list(&path, all);
        }
        all.insert(path, description);
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        use rustix::mount::{UnmountFlags, unmount};
        for line in self.mounts().iter().rev() {
            if let Some(at) = line.split(' ').nth(4) {
                let _ = unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            }
        }
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}
