use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cgroup::Driver;
use crate::error::{HarnessError, file};
use crate::{cleanup, machine};

/// The beginning of every scratch directory's name.
const PREFIX: &str = "polylet-t";

/// What [`cleanup`] has to know of a run; written before the thing it names is made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Six hexadecimal digits, in the name of all that the run makes.
    pub id: String,
    /// The bridge of its network.
    pub bridge: String,
    /// The cgroup all its pods are below, with its slash.
    pub cgroup: String,
    /// The containerd that it runs, and the directories to put first on its PATH.
    pub containerd: Option<PathBuf>,
    /// Directories outside the scratch directory that were not there before, parents first.
    pub made: Vec<PathBuf>,
}

/// One run's directory. It is held by a lock as long as the run lives: a directory without a
/// holder is a leftover.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    facts: Facts,
    _lock: File,
}

impl Scratch {
    /// Makes a new directory below POLYLET_TEST_DIR, else `/tmp`: short, so that Unix socket paths
    /// below it stay under their limit.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn create() -> Result<Self, HarnessError> {
        let id = random_id()?;
        let dir = base().join(format!("{PREFIX}{id}"));
        file("make", &dir, fs::create_dir_all(&dir))?;
        let lock = lock_file(&dir)?;
        file(
            "lock",
            &dir,
            flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(Into::into),
        )?;
        // Programs of the runtime make these for themselves and never remove them.
        let shared = [
            "/run/containerd",
            "/run/containerd/s",
            "/var/lib/cni",
            "/var/lib/cni/results",
            "/var/log/containers",
        ];
        let made = shared
            .iter()
            .map(PathBuf::from)
            .filter(|path| !path.exists())
            .collect();
        let facts = Facts {
            bridge: format!("plt{id}"),
            cgroup: Driver::from_env().name(&id),
            id,
            containerd: None,
            made,
        };
        let scratch = Self {
            dir,
            facts,
            _lock: lock,
        };
        scratch.write_facts()?;
        Ok(scratch)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What cleaning up has to know.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// A directory below it, made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn sub(&self, name: &str) -> Result<PathBuf, HarnessError> {
        let path = self.dir.join(name);
        file("make", &path, fs::create_dir_all(&path))?;
        Ok(path)
    }

    /// Notes which containerd runs here.
    ///
    /// # Errors
    /// When the facts cannot be written.
    pub fn note_containerd(&mut self, program: &Path) -> Result<(), HarnessError> {
        self.facts.containerd = Some(program.to_owned());
        self.write_facts()
    }

    /// A number for spreading concurrent runs.
    pub fn seed(&self) -> u32 {
        u32::from_str_radix(&self.facts.id, 16).unwrap_or_default()
    }

    fn write_facts(&self) -> Result<(), HarnessError> {
        let path = self.dir.join("facts.json");
        let text = serde_json::to_string(&self.facts).map_err(|source| HarnessError::Json {
            what: "facts",
            from: "memory".to_owned(),
            source,
        })?;
        file("write", &path, fs::write(&path, text))
    }
}

/// The facts of the run in a directory.
pub(crate) fn read_facts(dir: &Path) -> Facts {
    let text = fs::read_to_string(dir.join("facts.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Removes what earlier runs left behind that were killed: scratch directories that nobody holds.
/// Gives what could not be removed.
pub fn remove_leftovers() -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir(base()).into_iter().flatten().flatten() {
        let dir = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(PREFIX)
            || !dir.join("facts.json").exists()
        {
            continue;
        }
        let Ok(lock) = lock_file(&dir) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            left.extend(cleanup::sweep(&dir));
        }
    }
    left
}

/// Copies these files of a failed run to where they stay.
pub(crate) fn keep_logs(id: &str, logs: &[PathBuf]) {
    let kept = machine::target_dir().join("testbed/failed").join(id);
    if fs::create_dir_all(&kept).is_err() {
        return;
    }
    for log in logs {
        if let Some(name) = log.file_name() {
            // A log that cannot be kept must not hide why the test failed.
            let _ = fs::copy(log, kept.join(name));
        }
    }
    eprintln!("the logs are kept in {}", kept.display());
}

fn base() -> PathBuf {
    std::env::var_os("POLYLET_TEST_DIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
}

fn lock_file(dir: &Path) -> Result<File, HarnessError> {
    let path = dir.join("lock");
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    file("open", &path, opened)
}

fn random_id() -> Result<String, HarnessError> {
    let path = PathBuf::from("/dev/urandom");
    let mut bytes = [0_u8; 3];
    let read = File::open(&path).and_then(|mut source| source.read_exact(&mut bytes));
    file("read", &path, read)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
