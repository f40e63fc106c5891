//! What a child and its parent send each other: JSON behind its length.

use std::io::{self, Cursor, Write};

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
    // The length is known once the message is written behind it.
    let mut frame = Cursor::new(Vec::new());
    frame.write_all(&[0; size_of::<u32>()])?;
    serde_json::to_writer(&mut frame, message)?;
    let size = frame.get_ref().len() - size_of::<u32>();
    if size > MAX_SIZE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let size = u32::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
    frame.set_position(0);
    frame.write_all(&size.to_le_bytes())?;
    to.write_all(frame.get_ref())?;
    to.flush()
}
