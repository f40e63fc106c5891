//! The disk usage of directories of pods, measured in a child process that can be killed.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use polylet_walk::{
    Budget, DiskUsage, Measurement, Progress, Walk, open_dir, open_entry, open_root,
};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::filesystem::{self, Filesystem};
use super::mount_types::MountTypes;

/// Entries that are walked before the next directory has its turn: none waits for a large one.
const SLICE: u64 = 20_000;
/// The time that a slice takes at most. On a slow disk it is over before the entries are walked; progress
/// is reported between slices, so this is far below [`DEADLINE`].
const SLICE_TIME: Duration = Duration::from_secs(1);
/// The longest time without progress. Walks skip what is mounted, so only a dead disk of the node
/// itself takes as long.
const DEADLINE: Duration = Duration::from_secs(5);

/// Measures directories of pods.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DiskUsageTask {
    /// Who asks: the same pods may be measured for several purposes at once.
    pub(crate) purpose: String,
    /// The time for all of them; what is not finished then is incomplete.
    pub(crate) budget: Duration,
    pub(crate) pods: Vec<PodPaths>,
}

/// The directories and files of a pod that are measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodPaths {
    pub(crate) uid: String,
    /// A directory that pods cannot write to, and a path below it.
    pub(crate) paths: Vec<(PathBuf, PathBuf)>,
}

/// The measured usage of one path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathUsage {
    pub(crate) usage: DiskUsage,
    /// The time ran out, and the usage is what was found until then.
    pub(crate) incomplete: bool,
    /// The file system that is mounted there, if it is one in memory.
    pub(crate) memory: Option<Filesystem>,
    /// Another file system is mounted there, which was not asked for anything.
    pub(crate) is_mount: bool,
}

/// The measured usage of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodDiskUsage {
    /// In the order of [`PodPaths::paths`]; `None` for what cannot be read.
    pub(crate) paths: Vec<Option<PathUsage>>,
    /// How long this pod took.
    pub(crate) took: Duration,
}

impl SubprocessTask for DiskUsageTask {
    const NAME: &'static str = "disk-usage";
    type Progress = ();
    type Output = BTreeMap<String, PodDiskUsage>;

    fn key(&self) -> String {
        let first = self.pods.first().map_or("", |pod| &pod.uid);
        format!("{} {first} {}", self.purpose, self.pods.len())
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn run(self, progress: &mut TaskProgress<()>) -> Self::Output {
        let until = Instant::now() + self.budget;
        let (mut bases, mut mounts) = (Bases::default(), MountTypes::default());
        let mut pods: VecDeque<PodMeasurement> =
            self.pods.into_iter().map(PodMeasurement::new).collect();
        let mut output = BTreeMap::new();
        while let Some(mut pod) = pods.pop_front() {
            let began = Instant::now();
            let is_finished = pod.advance(&mut bases, &mut mounts, began + SLICE_TIME, until);
            pod.result.took += began.elapsed();
            progress.report(|| ());
            if is_finished || Instant::now() >= until {
                let (uid, usage) = pod.finish();
                output.insert(uid, usage);
            } else {
                pods.push_back(pod);
            }
        }
        output
    }
}

/// A pod that is being measured.
struct PodMeasurement {
    uid: String,
    rest: VecDeque<(PathBuf, PathBuf)>,
    current: Option<PathMeasurement>,
    result: PodDiskUsage,
}

/// A directory that is being measured.
struct PathMeasurement {
    walk: Walk,
    measurement: Measurement,
    usage: PathUsage,
}

impl PodMeasurement {
    fn new(pod: PodPaths) -> Self {
        Self {
            uid: pod.uid,
            rest: pod.paths.into(),
            current: None,
            result: PodDiskUsage::default(),
        }
    }

    /// Measures one slice, until `slice_end` at most; true when everything is measured.
    fn advance(
        &mut self,
        bases: &mut Bases,
        mounts: &mut MountTypes,
        slice_end: Instant,
        until: Instant,
    ) -> bool {
        let budget = Budget::unlimited().with_steps(SLICE);
        let mut budget = budget.with_deadline(until.min(slice_end));
        loop {
            let Some(mut path) = self.current.take() else {
                let Some((base, path)) = self.rest.pop_front() else {
                    return true;
                };
                match begin(bases, mounts, &base, &path) {
                    Ok(Begun::Walk(path)) => self.current = Some(*path),
                    Ok(Begun::Done(usage)) => self.result.paths.push(Some(usage)),
                    Err(_) => self.result.paths.push(None),
                }
                // Paths that are not walked take no steps of the budget.
                if self.current.is_none() && Instant::now() >= slice_end {
                    return false;
                }
                continue;
            };
            match path.walk.run(&mut budget, &mut path.measurement) {
                Ok(Progress::Paused) => {
                    self.current = Some(path);
                    return false;
                }
                Ok(Progress::Finished) => self.result.paths.push(Some(path.usage(false))),
                Err(_) => self.result.paths.push(None),
            }
        }
    }

    /// What was measured until now.
    fn finish(mut self) -> (String, PodDiskUsage) {
        if let Some(path) = self.current.take() {
            self.result.paths.push(Some(path.usage(true)));
        }
        let unmeasured = self.rest.iter().map(|_| None);
        self.result.paths.extend(unmeasured);
        (self.uid, self.result)
    }
}

impl PathMeasurement {
    fn usage(&self, incomplete: bool) -> PathUsage {
        PathUsage {
            usage: self.measurement.usage(),
            incomplete,
            ..self.usage
        }
    }
}

enum Begun {
    Walk(Box<PathMeasurement>),
    Done(PathUsage),
}

fn begin(
    bases: &mut Bases,
    mounts: &mut MountTypes,
    base: &Path,
    path: &Path,
) -> io::Result<Begun> {
    let absent = Ok(Begun::Done(PathUsage::default()));
    let Some(base) = bases.open(base)? else {
        return absent;
    };
    let entry = match open_entry(base, path) {
        Ok(entry) => entry,
        Err(Errno::NOENT) => return absent,
        Err(Errno::XDEV) => return begin_mounted(mounts, base, path),
        Err(errno) => return Err(errno.into()),
    };
    let stat = fstat(&entry)?;
    let mut measurement = Measurement::default();
    measurement.count(&stat);
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(Begun::Done(PathUsage {
            usage: measurement.usage(),
            ..PathUsage::default()
        }));
    }
    walk(open_dir(&entry, c".")?, measurement, PathUsage::default())
}

fn walk(dir: OwnedFd, measurement: Measurement, usage: PathUsage) -> io::Result<Begun> {
    let walk = Walk::new(&dir).map_err(|error| error.source)?;
    Ok(Begun::Walk(Box::new(PathMeasurement {
        walk,
        measurement,
        usage,
    })))
}

/// A path at which, or on the way to which, a file system is mounted. Only one in memory is opened.
fn begin_mounted(mounts: &mut MountTypes, base: &OwnedFd, path: &Path) -> io::Result<Begun> {
    let is_mount = Ok(Begun::Done(PathUsage {
        is_mount: true,
        ..PathUsage::default()
    }));
    let Some(magic) = mounts.in_memory(base, path)? else {
        return is_mount;
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let dir = openat2(base, path, flags, Mode::empty(), inside)?;
    if fstatfs(&dir)?.f_type != magic {
        return is_mount;
    }
    let mut measurement = Measurement::default();
    measurement.count(&fstat(&dir)?);
    let usage = PathUsage {
        memory: Some(filesystem::measure_open(&dir)?),
        ..PathUsage::default()
    };
    walk(dir, measurement, usage)
}

/// The open base directories.
#[derive(Default)]
struct Bases(BTreeMap<PathBuf, Option<OwnedFd>>);

impl Bases {
    /// `None` for one that does not exist.
    fn open(&mut self, path: &Path) -> io::Result<Option<&OwnedFd>> {
        if !self.0.contains_key(path) {
            let opened = match open_root(path) {
                Ok(dir) => Some(dir),
                Err(error) if error.source.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error.source),
            };
            self.0.insert(path.to_owned(), opened);
        }
        Ok(self.0.get(path).and_then(Option::as_ref))
    }
}

/// The space of a mounted file system that may never answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MountedSpaceTask {
    pub(crate) path: PathBuf,
}

impl SubprocessTask for MountedSpaceTask {
    const NAME: &'static str = "mounted-space";
    type Progress = ();
    type Output = Result<Filesystem, String>;

    fn key(&self) -> String {
        self.path.display().to_string()
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn run(self, _progress: &mut TaskProgress<()>) -> Self::Output {
        filesystem::measure(&self.path).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
#[path = "disk_usage_tests.rs"]
mod tests;
