use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cgroup::TestCgroupDriver;
use crate::error::{HarnessError, file};
use crate::{cgroup, cleanup, machine};

/// Name prefix of every scratch directory.
const PREFIX: &str = "polylet-t";

/// The kubelet's default root directory.
const STANDARD_ROOT: &str = "/var/lib/kubelet";

/// Where every kubelet has the socket of its device plugins.
pub(crate) const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";

/// Where device plugins register. Whoever serves it uses the directory.
pub(crate) const PLUGIN_REGISTRATION: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";

/// What a node stores of devices there, by which the next one would announce them.
const DEVICE_CHECKPOINT: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

/// Facts for [`cleanup`]; written before the resources are created.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ScratchInfo {
    /// Six hexadecimal digits, part of the name of every resource of the run.
    pub id: String,
    /// Name of the bridge.
    pub bridge: String,
    /// Parent cgroup of all pods, with a leading slash.
    pub cgroup: String,
    /// Path of containerd, and the directories prepended to its PATH.
    pub containerd: Option<PathBuf>,
    /// Directories and files created outside the scratch directory, parents first.
    pub made: Vec<PathBuf>,
    /// A symbolic link outside the scratch directory that points into it.
    #[serde(default)]
    pub link: Option<PathBuf>,
}

/// The scratch directory of a run, locked during the run: an unlocked directory belongs to a run
/// that was killed.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    info: ScratchInfo,
    _lock: File,
}

impl Scratch {
    /// Creates a directory below POLYLET_TEST_DIR, else `/tmp`: a short path, because of the length
    /// limit of Unix socket paths.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
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
        // Created and never removed by the runtime's programs, or by a kubelet, whatever its root
        // directory is.
        let shared = [
            "/run/containerd",
            "/run/containerd/s",
            "/run/docker",
            "/run/docker/plugins",
            "/var/lib/cni",
            "/var/lib/cni/results",
            "/var/log/containers",
            STANDARD_ROOT,
            DEVICE_PLUGINS,
            PLUGIN_REGISTRATION,
            DEVICE_CHECKPOINT,
        ];
        let made = shared
            .iter()
            .map(PathBuf::from)
            .filter(|path| !path.exists())
            .collect();
        let facts = ScratchInfo {
            bridge: format!("plt{id}"),
            cgroup: TestCgroupDriver::from_env().name(&id),
            id,
            containerd: None,
            made,
            link: None,
        };
        let scratch = Self {
            dir,
            info: facts,
            _lock: lock,
        };
        scratch.write_facts()?;
        Ok(scratch)
    }

    /// Path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Facts for cleanup.
    pub fn facts(&self) -> &ScratchInfo {
        &self.info
    }

    /// Creates a subdirectory.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub fn sub(&self, name: &str) -> Result<PathBuf, HarnessError> {
        let path = self.dir.join(name);
        file("make", &path, fs::create_dir_all(&path))?;
        Ok(path)
    }

    /// Records the run's containerd.
    ///
    /// # Errors
    /// Fails if the facts cannot be written.
    pub fn note_containerd(&mut self, program: &Path) -> Result<(), HarnessError> {
        self.info.containerd = Some(program.to_owned());
        self.write_facts()
    }

    /// Gives the run the cgroup and the root directory that a machine's only node has. The directory
    /// is a link into the scratch directory, so that mounts below it are found and removed as all
    /// others.
    ///
    /// # Errors
    /// [`HarnessError::OtherNode`] if the machine has one of them, which may not be this run's.
    pub fn use_standard_paths(&mut self) -> Result<(), HarnessError> {
        let cgroup = TestCgroupDriver::from_env().standard_name();
        let link = PathBuf::from(STANDARD_ROOT);
        let is_there = link.symlink_metadata().is_ok().then(|| link.clone());
        if let Some(path) = cgroup::existing(cgroup).into_iter().chain(is_there).next() {
            return Err(HarnessError::OtherNode { path });
        }
        cgroup.clone_into(&mut self.info.cgroup);
        self.info.link = Some(link.clone());
        self.write_facts()?;
        let target = self.sub("kubelet")?;
        file("link", &link, std::os::unix::fs::symlink(target, &link))
    }

    /// A number for spreading concurrent runs.
    pub fn seed(&self) -> u32 {
        u32::from_str_radix(&self.info.id, 16).unwrap_or_default()
    }

    fn write_facts(&self) -> Result<(), HarnessError> {
        let path = self.dir.join("facts.json");
        let text = serde_json::to_string(&self.info).map_err(|source| HarnessError::Json {
            what: "facts",
            from: "memory".to_owned(),
            source,
        })?;
        file("write", &path, fs::write(&path, text))
    }
}

/// Reads the facts of the run in a directory.
pub(crate) fn read_facts(dir: &Path) -> ScratchInfo {
    let text = fs::read_to_string(dir.join("facts.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Removes the unlocked scratch directories of killed runs. Returns what could not be removed.
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

/// Copies these logs of a failed run to a directory that is not removed.
pub fn keep_logs(id: &str, logs: &[PathBuf]) {
    let saved = machine::target_dir().join("testbed/failed").join(id);
    if fs::create_dir_all(&saved).is_err() {
        return;
    }
    for log in logs {
        if let Some(name) = log.file_name() {
            // A failed copy must not mask the test failure.
            let _ = fs::copy(log, saved.join(name));
        }
    }
    eprintln!("logs saved in {}", saved.display());
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
