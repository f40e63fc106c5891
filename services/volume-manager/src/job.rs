//! Work that may hang for ever, in a child process that can be given up: the service's own binary,
//! run with a hidden first argument.

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::core::spec::PathCheck;
use crate::volume::host_path;

/// The hidden first argument.
pub const ARGUMENT: &str = "--do-job";

/// How long a job may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// One piece of such work.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Job {
    /// Undo a mount whose file system may not answer.
    Unmount {
        /// Where it is.
        at: PathBuf,
    },
    /// Look at a path that may lie anywhere.
    HostPath {
        /// It.
        path: PathBuf,
        /// What it must be.
        check: PathCheck,
    },
}

/// Why a job failed.
#[derive(Debug, Error)]
pub enum JobError {
    /// The child cannot be started.
    #[error("starting a child process")]
    Start(#[source] std::io::Error),
    /// The child did not end in time and was given up.
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Deadline,
    /// The child ended without an answer.
    #[error("the child process ended without an answer")]
    NoAnswer,
    /// The child's answer.
    #[error("{0}")]
    Failed(String),
}

/// Runs jobs.
#[derive(Debug, Clone)]
pub struct Jobs {
    binary: PathBuf,
    deadline: Duration,
}

impl Default for Jobs {
    fn default() -> Self {
        // Also right after the file was replaced by an upgrade.
        Self::new(PathBuf::from("/proc/self/exe"))
    }
}

impl Jobs {
    /// Jobs in children of this binary.
    pub fn new(binary: PathBuf) -> Self {
        Self {
            binary,
            deadline: DEADLINE,
        }
    }

    /// Runs one.
    pub async fn run(&self, job: &Job) -> Result<(), JobError> {
        // Plain data: it can always be written.
        let text = serde_json::to_string(job).unwrap_or_default();
        let mut child = Command::new(&self.binary)
            .arg(ARGUMENT)
            .arg(text)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(JobError::Start)?;
        let mut answer = String::new();
        let Some(mut out) = child.stdout.take() else {
            return Err(JobError::NoAnswer);
        };
        let read = tokio::time::timeout(self.deadline, out.read_to_string(&mut answer)).await;
        match read {
            // Dropping kills the child; one that hangs in the kernel is left to it.
            Err(_) => return Err(JobError::Deadline),
            Ok(Err(_)) => return Err(JobError::NoAnswer),
            Ok(Ok(_)) => {}
        }
        // The answer is complete: the child is about to end.
        let _ = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
        match answer.strip_prefix("failed: ") {
            Some(why) => Err(JobError::Failed(why.to_owned())),
            None if answer == "done" => Ok(()),
            None => Err(JobError::NoAnswer),
        }
    }
}

/// The child's side: the job in the process's arguments, if this process is such a child.
pub fn in_arguments() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let text = arguments.next().unwrap_or_default();
    let job = serde_json::from_slice(text.as_encoded_bytes());
    let result = match job {
        Ok(job) => perform(&job),
        Err(_) => Err("the job cannot be read".to_owned()),
    };
    match result {
        Ok(()) => print!("done"),
        Err(why) => print!("failed: {why}"),
    }
    Some(ExitCode::SUCCESS)
}

fn perform(job: &Job) -> Result<(), String> {
    match job {
        Job::Unmount { at } => match rustix::mount::unmount(at, UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            Err(errno) => Err(format!("unmounting {}: {errno}", at.display())),
        },
        Job::HostPath { path, check } => {
            host_path::check(path, *check).map_err(|error| polylet_kit::report(&error))
        }
    }
}
