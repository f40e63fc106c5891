//! The position of the last lines of a file.

use std::io::{self, Read, Seek, SeekFrom};

const BLOCK: u64 = 64 * 1024;

/// The position of the last lines of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TailPosition {
    /// The offset of the first of them.
    pub(super) offset: u64,
    /// The number of lines from there; fewer than requested if the file has no more.
    pub(super) lines: u64,
}

/// Finds the last `requested` lines by reading backwards. A last line without a line break counts.
pub(super) fn find_tail(file: &mut (impl Read + Seek), requested: u64) -> io::Result<TailPosition> {
    let size = file.seek(SeekFrom::End(0))?;
    if requested == 0 {
        return Ok(TailPosition {
            offset: size,
            lines: 0,
        });
    }
    let mut lines = 0;
    let mut block = Vec::new();
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        block.resize((end - start) as usize, 0);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block)?;
        for (at, byte) in block.iter().enumerate().rev() {
            let after = start + at as u64 + 1;
            // No line begins after the line break at the end of the file.
            if *byte != b'\n' || after == size {
                continue;
            }
            lines += 1;
            if lines == requested {
                return Ok(TailPosition {
                    offset: after,
                    lines,
                });
            }
        }
        end = start;
    }
    // There is no line break before the first line.
    Ok(TailPosition {
        offset: 0,
        lines: lines + u64::from(size > 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tail_message;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn tail_of(text: &[u8], requested: u64) -> (Vec<u8>, u64) {
        let tail = find_tail(&mut Cursor::new(text), requested).unwrap();
        (text[tail.offset as usize..].to_vec(), tail.lines)
    }

    #[test]
    fn tails() {
        assert_eq!(tail_of(b"a\nb\nc\n", 2), (b"b\nc\n".to_vec(), 2));
        assert_eq!(tail_of(b"a\nb\nc", 2), (b"b\nc".to_vec(), 2));
        assert_eq!(tail_of(b"a\nb\n", 5), (b"a\nb\n".to_vec(), 2));
        assert_eq!(tail_of(b"a\nb\n", 0), (b"".to_vec(), 0));
        assert_eq!(tail_of(b"", 5), (b"".to_vec(), 0));
        assert_eq!(tail_of(b"\n", 1), (b"\n".to_vec(), 1));
        assert_eq!(tail_of(b"\n\n", 1), (b"\n".to_vec(), 1));
    }

    #[test]
    fn tail_messages_are_truncated_at_the_front() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let text: String = (0..100)
            .map(|n| format!("2016-10-06T00:17:09Z stdout F line {n}\n"))
            .collect();
        std::fs::write(&path, text).unwrap();
        assert_eq!(tail_message(&path, 2, 2048).unwrap(), b"line 98\nline 99\n");
        assert_eq!(tail_message(&path, 80, 8).unwrap(), b"line 99\n");
        assert!(tail_message(&dir.path().join("none"), 80, 8).is_err());
        std::fs::rename(&path, dir.path().join("0.log.20260101-000000")).unwrap();
        assert_eq!(tail_message(&path, 1, 2048).unwrap(), b"line 99\n");
        std::fs::write(&path, "2016-10-06T00:17:09Z stdout F new\n").unwrap();
        assert_eq!(tail_message(&path, 2, 2048).unwrap(), b"line 99\nnew\n");
    }

    proptest! {
        #[test]
        fn the_same_as_counting_forwards(lines in prop::collection::vec("[a-z]{0,9}", 0..40), requested in 0u64..50, ended: bool) {
            let mut text = lines.join("\n");
            if ended && !lines.is_empty() { text.push('\n'); }
            let all: Vec<&[u8]> = text.as_bytes().split_inclusive(|b| *b == b'\n').collect();
            let skip = all.len().saturating_sub(requested as usize);
            let expected: Vec<u8> = all[skip..].concat();
            let (actual, count) = tail_of(text.as_bytes(), requested);
            prop_assert_eq!(actual, expected);
            prop_assert_eq!(count, (all.len() - skip) as u64);
        }
    }
}
