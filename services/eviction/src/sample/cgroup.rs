//! The usage of a cgroup that ranks pods, with cgroup v1 and v2. All that it reports: `cgroup_stats`.

use std::fs;
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

/// The present usage of a cgroup. What cannot be read is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CgroupUsage {
    pub(crate) memory: Option<CgroupMemory>,
    pub(crate) processes: Option<u64>,
}

/// The memory of a cgroup in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CgroupMemory {
    pub(crate) usage: u64,
    pub(crate) working_set: u64,
    /// `None` without a limit.
    pub(crate) limit: Option<u64>,
}

/// cgroup v1 shows no limit as the largest page-aligned number, which is above this one.
pub(super) const NO_LIMIT: u64 = 1 << 60;

impl CgroupMounts {
    /// Detects the version in use.
    pub(crate) fn detect() -> Self {
        let hierarchy = hierarchies::auto();
        if hierarchy.v2() {
            Self::V2(hierarchy.root())
        } else {
            Self::V1(hierarchy.root())
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

    /// Reads the usage of a cgroup.
    pub(crate) fn read(&self, cgroup: &str) -> CgroupUsage {
        match self {
            Self::V2(_) => {
                let dir = self.dir("", cgroup);
                CgroupUsage {
                    memory: memory_v2(&dir),
                    processes: number(&dir, "pids.current"),
                }
            }
            Self::V1(_) => CgroupUsage {
                memory: memory_v1(&self.dir("memory", cgroup)),
                processes: number(&self.dir("pids", cgroup), "pids.current"),
            },
        }
    }
}

fn memory_v2(dir: &Path) -> Option<CgroupMemory> {
    let usage = number(dir, "memory.current")?;
    let stat = text(dir, "memory.stat");
    let value = |name| key(&stat, name).unwrap_or(0);
    Some(CgroupMemory {
        usage,
        working_set: usage.saturating_sub(value("inactive_file")),
        limit: number(dir, "memory.max"),
    })
}

fn memory_v1(dir: &Path) -> Option<CgroupMemory> {
    let usage = number(dir, "memory.usage_in_bytes")?;
    let stat = text(dir, "memory.stat");
    let value = |name| key(&stat, name).unwrap_or(0);
    Some(CgroupMemory {
        usage,
        working_set: usage.saturating_sub(value("total_inactive_file")),
        limit: number(dir, "memory.limit_in_bytes").filter(|limit| *limit < NO_LIMIT),
    })
}

pub(super) fn text(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap_or_default()
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
pub(super) mod tests {
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
    fn both_versions_have_the_same_usage() {
        let v1 = directory(&[
            ("memory/pod/memory.usage_in_bytes", "4096\n"),
            ("memory/pod/memory.limit_in_bytes", "9223372036854771712\n"),
            (
                "memory/pod/memory.stat",
                "rss 1\ntotal_rss 10\ntotal_inactive_file 96\n",
            ),
            ("pids/pod/pids.current", "3\n"),
        ]);
        let v2 = directory(&[
            ("pod/memory.current", "4096\n"),
            ("pod/memory.max", "max\n"),
            ("pod/memory.stat", "anon 10\ninactive_file 96\n"),
            ("pod/pids.current", "3\n"),
        ]);
        let one = CgroupMounts::V1(v1.path().to_owned());
        let two = CgroupMounts::V2(v2.path().to_owned());
        let expected = CgroupUsage {
            memory: Some(CgroupMemory {
                usage: 4096,
                working_set: 4000,
                limit: None,
            }),
            processes: Some(3),
        };
        assert_eq!(one.read("/pod"), expected);
        assert_eq!(two.read("/pod"), expected);
        let candidates = ["/other".to_owned(), "/pod".to_owned()];
        assert_eq!(one.first_existing(&candidates), Some("/pod"));
        assert_eq!(two.read("/gone"), CgroupUsage::default());
    }
}
