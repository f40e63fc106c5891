//! The runtime writes each container's output into a file of lines
//! `<RFC 3339 time> <stdout|stderr> <tags> <content>`; the node agent reads and rotates them.
//!
//! [`parse`] takes a line apart; [`Reader`] gives what somebody asked for, across rotated files
//! and, when asked to follow, as it is written. Which container's file is meant (the running one
//! or the previous) is the caller's to choose, with [`choose`].

mod choice;
mod files;
mod line;
mod open;
mod reader;
mod rotated;
mod tail;

pub use choice::{Chunk, Options, Streams};
pub use line::{Line, LineError, Stream, parse};
pub use reader::{LogError, Reader};
pub use rotated::{Form, Rotated};
pub use tail::last_words;

/// The container whose log is meant: the newest, or with `previous` the one before it.
pub fn choose<T>(newest_first: &[T], previous: bool) -> Option<&T> {
    newest_first.get(usize::from(previous))
}
