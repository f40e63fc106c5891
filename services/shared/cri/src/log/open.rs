//! One open file of a log, line by line.

use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;

/// Lines longer than this are given in pieces: a file without line ends must not fill the memory.
pub(super) const LONGEST: usize = 1 << 20;
const BLOCK: usize = 64 * 1024;

pub(super) struct Open {
    text: Box<dyn Read + Send>,
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    /// The file that is being written; others end at their end.
    pub(super) growing: bool,
    buffer: Vec<u8>,
    used: usize,
}

impl Open {
    pub(super) fn new(
        text: Box<dyn Read + Send>,
        path: PathBuf,
        inode: u64,
        growing: bool,
    ) -> Self {
        Open {
            text,
            path,
            inode,
            growing,
            buffer: Vec::new(),
            used: 0,
        }
    }

    // What was taken, until more is.
    pub(super) fn taken(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    // The next line with its end, as a range of what is held; what is left at the end of the file
    // counts as one when it is `last`.
    pub(super) fn take_line(&mut self, last: bool) -> io::Result<Option<Range<usize>>> {
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
        let read = self.text.read(&mut self.buffer[held..]);
        self.buffer
            .truncate(held + read.as_ref().copied().unwrap_or(0));
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.fill(),
            other => other,
        }
    }
}
