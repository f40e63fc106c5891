use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use futures::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use jiff::Timestamp;

use super::{Line, Stream, files, line, tail};

/// Lines longer than this are given in pieces: a file without line ends must not fill the memory.
const LONGEST: usize = 1 << 20;
const BLOCK: usize = 64 * 1024;

/// What somebody wants to see of a log.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only so many lines from the end.
    pub tail: Option<u64>,
    /// Only lines written at this time or later.
    pub since: Option<Timestamp>,
    /// Each line after the time it was written at.
    pub timestamps: bool,
    /// No more than so many bytes in all.
    pub limit_bytes: Option<u64>,
    /// Go on until the container ends.
    pub follow: bool,
    /// Which of the two streams.
    pub streams: Streams,
}

/// A choice of the two streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Streams {
    /// Both.
    #[default]
    All,
    /// Standard output only.
    Stdout,
    /// Standard error only.
    Stderr,
}

/// Some of the log, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Where the container wrote it.
    pub stream: Stream,
    /// One line, or what one holds of it.
    pub bytes: Vec<u8>,
}

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
pub struct Reader {
    path: PathBuf,
    options: Options,
    left: Option<u64>,
    /// Older files still to be read, with where to begin.
    queue: VecDeque<(File, PathBuf)>,
    now: Option<Open>,
    watch: Option<EventStream<[u8; 4096]>>,
    ended: Option<Ended>,
    over: bool,
    line_open: bool,
}

struct Open {
    file: File,
    path: PathBuf,
    inode: u64,
    /// The file that is being written; older ones end at their end.
    current: bool,
    buffer: Vec<u8>,
    used: usize,
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
            watch,
            ended: options.follow.then(|| Box::pin(ended) as Ended),
            over: false,
            line_open: false,
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
        let mut paths = files::rotated(&self.path).map_err(failed(&self.path))?;
        paths.push(self.path.clone());
        let mut wanted = self.options.tail;
        // From the newest backwards, as far as the wanted lines reach.
        for path in paths.into_iter().rev() {
            let mut file = match File::open(&path) {
                Ok(file) => file,
                // Rotated away meanwhile, or not made yet.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && (path != self.path || self.watch.is_some()) =>
                {
                    continue;
                }
                Err(error) => return Err(failed(&path)(error)),
            };
            if let Some(lines) = &mut wanted {
                let tail = tail::find(&mut file, *lines).map_err(failed(&path))?;
                file.seek(SeekFrom::Start(tail.offset))
                    .map_err(failed(&path))?;
                *lines -= tail.lines;
            }
            self.queue.push_front((file, path));
            if wanted == Some(0) {
                break;
            }
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
        // Only a file that is done, or a container that has ended, may end within a line.
        let last = !now.current || self.ended.is_none();
        let taken = now.take_line(last).map_err(|source| LogError::Read {
            path: now.path.clone(),
            source,
        })?;
        match taken {
            Some(range) => {
                let raw = &now.buffer[range];
                let chunk = line::parse(raw)
                    .ok()
                    .and_then(|line| wanted(&self.options, &line, &mut self.line_open));
                Ok(Step::Line(chunk.map(|c| self.limit(c))))
            }
            None if now.current && !now.replaced(&self.path) => Ok(Step::Dry),
            None => {
                // A rotation may have come between the last read and the look at the name.
                if !now.current || !now.grown() {
                    self.now = None;
                }
                Ok(Step::Line(None))
            }
        }
    }

    fn open_next(&mut self) -> Result<bool, LogError> {
        let next = match self.queue.pop_front() {
            Some(next) => Some(next),
            None => match File::open(&self.path) {
                Ok(file) => Some((file, self.path.clone())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(source) => {
                    let path = self.path.clone();
                    return Err(LogError::Open { path, source });
                }
            },
        };
        let Some((file, path)) = next else {
            return Ok(false);
        };
        let inode = file.metadata().map_or(0, |m| m.ino());
        self.now = Some(Open {
            current: self.queue.is_empty(),
            file,
            path,
            inode,
            buffer: Vec::new(),
            used: 0,
        });
        Ok(true)
    }

    // Waits until there may be more; ends the reading when there will be none.
    async fn wait(&mut self) -> Result<(), LogError> {
        let (Some(watch), Some(ended)) = (&mut self.watch, &mut self.ended) else {
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

impl Open {
    // The next line with its end, as a range of the buffer; what is left at the end of the file
    // counts as one when it is `last`.
    fn take_line(&mut self, last: bool) -> io::Result<Option<std::ops::Range<usize>>> {
        let mut searched = self.used;
        loop {
            let found = self.buffer[searched..].iter().position(|b| *b == b'\n');
            let end = match found {
                Some(at) => Some(searched + at + 1),
                None if self.buffer.len() - self.used >= LONGEST => Some(self.buffer.len()),
                None => None,
            };
            if let Some(end) = end {
                let range = self.used..end;
                self.used = end;
                return Ok(Some(range));
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            searched = self.buffer.len();
            if self.fill()? == 0 {
                let rest = self.buffer.len();
                self.used = if last { rest } else { 0 };
                return Ok((last && rest > 0).then_some(0..rest));
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let held = self.buffer.len();
        self.buffer.resize(held + BLOCK, 0);
        let read = self.file.read(&mut self.buffer[held..]);
        self.buffer
            .truncate(held + read.as_ref().copied().unwrap_or(0));
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.fill(),
            other => other,
        }
    }

    fn replaced(&self, path: &Path) -> bool {
        // Away for a moment during a rotation: only another file in its place counts.
        std::fs::metadata(path).is_ok_and(|m| m.ino() != self.inode)
    }

    fn grown(&mut self) -> bool {
        let (Ok(meta), Ok(at)) = (self.file.metadata(), self.file.stream_position()) else {
            return false;
        };
        meta.len() > at
    }
}

// A line as the caller asked for it, or nothing.
fn wanted(options: &Options, line: &Line<'_>, line_open: &mut bool) -> Option<Chunk> {
    let stream_fits = match options.streams {
        Streams::All => true,
        Streams::Stdout => line.stream == Stream::Stdout,
        Streams::Stderr => line.stream == Stream::Stderr,
    };
    if !stream_fits || options.since.is_some_and(|since| line.time < since) {
        return None;
    }
    let mut bytes = Vec::with_capacity(line.content.len() + 32);
    // The pieces of one long line have one time, at its beginning.
    if options.timestamps && !*line_open {
        bytes.extend_from_slice(format!("{:.9} ", line.time).as_bytes());
    }
    bytes.extend_from_slice(line.content);
    if !line.partial {
        bytes.push(b'\n');
    }
    *line_open = line.partial;
    Some(Chunk {
        stream: line.stream,
        bytes,
    })
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
