//! Where cgroups are, and the form of their files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use cgroups_rs::fs::hierarchies;

/// Where the cgroup hierarchies are mounted.
#[derive(Clone, Debug)]
pub(crate) enum CgroupMounts {
    /// The unified hierarchy.
    V2(PathBuf),
    /// One hierarchy per controller below this directory.
    V1(PathBuf),
}

/// cgroup v1 shows no limit as the largest page-aligned number, which is above this one.
pub(super) const NO_LIMIT: u64 = 1 << 60;
/// What a file of a cgroup has at most, but for some of machines with many devices.
const USUAL_BYTES: usize = 4 << 10;
const MAX_BYTES: u64 = 4 << 20;

impl CgroupMounts {
    /// Detects the version in use. Not by `hierarchies::auto`, which reads the mount table for the place
    /// of version 1: with many pods that takes long, and the runtime expects it here, too.
    pub(crate) fn detect() -> Self {
        let root = PathBuf::from("/sys/fs/cgroup");
        if hierarchies::is_cgroup2_unified_mode() {
            Self::V2(root)
        } else {
            Self::V1(root)
        }
    }

    /// Whether this is cgroup v2.
    pub(crate) fn is_unified(&self) -> bool {
        matches!(self, Self::V2(_))
    }

    pub(super) fn dir(&self, controller: &str, cgroup: &str) -> PathBuf {
        let below = cgroup.trim_start_matches('/');
        match self {
            Self::V2(root) => root.join(below),
            Self::V1(root) => root.join(controller).join(below),
        }
    }

    /// The first candidate that exists.
    pub(crate) fn first_existing<'a>(&self, candidates: &'a [String]) -> Option<&'a str> {
        candidates
            .iter()
            .find(|cgroup| self.dir("memory", cgroup).is_dir())
            .map(String::as_str)
    }
}

/// A file of the kernel, in as few calls as possible: such files have no size, by which `std::fs` would
/// read them at once.
pub(super) fn text(dir: &Path, file: &str) -> String {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    let read =
        File::open(dir.join(file)).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

pub(super) fn number(dir: &Path, file: &str) -> Option<u64> {
    text(dir, file).trim().parse().ok()
}

/// The value of a name in a file of `name value` lines.
pub(super) fn key(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    pub(crate) fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, content).expect("a file");
        }
        dir
    }

    #[test]
    fn the_first_candidate_that_exists_is_found() {
        let v1 = directory(&[("memory/pod/memory.stat", "")]);
        let v2 = directory(&[("pod/memory.stat", "")]);
        let candidates = ["/other".to_owned(), "/pod".to_owned()];
        for mounts in [
            CgroupMounts::V1(v1.path().to_owned()),
            CgroupMounts::V2(v2.path().to_owned()),
        ] {
            assert_eq!(mounts.first_existing(&candidates), Some("/pod"));
            assert_eq!(mounts.first_existing(&[]), None);
        }
    }
}
