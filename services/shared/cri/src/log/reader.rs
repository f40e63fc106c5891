//! Reads a log across its files, and follows it.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep_until};

use super::files::{CriLogFile, LogSnapshot};
use super::line_reader::LineReader;
use super::options::{LogChunk, LogOptions, format_line};
use super::watcher::{DirectoryWatch, LogWatcher};
use super::{files, line};

/// How long a follower reads on in a rotated file after a new one has appeared: the runtime opens the
/// new file before it closes the old one.
const ROTATION_GRACE: Duration = Duration::from_millis(200);

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogReadError {
    /// The files cannot be found or opened.
    #[error("opening log {path}")]
    Open {
        /// The path of the log.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("reading log {path}")]
    Read {
        /// The path of the log.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The directory cannot be watched.
    #[error("following log {path}")]
    Follow {
        /// The path of the log.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

type ExitFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reads a container's log: call [`LogReader::next`] until it returns `None`. A program with other work calls
/// [`LogReader::read`] on a thread that may block, and [`LogReader::changed`] between.
///
/// A follower keeps its file open. After a rotation it reads that file to its end, then the files
/// rotated in the meantime, then the current one.
pub struct LogReader {
    path: PathBuf,
    options: LogOptions,
    remaining_bytes: Option<u64>,
    /// Of the last lines that are requested, unless it follows: lines written since the log was opened are no part of them.
    remaining_lines: Option<u64>,
    /// The next files to read.
    queue: VecDeque<CriLogFile>,
    current: Option<LineReader>,
    /// Whether the runtime may still write to the last file of the queue.
    growing: bool,
    /// The stamp of the newest rotated file.
    newest: Option<String>,
    watch: Option<DirectoryWatch>,
    exit: Option<ExitFuture>,
    /// Until when the current file is read after the runtime has switched to another one.
    drain_until: Option<Instant>,
    finished: bool,
    /// Whether the last line is incomplete, by stream.
    line_open: [bool; 2],
}

/// What [`LogReader::read`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogStep {
    /// The next chunk.
    Chunk(LogChunk),
    /// A line that the options exclude, or the end of one of the files.
    Skipped,
    /// Nothing that is not read yet: there may be more once [`LogReader::changed`] returns.
    Pending,
    /// The end of the log.
    End,
}

impl LogReader {
    /// Opens the log at `path` and its rotated files. `exit` resolves when the container has exited: a
    /// follower then reads the rest and stops. All followers of a process share the `watcher`.
    ///
    /// # Errors
    /// If there is no file, except for a follower, which waits for one.
    pub fn open(
        path: &Path,
        options: LogOptions,
        exit: impl Future<Output = ()> + Send + 'static,
        watcher: &LogWatcher,
    ) -> Result<Self, LogReadError> {
        // Watched before it is read, so that no change is missed.
        let watch = options.follow.then(|| watch(path, watcher)).transpose()?;
        let mut reader = Self {
            path: path.to_owned(),
            remaining_bytes: options.limit_bytes,
            remaining_lines: options.tail.filter(|_| !options.follow),
            queue: VecDeque::new(),
            current: None,
            growing: false,
            newest: None,
            watch,
            exit: options.follow.then(|| Box::pin(exit) as ExitFuture),
            drain_until: None,
            finished: false,
            line_open: [false; 2],
            options,
        };
        reader.open_files()?;
        Ok(reader)
    }

    fn open_files(&mut self) -> Result<(), LogReadError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| LogReadError::Open { path, source }
        };
        let files = LogSnapshot::take(&self.path, None).map_err(failed(&self.path))?;
        if self.watch.is_none() && files.complete.is_empty() && files.growing.is_none() {
            return Err(failed(&self.path)(io::ErrorKind::NotFound.into()));
        }
        self.newest = files.newest;
        self.growing = files.growing.is_some();
        let mut remaining_lines = self.options.tail;
        let since = self.options.since.map(SystemTime::from);
        // From the newest file backwards, until there are enough lines.
        for mut file in files.complete.into_iter().chain(files.growing).rev() {
            let is_old = file
                .modified
                .zip(since)
                .is_some_and(|(at, since)| at < since);
            if !self.queue.is_empty() && (remaining_lines == Some(0) || is_old) {
                break;
            }
            if let Some(lines) = &mut remaining_lines {
                *lines -= file.seek_to_tail(*lines).map_err(failed(&file.path))?;
            }
            self.queue.push_front(file);
        }
        Ok(())
    }

    /// The next chunk of the log; `None` at its end. Reads where it is polled.
    ///
    /// # Errors
    /// If a file cannot be read; the next call returns `None` then.
    pub async fn next(&mut self) -> Option<Result<LogChunk, LogReadError>> {
        loop {
            match self.read() {
                Ok(LogStep::Chunk(chunk)) => return Some(Ok(chunk)),
                // Yields between lines that the options exclude.
                Ok(LogStep::Skipped) => tokio::task::yield_now().await,
                Ok(LogStep::Pending) => {
                    if let Err(error) = self.changed().await {
                        return Some(Err(error));
                    }
                }
                Ok(LogStep::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads on, without waiting for more to be written. Blocks as long as the file system does.
    ///
    /// # Errors
    /// If a file cannot be read; the log is at its end then.
    pub fn read(&mut self) -> Result<LogStep, LogReadError> {
        if self.finished || self.remaining_bytes == Some(0) || self.remaining_lines == Some(0) {
            return Ok(LogStep::End);
        }
        let step = self.step();
        let may_grow = self.exit.is_some() || self.drain_until.is_some();
        match step {
            Ok(LogStep::Pending) if !may_grow => {
                self.finished = true;
                Ok(LogStep::End)
            }
            Err(error) => {
                self.finished = true;
                Err(error)
            }
            step => step,
        }
    }

    fn step(&mut self) -> Result<LogStep, LogReadError> {
        if self.current.is_none() && !self.open_next()? {
            return Ok(LogStep::Pending);
        }
        let Some(current) = &mut self.current else {
            return Ok(LogStep::Pending);
        };
        let is_drained = self
            .drain_until
            .is_some_and(|until| until <= Instant::now());
        // A line without a line break is complete only in a complete file, or after the container's exit.
        let at_end =
            !current.growing || is_drained || (self.exit.is_none() && self.drain_until.is_none());
        let line = current
            .next_line(at_end)
            .map_err(|source| LogReadError::Read {
                path: current.path.clone(),
                source,
            })?;
        if let Some(range) = line {
            let Ok(line) = line::parse_line(current.line(range)) else {
                return Ok(LogStep::Skipped);
            };
            if let Some(lines) = &mut self.remaining_lines {
                *lines = lines.saturating_sub(1);
            }
            let chunk = format_line(&self.options, &line, &mut self.line_open);
            return Ok(chunk.map_or(LogStep::Skipped, |chunk| LogStep::Chunk(self.limit(chunk))));
        }
        if !current.growing {
            self.current = None;
        } else if is_drained {
            let inode = current.inode;
            self.current = None;
            self.drain_until = None;
            self.open_rotated_since(inode)?;
        } else {
            if self.drain_until.is_none()
                && self.watch.is_some()
                && files::is_replaced(&self.path, current.inode, self.newest.as_deref())
            {
                self.drain_until = Some(Instant::now() + ROTATION_GRACE);
            }
            return Ok(LogStep::Pending);
        }
        Ok(LogStep::Skipped)
    }

    fn open_next(&mut self) -> Result<bool, LogReadError> {
        if self.queue.is_empty() && self.watch.is_some() && !self.growing {
            self.open_rotated_since(0)?;
        }
        let Some(file) = self.queue.pop_front() else {
            return Ok(false);
        };
        let (path, inode) = (file.path.clone(), file.inode);
        let growing = self.growing && self.queue.is_empty();
        self.growing &= !growing;
        let reader = file.into_reader().map_err(|source| LogReadError::Read {
            path: path.clone(),
            source,
        })?;
        self.current = Some(LineReader::new(reader, path, inode, growing));
        Ok(true)
    }

    /// Queues the files written after the file with the inode `read`. That file has been read, and is
    /// now the first of the new rotated files, if it still exists.
    fn open_rotated_since(&mut self, read: u64) -> Result<(), LogReadError> {
        let after = self.newest.as_deref();
        let later = LogSnapshot::take(&self.path, after).map_err(|source| LogReadError::Open {
            path: self.path.clone(),
            source,
        })?;
        let mut complete = VecDeque::from(later.complete);
        if read != 0
            && complete
                .front()
                .is_some_and(|one| one.compressed || one.inode == read)
        {
            complete.pop_front();
        }
        self.newest = later.newest;
        self.growing = later.growing.is_some();
        self.queue = complete;
        self.queue.extend(later.growing);
        Ok(())
    }

    /// Waits until there may be more to read after [`LogStep::Pending`].
    ///
    /// # Errors
    /// If the log can no longer be followed; it is at its end then.
    pub async fn changed(&mut self) -> Result<(), LogReadError> {
        if let Some(until) = self.drain_until {
            sleep_until(until).await;
            return Ok(());
        }
        let (Some(watch), Some(exit)) = (&mut self.watch, &mut self.exit) else {
            return Ok(());
        };
        tokio::select! {
            changed = watch.changed() => {
                self.finished = !matches!(changed, Ok(true));
                let followed = changed.map(drop);
                followed.map_err(|source| LogReadError::Follow { path: self.path.clone(), source })
            }
            () = exit => {
                // Reads to the end of the file once more, without waiting again.
                self.exit = None;
                Ok(())
            }
        }
    }

    fn limit(&mut self, mut chunk: LogChunk) -> LogChunk {
        if let Some(remaining) = &mut self.remaining_bytes {
            let max = usize::try_from(*remaining).unwrap_or(usize::MAX);
            chunk.bytes.truncate(max);
            *remaining -= chunk.bytes.len() as u64;
        }
        chunk
    }
}

fn watch(path: &Path, watcher: &LogWatcher) -> Result<DirectoryWatch, LogReadError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let watched = watcher.watch(directory);
    watched.map_err(|source| LogReadError::Follow {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
