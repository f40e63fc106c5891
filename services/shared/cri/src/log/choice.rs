//! What a caller wants to see of a log, and a line as it sees it.

use jiff::Timestamp;

use super::{Line, Stream};

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

// A line as the caller asked for it, or nothing.
pub(super) fn wanted(
    options: &Options,
    line: &Line<'_>,
    line_open: &mut [bool; 2],
) -> Option<Chunk> {
    let stream_fits = match options.streams {
        Streams::All => true,
        Streams::Stdout => line.stream == Stream::Stdout,
        Streams::Stderr => line.stream == Stream::Stderr,
    };
    if !stream_fits || options.since.is_some_and(|since| line.time < since) {
        return None;
    }
    let line_open = &mut line_open[usize::from(line.stream == Stream::Stderr)];
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
