//! Reads an open log file line by line.

use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;

/// Longer lines are split, to limit the memory for a file without line breaks.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;
const BLOCK: usize = 64 * 1024;

pub(super) struct LineReader {
    reader: Box<dyn Read + Send>,
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    /// Whether the runtime may still write to the file.
    pub(super) growing: bool,
    buffer: Vec<u8>,
    /// The end of the last line in `buffer`.
    used: usize,
}

impl LineReader {
    pub(super) fn new(
        reader: Box<dyn Read + Send>,
        path: PathBuf,
        inode: u64,
        growing: bool,
    ) -> Self {
        LineReader {
            reader,
            path,
            inode,
            growing,
            buffer: Vec::new(),
            used: 0,
        }
    }

    /// The bytes of a line, valid until the next one is read.
    pub(super) fn line(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// Reads the next line, including its line break, and returns its range in the buffer. With
    /// `at_end`, a rest without a line break counts as a line.
    pub(super) fn next_line(&mut self, at_end: bool) -> io::Result<Option<Range<usize>>> {
        let mut searched = self.used;
        loop {
            let mut unsearched = self.buffer.iter().skip(searched);
            let found = unsearched.position(|b| *b == b'\n');
            let end = match found {
                Some(at) => Some(searched + at + 1),
                None if self.buffer.len() - self.used >= MAX_LINE_BYTES => Some(self.buffer.len()),
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
                self.used = if at_end { rest } else { 0 };
                return Ok((at_end && rest > 0).then_some(0..rest));
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let filled = self.buffer.len();
        self.buffer.resize(filled + BLOCK, 0);
        let read = match self.buffer.get_mut(filled..) {
            Some(free) => self.reader.read(free),
            None => Ok(0),
        };
        self.buffer
            .truncate(filled + read.as_ref().copied().unwrap_or(0));
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.fill(),
            other => other,
        }
    }
}
