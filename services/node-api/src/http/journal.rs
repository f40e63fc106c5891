//! Logs of the node's services: from the journal, or else from the files that are named after them.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::log_directories::{LogDirectories, reason};
use crate::core::node_log_query::NodeLogQuery;

/// How long a response may take, as upstream.
const DEADLINE: Duration = Duration::from_secs(30);
/// Most bytes of the list of units: what comes later counts as logged to a file.
const MAX_UNITS_BYTES: u64 = 8 << 20;
/// Bytes that are sent at a time; few chunks wait for the client.
const CHUNK: usize = 32 << 10;
const WAITING_CHUNKS: usize = 2;
/// Queries that run at a time; others wait within their deadline.
static RUNNING: Semaphore = Semaphore::const_new(4);

/// The text of the logs, which ends at the deadline or with the client.
pub(crate) fn respond(
    journalctl: PathBuf,
    directories: Arc<LogDirectories>,
    query: NodeLogQuery,
    headers: &HeaderMap,
) -> Response {
    let gzip = headers
        .get(ACCEPT_ENCODING)
        .is_some_and(|value| value == "gzip");
    let (chunks, receiver) = mpsc::channel(WAITING_CHUNKS);
    let encoder = gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
    let output = Output { chunks, encoder };
    let client = output.chunks.clone();
    tokio::spawn(async move {
        // A client that left, or the end of the time, ends the response: there is nobody to tell. A search that
        // finds nothing writes nothing, so that the client is waited for beside it.
        tokio::select! {
            () = client.closed() => {}
            _ = timeout(DEADLINE, copy(&journalctl, &directories, &query, output)) => {}
        }
    });
    let media_type = [(CONTENT_TYPE, "text/plain;charset=UTF-8")];
    let encoding = gzip.then_some([(CONTENT_ENCODING, "gzip")]);
    let body = Body::from_stream(ReceiverStream::new(receiver));
    (media_type, encoding, body).into_response()
}

/// Where the text goes.
struct Output {
    chunks: mpsc::Sender<io::Result<Bytes>>,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Output {
    /// Sends bytes; an error, if the client left.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let chunk = match &mut self.encoder {
            None => Bytes::copy_from_slice(bytes),
            Some(encoder) => {
                encoder.write_all(bytes)?;
                Bytes::from(std::mem::take(encoder.get_mut()))
            }
        };
        self.send(chunk).await
    }

    async fn send(&self, chunk: Bytes) -> io::Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        let sent = self.chunks.send(Ok(chunk)).await;
        sent.map_err(|_| ErrorKind::BrokenPipe.into())
    }

    async fn copy(&mut self, mut reader: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = reader.read(&mut buffer).await?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                return Ok(());
            };
            self.write(bytes).await?;
        }
    }

    async fn finish(mut self) -> io::Result<()> {
        match self.encoder.take() {
            None => Ok(()),
            Some(encoder) => self.send(Bytes::from(encoder.finish()?)).await,
        }
    }
}

async fn copy(
    journalctl: &Path,
    directories: &LogDirectories,
    query: &NodeLogQuery,
    mut output: Output,
) -> io::Result<()> {
    let _permit = RUNNING.acquire().await.map_err(io::Error::other)?;
    let units = units(journalctl).await.unwrap_or_default();
    let (native, files): (Vec<String>, Vec<String>) = query
        .services
        .iter()
        .cloned()
        .partition(|service| units.contains(&format!("{service}.service")));
    if !native.is_empty() {
        copy_journal(journalctl, &query.options.arguments(&native), &mut output).await?;
    }
    if !files.is_empty() && query.has_options() {
        let text = format!(
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            files.join(" ")
        );
        output.write(text.as_bytes()).await?;
    } else {
        for service in &files {
            copy_file(directories, service, &mut output).await?;
        }
    }
    output.finish().await
}

fn command(journalctl: &Path) -> Command {
    let mut command = Command::new(journalctl);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The units that logged to the journal, one a line.
async fn units(journalctl: &Path) -> io::Result<String> {
    let mut command = command(journalctl);
    let mut child = command.args(["--field", "_SYSTEMD_UNIT"]).spawn()?;
    let mut units = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_UNITS_BYTES).read_to_end(&mut units).await?;
    }
    let _ = child.start_kill();
    child.wait().await?;
    Ok(String::from_utf8_lossy(&units).into_owned())
}

/// What the journal has, with what `journalctl` complains of.
async fn copy_journal(
    journalctl: &Path,
    arguments: &[String],
    output: &mut Output,
) -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    let mut command = command(journalctl);
    command.args(arguments);
    command.stdout(writer.try_clone()?).stderr(writer);
    let spawned = command.spawn();
    // It holds the pipe's writing end.
    drop(command);
    let Ok(mut child) = spawned else {
        let text = "\nerror: journal output not available\n";
        return output.write(text.as_bytes()).await;
    };
    let reader = tokio::net::unix::pipe::Receiver::from_owned_fd(reader.into())?;
    output.copy(reader).await?;
    child.wait().await?;
    Ok(())
}

/// The first that exists of a service's files.
async fn copy_file(
    directories: &LogDirectories,
    service: &str,
    output: &mut Output,
) -> io::Result<()> {
    for name in [
        service.to_owned(),
        format!("{service}.log"),
        format!("{service}/{service}.log"),
    ] {
        match directories.open_strictly(&name) {
            Ok((file, metadata)) if metadata.is_file() => {
                return output.copy(tokio::fs::File::from_std(file)).await;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let why = reason(&error);
                let text = format!("\nerror getting log for {service}: openat {name}: {why}\n");
                return output.write(text.as_bytes()).await;
            }
        }
    }
    let text = format!("\nlog not found for {service}\n");
    output.write(text.as_bytes()).await
}
