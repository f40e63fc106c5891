//! The last lines of a log.

use std::io::{self, Read};
use std::path::Path;

use super::files::{CriLogFile, LogSnapshot};
use super::line;

/// The end of a container's output, for its termination message: at most `lines` lines and `bytes`
/// bytes, without timestamps.
///
/// # Errors
/// If the file cannot be read.
pub fn tail_message(path: &Path, lines: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let LogSnapshot {
        mut complete,
        growing,
        ..
    } = LogSnapshot::take(path, None)?;
    let newest = growing
        .or_else(|| complete.pop())
        .ok_or(io::ErrorKind::NotFound)?;
    // After a rotation, some of the lines are in the previous file.
    let previous = complete.pop().filter(|one| !one.compressed);
    let (mut raw, found) = read_tail(newest, lines)?;
    if let Some(previous) = previous.filter(|_| found < lines) {
        raw.splice(0..0, read_tail(previous, lines - found)?.0);
    }
    let mut message = Vec::new();
    for line in raw.split_inclusive(|b| *b == b'\n') {
        if let Ok(line) = line::parse_line(line) {
            message.extend_from_slice(line.content);
            if !line.partial {
                message.push(b'\n');
            }
        }
    }
    let excess = message.len().saturating_sub(bytes);
    message.drain(..excess);
    Ok(message)
}

fn read_tail(mut file: CriLogFile, lines: u64) -> io::Result<(Vec<u8>, u64)> {
    let found = file.seek_to_tail(lines)?;
    // Lines have at most 16 KiB; this limits the memory for a file with longer ones.
    let mut raw = Vec::new();
    let reader = file.into_reader()?;
    reader
        .take(lines.saturating_mul(32 * 1024))
        .read_to_end(&mut raw)?;
    Ok((raw, found))
}
