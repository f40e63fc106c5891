use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use tokio::time::{Instant, sleep_until};

use super::choice::{Chunk, Options, wanted};
use super::files::{Snapshot, Source};
use super::open::Open;
use super::{files, line};

/// For so long after a new file has appeared the runtime may still finish with the old one: it
/// opens the new one before it closes the other.
const SETTLE: Duration = Duration::from_millis(200);

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Its files cannot be found or opened.
    #[error("cannot open log {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be read on.
    #[error("cannot read log {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its directory cannot be watched.
    #[error("cannot follow log {path}")]
    Follow {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Reads one container's log; [`Reader::next`] until it is `None`.
///
/// A follower holds the file that it reads open. When the runtime has gone on to another one, it
/// reads its own to the end first, then whatever was rotated meanwhile, then the current one.
pub struct Reader {
    path: PathBuf,
    options: Options,
    left: Option<u64>,
    /// Files still to be read.
    queue: VecDeque<Source>,
    now: Option<Open>,
    /// The last of the queue may still be written to.
    growing: bool,
    /// Stamp of the newest rotated file that is older than the one that grows.
    newest: Option<String>,
    watch: Option<EventStream<[u8; 4096]>>,
    ended: Option<Ended>,
    /// The runtime has gone on to another file; until then it may still finish with this one.
    settles: Option<Instant>,
    over: bool,
    /// By stream: its last line goes on.
    line_open: [bool; 2],
}

enum Step {
    Line(Option<Chunk>),
    Dry,
}

impl Reader {
    /// Opens the log at `path` and its rotated files. `ended` resolves when the container has
    /// ended: a follower then reads what is left and stops.
    ///
    /// # Errors
    /// When there is nothing to read and nothing to wait for.
    pub fn open(
        path: &Path,
        options: Options,
        ended: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, LogError> {
        // Watched before it is read, so that nothing falls between.
        let watch = options.follow.then(|| watch(path)).transpose()?;
        let mut reader = Self {
            path: path.to_owned(),
            left: options.limit_bytes,
            queue: VecDeque::new(),
            now: None,
            growing: false,
            newest: None,
            watch,
            ended: options.follow.then(|| Box::pin(ended) as Ended),
            settles: None,
            over: false,
            line_open: [false; 2],
            options,
        };
        reader.open_files()?;
        Ok(reader)
    }

    fn open_files(&mut self) -> Result<(), LogError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| LogError::Open { path, source }
        };
        let all = Snapshot::take(&self.path, None).map_err(failed(&self.path))?;
        if self.watch.is_none() && all.complete.is_empty() && all.growing.is_none() {
            return Err(failed(&self.path)(io::ErrorKind::NotFound.into()));
        }
        self.newest = all.newest;
        self.growing = all.growing.is_some();
        let mut wanted = self.options.tail;
        let since = self.options.since.map(SystemTime::from);
        // From the newest backwards, as far as the wanted lines reach.
        for mut source in all.complete.into_iter().chain(all.growing).rev() {
            let is_old = source
                .modified
                .zip(since)
                .is_some_and(|(at, since)| at < since);
            if wanted == Some(0) && !self.queue.is_empty() || is_old && !self.queue.is_empty() {
                break;
            }
            if let Some(lines) = &mut wanted {
                *lines -= source.tail(*lines).map_err(failed(&source.path))?;
            }
            self.queue.push_front(source);
        }
        Ok(())
    }

    /// The next part of the log; `None` at its end.
    ///
    /// # Errors
    /// When a file cannot be read; nothing follows after that.
    pub async fn next(&mut self) -> Option<Result<Chunk, LogError>> {
        loop {
            if self.over || self.left == Some(0) {
                return None;
            }
            match self.step() {
                Ok(Step::Line(Some(chunk))) => return Some(Ok(chunk)),
                // Gives others a turn between lines that are not wanted.
                Ok(Step::Line(None)) => tokio::task::yield_now().await,
                Ok(Step::Dry) => {
                    if let Err(error) = self.wait().await {
                        self.over = true;
                        return Some(Err(error));
                    }
                }
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
    }

    fn step(&mut self) -> Result<Step, LogError> {
        if self.now.is_none() && !self.open_next()? {
            return Ok(Step::Dry);
        }
        let Some(now) = &mut self.now else {
            return Ok(Step::Dry);
        };
        let settled = self.settles.is_some_and(|until| until <= Instant::now());
        // Only a file that is done, or a container that has ended, may end within a line.
        let last = !now.growing || settled || (self.ended.is_none() && self.settles.is_none());
        let taken = now.take_line(last).map_err(|source| LogError::Read {
            path: now.path.clone(),
            source,
        })?;
        if let Some(range) = taken {
            let chunk = line::parse(now.taken(range))
                .ok()
                .and_then(|line| wanted(&self.options, &line, &mut self.line_open));
            return Ok(Step::Line(chunk.map(|chunk| self.limit(chunk))));
        }
        if !now.growing {
            self.now = None;
        } else if settled {
            let inode = now.inode;
            self.now = None;
            self.settles = None;
            self.open_later(inode)?;
        } else {
            if self.settles.is_none()
                && self.watch.is_some()
                && files::is_replaced(&self.path, now.inode, self.newest.as_deref())
            {
                self.settles = Some(Instant::now() + SETTLE);
            }
            return Ok(Step::Dry);
        }
        Ok(Step::Line(None))
    }

    fn open_next(&mut self) -> Result<bool, LogError> {
        if self.queue.is_empty() && self.watch.is_some() && !self.growing {
            self.open_later(0)?;
        }
        let Some(source) = self.queue.pop_front() else {
            return Ok(false);
        };
        let (path, inode) = (source.path.clone(), source.inode);
        let growing = self.growing && self.queue.is_empty();
        self.growing &= !growing;
        let text = source.into_text().map_err(|source| LogError::Read {
            path: path.clone(),
            source,
        })?;
        self.now = Some(Open::new(text, path, inode, growing));
        Ok(true)
    }

    // Puts what was written after the file `read` into the queue. `read` is done with, and by now
    // the first of the rotated files that were not known, if it is still there.
    fn open_later(&mut self, read: u64) -> Result<(), LogError> {
        let after = self.newest.as_deref();
        let later = Snapshot::take(&self.path, after).map_err(|source| LogError::Open {
            path: self.path.clone(),
            source,
        })?;
        let mut complete = VecDeque::from(later.complete);
        if read != 0
            && complete
                .front()
                .is_some_and(|one| one.packed || one.inode == read)
        {
            complete.pop_front();
        }
        self.newest = later.newest;
        self.growing = later.growing.is_some();
        self.queue = complete;
        self.queue.extend(later.growing);
        Ok(())
    }

    // Waits until there may be more; ends the reading when there will be none.
    async fn wait(&mut self) -> Result<(), LogError> {
        let Some(watch) = &mut self.watch else {
            self.over = true;
            return Ok(());
        };
        if let Some(until) = self.settles {
            sleep_until(until).await;
            return Ok(());
        }
        let Some(ended) = &mut self.ended else {
            self.over = true;
            return Ok(());
        };
        tokio::select! {
            event = watch.next() => match event {
                Some(Ok(_)) => Ok(()),
                Some(Err(source)) => Err(LogError::Follow { path: self.path.clone(), source }),
                None => { self.over = true; Ok(()) }
            },
            () = ended => {
                // Once more to the end of the file, then no more waiting.
                self.ended = None;
                Ok(())
            }
        }
    }

    fn limit(&mut self, mut chunk: Chunk) -> Chunk {
        if let Some(left) = &mut self.left {
            let room = usize::try_from(*left).unwrap_or(usize::MAX);
            chunk.bytes.truncate(room);
            *left -= chunk.bytes.len() as u64;
        }
        chunk
    }
}

fn watch(path: &Path) -> Result<EventStream<[u8; 4096]>, LogError> {
    let failed = |source| LogError::Follow {
        path: path.to_owned(),
        source,
    };
    let dir = path.parent().unwrap_or(Path::new("/"));
    let inotify = Inotify::init().map_err(failed)?;
    let mask = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::DELETE_SELF;
    inotify.watches().add(dir, mask).map_err(failed)?;
    inotify.into_event_stream([0; 4096]).map_err(failed)
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
