//! Container logs as bodies of responses. Files are opened and read on threads, as their disk may be slow or hang.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures::stream;
use polylet_cri::log::{LogReadError, LogReader, LogStep};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

/// Lines that are there are sent together up to about this size.
const CHUNK_BYTES: usize = 32 << 10;
/// A thread is given up after so many lines that the options exclude: others are waiting, and the client may have
/// gone.
const MAX_SKIPPED: usize = 1024;
/// Threads for logs: half of those of the process, so that a disk that hangs leaves the others for all else.
const MAX_THREADS: usize = 8;
/// How long the begin of a response waits for a thread.
const THREAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no log, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogStreamError {
    #[error(
        "all {MAX_THREADS} threads that read container logs are busy: the disk may be slow or hang; try again later"
    )]
    Busy,
    #[error(transparent)]
    Unreadable(#[from] LogReadError),
    #[error("the thread that reads the log failed")]
    Thread(#[from] JoinError),
    #[error("no logs are read any more")]
    Closed(#[from] AcquireError),
}

/// The threads that open and read container logs. Clones share the limit.
#[derive(Clone)]
pub(crate) struct LogThreads(Arc<Semaphore>);

impl Default for LogThreads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_THREADS)))
    }
}

impl LogThreads {
    /// Opens a log, unless no thread is free for some seconds.
    pub(crate) async fn open(
        &self,
        open: impl FnOnce() -> Result<LogReader, LogReadError> + Send + 'static,
    ) -> Result<LogReader, LogStreamError> {
        let permit = timeout(THREAD_TIMEOUT, self.permit()).await;
        let permit = permit.map_err(|_| LogStreamError::Busy)??;
        Ok(run(permit, open).await??)
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.0).acquire_owned().await
    }
}

/// Runs on a thread. That has the permit until it ends, even if nobody waits for it any more.
async fn run<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let work = move || {
        let result = work();
        drop(permit);
        result
    };
    spawn_blocking(work).await
}

/// The log as a response body. An error ends it early, as the status line has been sent by then.
pub(crate) fn chunks(
    reader: LogReader,
    threads: LogThreads,
) -> impl futures::Stream<Item = Result<Bytes, LogStreamError>> {
    let begin = (reader, threads, Ok(LogStep::Skipped));
    stream::try_unfold(begin, |(mut reader, threads, mut last)| async move {
        loop {
            match last? {
                LogStep::End => return Ok(None),
                LogStep::Pending => reader.changed().await?,
                LogStep::Chunk(_) | LogStep::Skipped => {}
            }
            let permit = threads.permit().await?;
            let bytes;
            (reader, bytes, last) = run(permit, move || read_chunk(reader)).await?;
            if !bytes.is_empty() {
                return Ok(Some((Bytes::from(bytes), (reader, threads, last))));
            }
        }
    })
}

/// What has been written, up to about the size of a chunk, and what follows it.
fn read_chunk(mut reader: LogReader) -> (LogReader, Vec<u8>, Result<LogStep, LogReadError>) {
    let (mut bytes, mut skipped) = (Vec::new(), 0);
    while bytes.len() < CHUNK_BYTES && skipped < MAX_SKIPPED {
        match reader.read() {
            Ok(LogStep::Chunk(chunk)) => bytes.extend(chunk.bytes),
            Ok(LogStep::Skipped) => skipped += 1,
            last => return (reader, bytes, last),
        }
    }
    (reader, bytes, Ok(LogStep::Skipped))
}

#[cfg(test)]
#[path = "log_stream_tests.rs"]
mod tests;
