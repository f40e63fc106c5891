//! Options of a request for a log, and the lines that they select.

use jiff::Timestamp;

use super::{CriLogLine, LogStream};

/// The options of a request, as in `v1.PodLogOptions`.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// The number of lines from the end; `None` for all.
    pub tail: Option<u64>,
    /// Skips lines from before this time.
    pub since: Option<Timestamp>,
    /// Prefixes lines with their timestamps.
    pub timestamps: bool,
    /// The maximum number of bytes.
    pub limit_bytes: Option<u64>,
    /// Follows the log until the container exits.
    pub follow: bool,
    /// The streams to read.
    pub streams: StreamFilter,
}

/// A selection of streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamFilter {
    /// Both streams.
    #[default]
    All,
    /// Standard output only.
    Stdout,
    /// Standard error only.
    Stderr,
}

/// A piece of a log, formatted for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    /// The stream that the container wrote to.
    pub stream: LogStream,
    /// A line or a part of one.
    pub bytes: Vec<u8>,
}

/// Formats a line, or returns `None` if the options exclude it.
pub(super) fn format_line(
    options: &LogOptions,
    line: &CriLogLine<'_>,
    line_open: &mut [bool; 2],
) -> Option<LogChunk> {
    let stream_matches = match options.streams {
        StreamFilter::All => true,
        StreamFilter::Stdout => line.stream == LogStream::Stdout,
        StreamFilter::Stderr => line.stream == LogStream::Stderr,
    };
    if !stream_matches || options.since.is_some_and(|since| line.time < since) {
        return None;
    }
    let [stdout_open, stderr_open] = line_open;
    let line_open = match line.stream {
        LogStream::Stdout => stdout_open,
        LogStream::Stderr => stderr_open,
    };
    let mut bytes = Vec::with_capacity(line.content.len() + 32);
    // Only the first part of a long line has a timestamp.
    if options.timestamps && !*line_open {
        bytes.extend_from_slice(format!("{:.9} ", line.time).as_bytes());
    }
    bytes.extend_from_slice(line.content);
    if !line.partial {
        bytes.push(b'\n');
    }
    *line_open = line.partial;
    Some(LogChunk {
        stream: line.stream,
        bytes,
    })
}
