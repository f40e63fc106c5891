//! Child processes for calls that may hang for ever: the service's own binary with a hidden
//! subcommand, killed at a deadline.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polylet_kit::CancellationToken;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::core::builtin::PathCheck;
use crate::core::sub_path::{ContainerSubPaths, SubPathStage};

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "run-mount-helper";
/// The program name of a child, by which the multicall binary recognizes it.
const PROGRAM: &str = "polylet-volume-manager";

/// The deadline of a task.
const DEADLINE: Duration = Duration::from_secs(30);
/// The deadline of subPaths, for which the start of a container waits.
const SUB_PATHS_DEADLINE: Duration = Duration::from_secs(10);

/// A task for a child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HelperTask {
    /// Unmount a file system that may not answer.
    Unmount {
        /// The mount point.
        path: PathBuf,
    },
    /// Check a path that may be on such a file system.
    HostPath {
        /// The path.
        path: PathBuf,
        /// What must be there.
        check: PathCheck,
    },
    /// Bind the subPaths of a container.
    SubPaths(ContainerSubPaths),
}

impl HelperTask {
    /// The key of the resource that may hang.
    fn key(&self) -> String {
        match self {
            Self::Unmount { path } => format!("unmount {}", path.display()),
            Self::HostPath { path, .. } => format!("hostPath {}", path.display()),
            Self::SubPaths(all) => format!("{} {}", all.pod_dir.display(), all.container),
        }
    }

    fn deadline(&self) -> Duration {
        match self {
            Self::SubPaths(_) => SUB_PATHS_DEADLINE,
            _ => DEADLINE,
        }
    }
}

/// The response of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperResponse {
    /// The task succeeded.
    Done,
    /// Failed with this error.
    Failed(String),
    /// A subPath failed.
    SubPath {
        /// The stage that failed.
        stage: SubPathStage,
        /// The name of its volume.
        volume: String,
        /// The error.
        error: String,
    },
}

/// Why a task failed.
#[derive(Debug, Error)]
pub enum SubprocessError {
    /// The child could not be started.
    #[error("starting a child process")]
    Start(#[source] std::io::Error),
    /// The child missed its deadline and was killed.
    #[error("no answer within {0} s")]
    Deadline(u64),
    /// The task was canceled.
    #[error("canceled")]
    Canceled,
    /// The child ended without a response.
    #[error("the child process ended without an answer")]
    NoResponse,
    /// A killed child has not ended: another would hang beside it.
    #[error("an earlier attempt still waits for an answer")]
    StillRunning,
    /// The task failed.
    #[error("{0}")]
    Failed(String),
    /// A subPath failed.
    #[error("{error}")]
    SubPath {
        /// The stage that failed.
        stage: SubPathStage,
        /// The name of its volume.
        volume: String,
        /// The error, for the log.
        error: String,
    },
}

/// Runs tasks in child processes. Clones share it.
#[derive(Debug, Clone)]
pub struct SubprocessPool {
    binary: PathBuf,
    /// Replaces the deadline of all tasks, in tests.
    deadline: Option<Duration>,
    /// Killed children that have not ended, by the key of their task.
    killed: Arc<Mutex<BTreeMap<String, Child>>>,
}

impl Default for SubprocessPool {
    fn default() -> Self {
        // Works also right after an upgrade has replaced the file.
        Self::new(PathBuf::from("/proc/self/exe"))
    }
}

impl SubprocessPool {
    /// Children of this binary.
    pub fn new(binary: PathBuf) -> Self {
        Self {
            binary,
            deadline: None,
            killed: Arc::default(),
        }
    }

    /// Replaces the deadline of all tasks.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        let deadline = Some(deadline);
        Self { deadline, ..self }
    }

    /// Runs a task until its end, its deadline, or until it is canceled.
    pub async fn run(
        &self,
        task: &HelperTask,
        cancel: &CancellationToken,
    ) -> Result<(), SubprocessError> {
        let key = task.key();
        if self.is_still_running(&key) {
            return Err(SubprocessError::StillRunning);
        }
        // Plain data: it can always be encoded.
        let text = serde_json::to_string(task).unwrap_or_default();
        let mut child = Command::new(&self.binary)
            .arg0(PROGRAM)
            .arg(SUBCOMMAND)
            .arg(text)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(SubprocessError::Start)?;
        let mut response = String::new();
        let Some(mut stdout) = child.stdout.take() else {
            return Err(SubprocessError::NoResponse);
        };
        let deadline = self.deadline.unwrap_or_else(|| task.deadline());
        let read = tokio::time::timeout(deadline, stdout.read_to_string(&mut response));
        let read = tokio::select! {
            biased;
            read = read => read,
            () = cancel.cancelled() => {
                self.kill(key, child);
                return Err(SubprocessError::Canceled);
            }
        };
        match read {
            Err(_) => {
                self.kill(key, child);
                return Err(SubprocessError::Deadline(deadline.as_secs()));
            }
            Ok(Err(_)) => return Err(SubprocessError::NoResponse),
            Ok(Ok(_)) => {}
        }
        // The response is complete: the child is about to end.
        let _ = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
        match serde_json::from_str(&response) {
            Ok(HelperResponse::Done) => Ok(()),
            Ok(HelperResponse::Failed(error)) => Err(SubprocessError::Failed(error)),
            Ok(HelperResponse::SubPath {
                stage,
                volume,
                error,
            }) => Err(SubprocessError::SubPath {
                stage,
                volume,
                error,
            }),
            Err(_) => Err(SubprocessError::NoResponse),
        }
    }

    fn is_still_running(&self, key: &str) -> bool {
        let mut killed = self.killed.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if killed.get_mut(key).is_some_and(has_ended) {
            killed.remove(key);
        }
        killed.contains_key(key)
    }

    /// Kills a child. One that hangs in the kernel ends when the kernel lets it.
    fn kill(&self, key: String, mut child: Child) {
        // Fails only for a child that has ended.
        let _ = child.start_kill();
        let mut killed = self.killed.lock().unwrap_or_else(PoisonError::into_inner);
        killed.retain(|_, child| matches!(child.try_wait(), Ok(None)));
        killed.insert(key, child);
    }
}
