//! The parent's side.

use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::permits::{ChildPermits, Permits, SubprocessLimits};
use super::protocol::{ChildMessage, MAX_SIZE, SUBCOMMAND};
use super::task::SubprocessTask;
use crate::{CancellationToken, ServiceDescriptor};

/// A child that makes no progress for this long waits for something.
const STALL: Duration = Duration::from_millis(500);
/// How long a child may take to end after its last message.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a task has no output.
#[derive(Debug, thiserror::Error)]
pub enum SubprocessError {
    /// The task cannot be encoded.
    #[error("encoding a task for a child process")]
    Encode(#[source] serde_json::Error),
    /// The child could not be started.
    #[error("starting a child process")]
    Start(#[source] io::Error),
    /// The child made no progress for this many seconds and was killed.
    #[error("no answer within {0} s")]
    Deadline(u64),
    /// The task was canceled.
    #[error("canceled")]
    Canceled,
    /// The child ended without an output.
    #[error("the child process ended without an answer: {0}")]
    NoResponse(String),
    /// The child sent something that is not a message.
    #[error("invalid answer from a child process")]
    Invalid(#[source] serde_json::Error),
    /// The task panicked.
    #[error("the child process panicked: {0}")]
    Panicked(String),
    /// A killed child has not ended: another would hang beside it.
    #[error("an earlier attempt still waits for an answer")]
    StillRunning,
    /// Other children used all permits for as long as the task may take.
    #[error("too many other calls wait for an answer")]
    Busy,
}

/// Runs tasks in child processes. Clones share the bounds.
#[derive(Debug, Clone)]
pub struct SubprocessPool {
    /// The children's program name, by which the multicall binary recognizes the service.
    program: Arc<str>,
    binary: PathBuf,
    /// Replaces the deadline of all tasks, in tests.
    deadline: Option<Duration>,
    permits: Arc<Permits>,
}

impl SubprocessPool {
    /// A pool of children of the service.
    pub fn new(descriptor: &ServiceDescriptor, limits: SubprocessLimits) -> Self {
        Self {
            program: format!("polylet-{}", descriptor.service).into(),
            // Works also right after an upgrade has replaced the file.
            binary: PathBuf::from("/proc/self/exe"),
            deadline: None,
            permits: Arc::new(Permits::new(limits)),
        }
    }

    /// Starts children of this binary.
    #[must_use]
    pub fn with_binary(self, binary: impl Into<PathBuf>) -> Self {
        let binary = binary.into();
        Self { binary, ..self }
    }

    /// Replaces the deadline of all tasks.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        let deadline = Some(deadline);
        Self { deadline, ..self }
    }

    /// Runs a task until its end, its deadline, or until it is canceled. `pod` is the uid of the pod
    /// whose bound applies.
    pub async fn run<T: SubprocessTask>(
        &self,
        task: &T,
        pod: Option<&str>,
        cancel: &CancellationToken,
    ) -> Result<T::Output, SubprocessError> {
        self.run_with_progress(task, pod, cancel, |_| {}).await
    }

    /// The same, with its progress.
    pub async fn run_with_progress<T: SubprocessTask>(
        &self,
        task: &T,
        pod: Option<&str>,
        cancel: &CancellationToken,
        on_progress: impl FnMut(T::Progress),
    ) -> Result<T::Output, SubprocessError> {
        let deadline = self.deadline.unwrap_or_else(|| task.deadline());
        let request = serde_json::to_vec(task).map_err(SubprocessError::Encode)?;
        let key = format!("{} {}", T::NAME, task.key());
        let work = async {
            let permits = timeout(deadline, self.permits.acquire(key, pod)).await;
            let permits = permits
                .map_err(|_| SubprocessError::Busy)?
                .map_err(|_| SubprocessError::StillRunning)?;
            let mut child = RunningChild::start(self.command(T::NAME), permits)?;
            child.converse::<T>(request, deadline, on_progress).await
        };
        tokio::select! {
            biased;
            output = work => output,
            () = cancel.cancelled() => Err(SubprocessError::Canceled),
        }
    }

    fn command(&self, task: &str) -> Command {
        let mut command = std::process::Command::new(&self.binary);
        command
            .arg0(&*self.program)
            .args([SUBCOMMAND, task])
            .arg(std::process::id().to_string())
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == OsStr::new("PATH")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // The programs that it starts are killed with it.
            .process_group(0);
        #[cfg(feature = "crash-points")]
        if let Some(directory) = std::env::var_os(polylet_crash_points::VARIABLE) {
            command.env(polylet_crash_points::VARIABLE, directory);
        }
        command.into()
    }
}

/// A child process. Dropping it kills it; its permits are held until it has ended.
#[derive(Debug)]
struct RunningChild {
    /// Taken when it is dropped.
    process: Option<(Child, ChildPermits)>,
}

impl RunningChild {
    fn start(mut command: Command, permits: ChildPermits) -> Result<Self, SubprocessError> {
        let child = command.spawn().map_err(SubprocessError::Start)?;
        let process = Some((child, permits));
        Ok(Self { process })
    }

    /// Sends the request and receives messages until the last.
    async fn converse<T: SubprocessTask>(
        &mut self,
        request: Vec<u8>,
        deadline: Duration,
        mut on_progress: impl FnMut(T::Progress),
    ) -> Result<T::Output, SubprocessError> {
        let pipes = self
            .process
            .as_mut()
            .map(|(child, _)| (child.stdin.take(), child.stdout.take()));
        let Some((Some(stdin), Some(mut stdout))) = pipes else {
            return Err(SubprocessError::NoResponse("no pipe".to_owned()));
        };
        let receive = async {
            loop {
                let bytes = self.receive(&mut stdout, deadline).await?;
                match decode::<ChildMessage<T::Progress, T::Output>>(&bytes)? {
                    ChildMessage::Progress(progress) => on_progress(progress),
                    ChildMessage::Done(output) => {
                        self.ended().await;
                        return Ok(output);
                    }
                    ChildMessage::Panicked(message) => {
                        return Err(SubprocessError::Panicked(message));
                    }
                }
            }
        };
        tokio::select! {
            biased;
            output = receive => output,
            never = send(stdin, request) => never,
        }
    }

    /// The next message.
    async fn receive(
        &mut self,
        stdout: &mut ChildStdout,
        deadline: Duration,
    ) -> Result<Vec<u8>, SubprocessError> {
        let stall = STALL.min(deadline);
        let received = {
            let read = read(stdout);
            tokio::pin!(read);
            match timeout(stall, &mut read).await {
                Ok(received) => Ok(received),
                Err(_) => {
                    if let Some((_, permits)) = &mut self.process {
                        permits.release_active();
                    }
                    timeout(deadline.saturating_sub(stall), read).await
                }
            }
        };
        match received {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => {
                let ended = self.ended().await.map(|status| status.to_string());
                Err(SubprocessError::NoResponse(
                    ended.unwrap_or_else(|| error.to_string()),
                ))
            }
            Err(_) => Err(SubprocessError::Deadline(deadline.as_secs())),
        }
    }

    /// Waits for the end of a child that has nothing more to send.
    async fn ended(&mut self) -> Option<ExitStatus> {
        let (child, _) = self.process.as_mut()?;
        let status = timeout(END_TIMEOUT, child.wait()).await.ok()?.ok()?;
        self.process = None;
        Some(status)
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        let Some((mut child, permits)) = self.process.take() else {
            return;
        };
        let id = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = id {
            // Fails only for one that has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        permits.close_key();
        // Without a runtime this process is ending.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // One that hangs in the kernel ends when the kernel lets it.
                let _ = child.wait().await;
                drop(permits);
            });
        }
    }
}

/// Sends the request. Resolves never: the child's messages, or its end, are the result.
async fn send<T>(mut stdin: ChildStdin, request: Vec<u8>) -> T {
    // Fails only if the child has ended.
    let _ = stdin.write_all(&request).await;
    drop((stdin, request));
    pending().await
}

async fn read(stdout: &mut ChildStdout) -> io::Result<Vec<u8>> {
    let size = stdout.read_u32_le().await?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > MAX_SIZE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; size];
    stdout.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, SubprocessError> {
    serde_json::from_slice(bytes).map_err(SubprocessError::Invalid)
}
