//! Termination messages of exited containers.
//!
//! The file is usually one that the coordinator made below the root directory. A pod can mount a
//! volume in its place: what is on a volume is read by a child process, as the volume's server may be
//! gone.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_cri::labels::ContainerAnnotations;
use polylet_cri::{log, v1};
use polylet_kit::subprocess::{SubprocessLimits, SubprocessPool, SubprocessTask, TaskProgress};
use polylet_kit::{CancellationToken, report};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::DESCRIPTOR;
use crate::core::ContainerStatus;

const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Upstream's limits of a termination message.
const MAX_FILE_BYTES: u64 = 4096;
const MAX_LOG_LINES: u64 = 80;
const MAX_LOG_BYTES: usize = 2048;
/// Few children: a dead volume of a pod delays the messages of this pod alone.
const LIMITS: SubprocessLimits = SubprocessLimits {
    active: 2,
    total: 16,
    per_pod: 2,
};

/// Reads the file of a termination message, in a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TerminationFileTask {
    path: PathBuf,
}

impl SubprocessTask for TerminationFileTask {
    const NAME: &'static str = "termination-message";
    type Progress = ();
    type Output = Result<Option<Vec<u8>>, String>;

    fn key(&self) -> String {
        self.path.display().to_string()
    }

    fn deadline(&self) -> Duration {
        READ_TIMEOUT
    }

    fn run(self, _: &mut TaskProgress<()>) -> Self::Output {
        read_file(&self.path)
    }
}

/// Reads termination messages. Clones share its child processes.
#[derive(Clone)]
pub(crate) struct TerminationMessageReader {
    /// The directory of pods: files of containers in it are not on a volume.
    pods_directory: PathBuf,
    pool: SubprocessPool,
    drain: CancellationToken,
}

impl TerminationMessageReader {
    pub(crate) fn new(root_directory: &Path, drain: CancellationToken) -> Self {
        TerminationMessageReader {
            pods_directory: root_directory.join("pods"),
            pool: SubprocessPool::new(&DESCRIPTOR, LIMITS),
            drain,
        }
    }

    /// Appends the termination message of an exited container to the runtime's message.
    pub(super) async fn append(
        &self,
        pod_uid: &str,
        container: &mut ContainerStatus,
        mounts: &[v1::Mount],
    ) {
        let message = self.read(pod_uid, &sources(container, mounts)).await;
        if message.is_empty() {
            return;
        }
        if !container.message.is_empty() {
            container.message.push_str(": ");
        }
        container.message.push_str(&message);
    }

    async fn read(&self, pod_uid: &str, sources: &Sources) -> String {
        if let Some(path) = &sources.file {
            let content = if self.is_on_volume(path) {
                let task = TerminationFileTask { path: path.clone() };
                let read = self.pool.run(&task, Some(pod_uid), &self.drain).await;
                read.unwrap_or_else(|error| Err(report(&error)))
            } else {
                let path = path.clone();
                run_blocking(move || read_file(&path)).await
            };
            match content {
                Ok(Some(bytes)) if !bytes.is_empty() => return lossy(&bytes),
                Ok(_) => {}
                Err(error) => {
                    let path = path.display();
                    return format!("Error on reading termination log {path}: {error}");
                }
            }
        }
        let Some(path) = sources.log.clone() else {
            return String::new();
        };
        let read = run_blocking(move || {
            log::tail_message(&path, MAX_LOG_LINES, MAX_LOG_BYTES).map_err(|e| e.to_string())
        });
        match read.await {
            Ok(bytes) => lossy(&bytes),
            Err(error) => format!("Error on reading termination message from logs: {error}"),
        }
    }

    /// Whether a path is not `<uid>/containers/<name>/<id>` in the directory of pods, where the file
    /// of a container is unless a volume is mounted over it.
    fn is_on_volume(&self, path: &Path) -> bool {
        let below = path.strip_prefix(&self.pods_directory);
        let parts: Vec<_> = below.map(|path| path.iter().collect()).unwrap_or_default();
        !matches!(parts.as_slice(), [_, directory, _, _] if *directory == "containers")
    }
}

/// Where the termination message of an exited container may be.
struct Sources {
    file: Option<PathBuf>,
    log: Option<PathBuf>,
}

async fn run_blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::time::timeout(READ_TIMEOUT, tokio::task::spawn_blocking(read)).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {READ_TIMEOUT:?}")),
    }
}

fn sources(container: &ContainerStatus, mounts: &[v1::Mount]) -> Sources {
    let annotations = ContainerAnnotations::read(|key| {
        let found = container.annotations.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    });
    let path = annotations.termination_message_path.unwrap_or_default();
    let mount = mounts
        .iter()
        .find(|m| !path.is_empty() && m.container_path == path);
    let policy = annotations.termination_message_policy;
    // A container that could not be started has no log.
    let falls_back = policy.as_deref() == Some("FallbackToLogsOnError")
        && container.exit_code != 0
        && container.reason != "ContainerCannotRun";
    Sources {
        file: mount.map(|m| PathBuf::from(&m.host_path)),
        log: falls_back.then(|| PathBuf::from(&container.log_path)),
    }
}

/// The end of the file; `None` without a file.
fn read_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match last_bytes(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The file belongs to the container: it may be a link to a file of the host, or a named pipe, whose
/// opening would wait for a writer.
fn last_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let mut file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    file.seek(SeekFrom::Start(meta.len().saturating_sub(MAX_FILE_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

// Protobuf and the API carry UTF-8 only.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
#[path = "termination_message_tests.rs"]
mod tests;
