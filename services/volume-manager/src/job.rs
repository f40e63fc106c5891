//! Work that may hang for ever, in a child process that can be given up: the service's own binary,
//! run with a hidden first argument.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polylet_kit::CancellationToken;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::core::spec::PathCheck;
use crate::core::sub_path::Stage;
use crate::volume::sub_path::Parts;
use crate::volume::{host_path, sub_path};

/// The hidden first argument.
pub const ARGUMENT: &str = "--do-job";
/// What a child is called, as its parent is.
const NAME: &str = "polylet-volume-manager";

/// How long a job may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long one may take that a container's start waits for: nobody can call that off.
const SUB_PATHS_DEADLINE: Duration = Duration::from_secs(10);

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
    /// Bind parts of volumes for a container.
    SubPaths(Parts),
}

impl Job {
    /// What would hang: jobs of one subject wait for the same thing.
    fn subject(&self) -> String {
        match self {
            Self::Unmount { at } => format!("unmount {}", at.display()),
            Self::HostPath { path, .. } => format!("hostPath {}", path.display()),
            Self::SubPaths(parts) => format!("{} {}", parts.pod.display(), parts.container),
        }
    }

    fn deadline(&self) -> Duration {
        match self {
            Self::SubPaths(_) => SUB_PATHS_DEADLINE,
            _ => DEADLINE,
        }
    }
}

/// What a child says in the end.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Done,
    Failed(String),
    NoSubPath {
        stage: Stage,
        volume: String,
        why: String,
    },
}

/// Why a job failed.
#[derive(Debug, Error)]
pub enum JobError {
    /// The child cannot be started.
    #[error("starting a child process")]
    Start(#[source] std::io::Error),
    /// The child did not end in time and was given up.
    #[error("no answer within {0} s")]
    Deadline(u64),
    /// Nobody waits for the child any more.
    #[error("called off")]
    CalledOff,
    /// The child ended without an answer.
    #[error("the child process ended without an answer")]
    NoAnswer,
    /// A child that was given up has not gone: another would hang beside it.
    #[error("an earlier attempt still waits for an answer")]
    StillHangs,
    /// The child's answer.
    #[error("{0}")]
    Failed(String),
    /// The child's answer about a part of a volume.
    #[error("{why}")]
    NoSubPath {
        /// What could not be done.
        stage: Stage,
        /// Of which volume.
        volume: String,
        /// The whole story, for the log.
        why: String,
    },
}

/// Runs jobs.
#[derive(Debug, Clone)]
pub struct Jobs {
    binary: PathBuf,
    /// For all jobs, in tests.
    deadline: Option<Duration>,
    /// Children that were killed and do not end, by what they wait for.
    given_up: Arc<Mutex<BTreeMap<String, Child>>>,
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
            deadline: None,
            given_up: Arc::default(),
        }
    }

    /// The same with another deadline.
    pub fn within(self, deadline: Duration) -> Self {
        let deadline = Some(deadline);
        Self { deadline, ..self }
    }

    /// Runs one, until `off` says that nobody waits for it any more.
    pub async fn run(&self, job: &Job, off: &CancellationToken) -> Result<(), JobError> {
        let subject = job.subject();
        if self.still_hangs(&subject) {
            return Err(JobError::StillHangs);
        }
        // Plain data: it can always be written.
        let text = serde_json::to_string(job).unwrap_or_default();
        let mut child = Command::new(&self.binary)
            // A file of many programs goes by it.
            .arg0(NAME)
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
        let deadline = self.deadline.unwrap_or_else(|| job.deadline());
        let read = tokio::time::timeout(deadline, out.read_to_string(&mut answer));
        let read = tokio::select! {
            biased;
            read = read => read,
            () = off.cancelled() => {
                self.give_up(subject, child);
                return Err(JobError::CalledOff);
            }
        };
        match read {
            Err(_) => {
                self.give_up(subject, child);
                return Err(JobError::Deadline(deadline.as_secs()));
            }
            Ok(Err(_)) => return Err(JobError::NoAnswer),
            Ok(Ok(_)) => {}
        }
        // The answer is complete: the child is about to end.
        let _ = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
        match serde_json::from_str(&answer) {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Failed(why)) => Err(JobError::Failed(why)),
            Ok(Answer::NoSubPath { stage, volume, why }) => {
                Err(JobError::NoSubPath { stage, volume, why })
            }
            Err(_) => Err(JobError::NoAnswer),
        }
    }

    fn still_hangs(&self, subject: &str) -> bool {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if given_up.get_mut(subject).is_some_and(gone) {
            given_up.remove(subject);
        }
        given_up.contains_key(subject)
    }

    /// Kills a child. One that hangs in the kernel ends when the kernel lets it.
    fn give_up(&self, subject: String, mut child: Child) {
        // It can only fail for a child that has ended.
        let _ = child.start_kill();
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.retain(|_, child| matches!(child.try_wait(), Ok(None)));
        given_up.insert(subject, child);
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
    let answer = match job {
        Ok(job) => perform(&job),
        Err(_) => Answer::Failed("the job cannot be read".to_owned()),
    };
    // Plain strings: nothing in it can fail to be written.
    print!("{}", serde_json::to_string(&answer).unwrap_or_default());
    Some(ExitCode::SUCCESS)
}

fn perform(job: &Job) -> Answer {
    match job {
        Job::Unmount { at } => match rustix::mount::unmount(at, UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Answer::Done,
            Err(errno) => Answer::Failed(format!("unmounting {}: {errno}", at.display())),
        },
        Job::HostPath { path, check } => match host_path::check(path, *check) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed(polylet_kit::report(&error)),
        },
        Job::SubPaths(parts) => match sub_path::prepare(parts) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::NoSubPath {
                why: polylet_kit::report(&error),
                stage: error.stage,
                volume: error.volume,
            },
        },
    }
}
