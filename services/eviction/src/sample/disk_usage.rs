//! Disk usage of a directory, measured by walking it.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Allocated bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

impl DiskUsage {
    pub(crate) fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// Measures `root` and everything below it on the same file system. Hard links count once; files that
/// disappear during the walk are omitted.
pub(crate) fn measure(root: &Path) -> DiskUsage {
    let mut total = DiskUsage::default();
    let Ok(top) = fs::symlink_metadata(root) else {
        return total;
    };
    let device = top.dev();
    let mut seen = HashSet::new();
    let mut stack = vec![(root.to_path_buf(), top)];
    while let Some((path, meta)) = stack.pop() {
        if meta.dev() != device || (meta.nlink() > 1 && !meta.is_dir() && !seen.insert(meta.ino()))
        {
            continue;
        }
        total.bytes = total
            .bytes
            .saturating_add(meta.blocks().saturating_mul(512));
        total.inodes += 1;
        if !meta.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            if let Ok(meta) = entry.path().symlink_metadata() {
                stack.push((entry.path(), meta));
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_links_count_once_and_symlinks_are_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("a"), vec![0_u8; 8192]).expect("a file");
        let single = measure(dir.path());
        assert!(single.bytes >= 8192);
        assert_eq!(single.inodes, 2);
        fs::hard_link(dir.path().join("a"), dir.path().join("b")).expect("a hard link");
        std::os::unix::fs::symlink("/", dir.path().join("c")).expect("a symlink");
        let linked = measure(dir.path());
        assert_eq!(linked.inodes, 3);
        assert_eq!(measure(&dir.path().join("missing")), DiskUsage::default());
    }
}
