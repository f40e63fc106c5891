//! Container logs.
//!
//! The runtime writes each container's output into a file with lines of the form
//! `<RFC 3339 time> <stdout|stderr> <tags> <content>`; the node agent reads and rotates the files.
//!
//! [`parse_line`] parses a line. [`LogReader`] reads a log across its rotated files, and follows it if
//! requested. The caller selects the container, the running or the previous one, with
//! [`select_container`].

mod files;
mod line;
mod line_reader;
mod options;
mod reader;
mod rotated;
mod tail;
mod tail_position;
mod watcher;

pub use line::{CriLogLine, LogStream, ParseLineError, parse_line};
pub use options::{LogChunk, LogOptions, StreamFilter};
pub use reader::{LogReadError, LogReader, LogStep};
pub use rotated::{RotatedKind, RotatedName};
pub use tail::tail_message;
pub use watcher::LogWatcher;

/// The container whose log is requested: the newest one, or with `previous` the one before.
pub fn select_container<T>(newest_first: &[T], previous: bool) -> Option<&T> {
    newest_first.get(usize::from(previous))
}
