//! What a child and its parent send each other: JSON behind its length.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// The hidden subcommand; its arguments are the task's name and the parent's process id.
pub(super) const SUBCOMMAND: &str = "run-subprocess";
/// The largest request and message, in bytes.
pub(super) const MAX_SIZE: usize = 16 * 1024 * 1024;

/// A message of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ChildMessage<P, O> {
    /// The task goes on.
    Progress(P),
    /// The last message.
    Done(O),
    /// The task panicked.
    Panicked(String),
}

/// Writes a message.
pub(super) fn write(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; size_of::<u32>()];
    serde_json::to_writer(&mut bytes, message)?;
    let size = bytes.len() - size_of::<u32>();
    if size > MAX_SIZE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let size = u32::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
    bytes[..size_of::<u32>()].copy_from_slice(&size.to_le_bytes());
    to.write_all(&bytes)?;
    to.flush()
}
