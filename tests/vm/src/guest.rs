use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polylet_harness::HarnessError;
use polylet_harness::error::file;
use polylet_harness::wait::Poll;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, oneshot, watch};

use crate::agent::{AgentMessage, CommandOutput, GuestCommand, decode, encode};
use crate::error::VmError;

/// The usual time limit of a command: the machine is emulated, and slow.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Time for a response beyond the command's own time limit.
const RESPONSE_LIMIT: Duration = Duration::from_secs(30);

/// Bytes of a file that are written by one command.
const PIECE: usize = 4 << 20;

/// Commands that wait for their end; closed when the connection breaks.
type Pending = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<CommandOutput>>>>>;

/// A test's access to a running machine: runs commands through the agent in it.
#[derive(Debug)]
pub struct Guest {
    writer: AsyncMutex<OwnedWriteHalf>,
    pending: Pending,
    boot: watch::Receiver<Option<String>>,
    next_id: AtomicU64,
}

impl Guest {
    /// Connects to the port of a machine that is starting.
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        let pending: Pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let (booted, boot) = watch::channel(None);
        // Ends with the machine, which closes the port.
        tokio::spawn(receive(reader, Arc::clone(&pending), booted));
        Self {
            writer: AsyncMutex::new(writer),
            pending,
            boot,
            next_id: AtomicU64::new(1),
        }
    }

    /// Waits for an agent of another boot than `previous` and returns the boot's identifier.
    ///
    /// # Errors
    /// Fails when the machine ends.
    pub(crate) async fn booted(&self, previous: Option<&str>) -> Result<String, VmError> {
        let mut boot = self.boot.clone();
        let ready = boot.wait_for(|boot| boot.is_some() && boot.as_deref() != previous);
        let boot = ready.await.map_err(|_| VmError::AgentGone)?;
        Ok(boot.clone().unwrap_or_default())
    }

    /// Identifier of the current boot.
    pub fn boot_id(&self) -> Option<String> {
        self.boot.borrow().clone()
    }

    /// Runs a program and returns its result, whatever it is.
    ///
    /// # Errors
    /// Fails if the machine does not respond.
    pub async fn run(
        &self,
        args: &[&str],
        input: impl AsRef<[u8]>,
        limit: Duration,
    ) -> Result<CommandOutput, VmError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let command = GuestCommand {
            id,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        };
        let (sender, ended) = oneshot::channel();
        match &mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(pending) => pending.insert(id, sender),
            None => return Err(VmError::AgentGone),
        };
        let bytes = encode(&command, input.as_ref()).map_err(|source| VmError::Agent { source })?;
        let exchange = async {
            let written = self.writer.lock().await.write_all(&bytes).await;
            written.map_err(|source| VmError::Agent { source })?;
            ended.await.map_err(|_| VmError::AgentGone)
        };
        match tokio::time::timeout(limit + RESPONSE_LIMIT, exchange).await {
            Ok(output) => output,
            Err(_) => Err(VmError::CommandTimeout {
                command: args.join(" "),
                seconds: (limit + RESPONSE_LIMIT).as_secs(),
                output: "no response from the machine's agent".to_owned(),
            }),
        }
    }

    /// Runs a shell script and returns its result, whatever it is, within [`LIMIT`].
    ///
    /// # Errors
    /// Fails if the machine does not respond.
    pub async fn output(&self, script: &str) -> Result<CommandOutput, VmError> {
        self.run(&["sh", "-euc", script], "", LIMIT).await
    }

    /// Runs a shell script and returns its standard output.
    ///
    /// # Errors
    /// Fails if it fails, with its output, or does not end within [`LIMIT`].
    pub async fn sh(&self, script: &str) -> Result<String, VmError> {
        self.sh_within(script, LIMIT).await
    }

    /// Like [`Guest::sh`], with another time limit.
    ///
    /// # Errors
    /// See [`Guest::sh`].
    pub async fn sh_within(&self, script: &str, limit: Duration) -> Result<String, VmError> {
        let output = self.run(&["sh", "-euc", script], "", limit).await?;
        checked(script, output, limit)
    }

    /// Runs a program that prints JSON.
    ///
    /// # Errors
    /// Fails if it fails or prints something else.
    pub async fn json<T: DeserializeOwned>(&self, args: &[&str]) -> Result<T, VmError> {
        let command = args.join(" ");
        let text = checked(&command, self.run(args, "", LIMIT).await?, LIMIT)?;
        serde_json::from_str(&text).map_err(|source| VmError::CommandOutput { command, source })
    }

    /// Writes a file atomically, with its directory if necessary. It is in the machine's memory until
    /// somebody syncs it.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub async fn write(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), VmError> {
        self.write_with_mode(path, content.as_ref(), 0o644).await
    }

    async fn write_with_mode(&self, path: &str, content: &[u8], mode: u32) -> Result<(), VmError> {
        // An empty file is one piece, too.
        let pieces = content
            .chunks(PIECE)
            .chain(content.is_empty().then_some(content));
        let mut script = r#"mkdir -p "$(dirname "$0")" && cat > "$0.part""#;
        for piece in pieces {
            self.script(script, &[path], piece).await?;
            script = r#"cat >> "$0.part""#;
        }
        let finish = r#"chmod "$1" "$0.part" && mv "$0.part" "$0""#;
        self.script(finish, &[path, &format!("{mode:o}")], &[])
            .await
    }

    /// Copies a file or a directory of this machine into the virtual one, with the modes. `to` is the
    /// copy's path; the directories on the way are made, and other files of a directory that exists stay.
    ///
    /// # Errors
    /// Fails if something cannot be read or written.
    pub async fn copy(&self, from: &Path, to: &str) -> Result<(), VmError> {
        let metadata = file("read", from, std::fs::metadata(from))?;
        if !metadata.is_dir() {
            let content = file("read", from, std::fs::read(from))?;
            let mode = metadata.permissions().mode() & 0o7777;
            return self.write_with_mode(to, &content, mode).await;
        }
        let archive = archive(from).await?;
        let unpacked = format!(
            "/run/polylet-vm-{}.tar",
            self.next_id.load(Ordering::Relaxed)
        );
        self.write(&unpacked, &archive).await?;
        let unpack = r#"mkdir -p "$1" && tar --extract --preserve-permissions --file "$0" --directory "$1" && rm "$0""#;
        self.script(unpack, &[&unpacked, to], &[]).await
    }

    /// Runs a script with these arguments, the first as `$0`.
    async fn script(&self, script: &str, args: &[&str], input: &[u8]) -> Result<(), VmError> {
        let command = [&["sh", "-euc", script][..], args].concat();
        let output = self.run(&command, input, LIMIT).await?;
        checked(&command.join(" "), output, LIMIT).map(drop)
    }
}

/// An archive of the content of a directory.
async fn archive(dir: &Path) -> Result<Vec<u8>, VmError> {
    let mut tar = tokio::process::Command::new("tar");
    tar.args(["--create", "--owner=0", "--group=0", "--directory"]);
    let output = tar.arg(dir).arg(".").kill_on_drop(true).output().await;
    let output = output.map_err(|source| HarnessError::Run {
        program: "tar".to_owned(),
        source,
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(VmError::Harness(HarnessError::Failed {
        program: "tar".to_owned(),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    }))
}

fn checked(command: &str, output: CommandOutput, limit: Duration) -> Result<String, VmError> {
    let command = command.to_owned();
    if output.timed_out {
        return Err(VmError::CommandTimeout {
            command,
            seconds: limit.as_secs(),
            output: output.text(),
        });
    }
    if output.succeeded() {
        return Ok(output.stdout);
    }
    let status = output
        .code
        .map_or_else(|| "killed".to_owned(), |code| format!("exit code {code}"));
    Err(VmError::CommandFailed {
        command,
        status,
        output: output.text(),
    })
}

/// Receives messages until the port is closed.
async fn receive(
    mut reader: OwnedReadHalf,
    pending: Pending,
    booted: watch::Sender<Option<String>>,
) {
    let mut received = Vec::new();
    while matches!(reader.read_buf(&mut received).await, Ok(count) if count > 0) {
        while let Ok(Some((message, _))) = decode(&mut received) {
            match message {
                AgentMessage::Ready { boot_id } => {
                    booted.send_replace(Some(boot_id));
                }
                AgentMessage::Ended { id, output } => {
                    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
                    let sender = pending.as_mut().and_then(|pending| pending.remove(&id));
                    // The caller may have stopped waiting.
                    let _ = sender.map(|sender| sender.send(output));
                }
            }
        }
    }
    // Waiting callers see the end of the connection.
    *pending.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Time between two polls. Each may run a program in an emulated machine, which does little else then.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Polls until the condition holds, with a time limit of its own: an emulated machine is slow.
///
/// # Errors
/// [`VmError::Timeout`] with the last observation, or the error of a poll.
pub async fn until<T, F, Fut>(
    what: impl Display,
    limit: Duration,
    mut poll: F,
) -> Result<T, VmError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Poll<T>, VmError>>,
{
    let start = Instant::now();
    loop {
        let last = match poll().await? {
            Poll::Ready(value) => return Ok(value),
            Poll::Pending(last) => last,
        };
        if start.elapsed() >= limit {
            return Err(VmError::Timeout {
                what: what.to_string(),
                seconds: limit.as_secs(),
                last,
            });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
