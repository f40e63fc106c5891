use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::files::{Snapshot, Source};
use super::line;

const BLOCK: u64 = 64 * 1024;

/// How a file is to be read so that its last `wanted` lines come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// Where to begin.
    pub(super) offset: u64,
    /// How many lines there are from here on; fewer than wanted if the file has no more.
    pub(super) lines: u64,
}

/// Finds the last `wanted` lines by reading backwards. A last line without its end counts.
pub(super) fn find(file: &mut (impl Read + Seek), wanted: u64) -> io::Result<Tail> {
    let size = file.seek(SeekFrom::End(0))?;
    if wanted == 0 {
        return Ok(Tail {
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
            // The newline that ends the file begins no line.
            if *byte != b'\n' || after == size {
                continue;
            }
            lines += 1;
            if lines == wanted {
                return Ok(Tail {
                    offset: after,
                    lines,
                });
            }
        }
        end = start;
    }
    // The first line has no newline before it.
    Ok(Tail {
        offset: 0,
        lines: lines + u64::from(size > 0),
    })
}

/// The end of what a container said: at most `lines` lines and `bytes` bytes, without times; for
/// its termination message.
///
/// # Errors
/// When the file cannot be read.
pub fn last_words(path: &Path, lines: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let Snapshot {
        mut complete,
        growing,
        ..
    } = Snapshot::take(path, None)?;
    let newest = growing
        .or_else(|| complete.pop())
        .ok_or(io::ErrorKind::NotFound)?;
    // What was said just before a rotation is in the file before.
    let before = complete.pop().filter(|one| !one.packed);
    let (mut raw, found) = end_of(newest, lines)?;
    if let Some(before) = before.filter(|_| found < lines) {
        raw.splice(0..0, end_of(before, lines - found)?.0);
    }
    let mut said = Vec::new();
    for line in raw.split_inclusive(|b| *b == b'\n') {
        if let Ok(line) = line::parse(line) {
            said.extend_from_slice(line.content);
            if !line.partial {
                said.push(b'\n');
            }
        }
    }
    let cut = said.len().saturating_sub(bytes);
    said.drain(..cut);
    Ok(said)
}

fn end_of(mut source: Source, lines: u64) -> io::Result<(Vec<u8>, u64)> {
    let found = source.tail(lines)?;
    // Lines are at most 16 KiB each; a file that says otherwise is not read into memory whole.
    let mut raw = Vec::new();
    let text = source.into_text()?;
    text.take(lines.saturating_mul(32 * 1024))
        .read_to_end(&mut raw)?;
    Ok((raw, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn text_of(text: &[u8], wanted: u64) -> (Vec<u8>, u64) {
        let tail = find(&mut Cursor::new(text), wanted).unwrap();
        (text[tail.offset as usize..].to_vec(), tail.lines)
    }

    #[test]
    fn tails() {
        assert_eq!(text_of(b"a\nb\nc\n", 2), (b"b\nc\n".to_vec(), 2));
        assert_eq!(text_of(b"a\nb\nc", 2), (b"b\nc".to_vec(), 2));
        assert_eq!(text_of(b"a\nb\n", 5), (b"a\nb\n".to_vec(), 2));
        assert_eq!(text_of(b"a\nb\n", 0), (b"".to_vec(), 0));
        assert_eq!(text_of(b"", 5), (b"".to_vec(), 0));
        assert_eq!(text_of(b"\n", 1), (b"\n".to_vec(), 1));
        assert_eq!(text_of(b"\n\n", 1), (b"\n".to_vec(), 1));
    }

    #[test]
    fn last_words_are_cut_from_the_front() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let text: String = (0..100)
            .map(|n| format!("2016-10-06T00:17:09Z stdout F line {n}\n"))
            .collect();
        std::fs::write(&path, text).unwrap();
        assert_eq!(last_words(&path, 2, 2048).unwrap(), b"line 98\nline 99\n");
        assert_eq!(last_words(&path, 80, 8).unwrap(), b"line 99\n");
        assert!(last_words(&dir.path().join("none"), 80, 8).is_err());
        std::fs::rename(&path, dir.path().join("0.log.20260101-000000")).unwrap();
        assert_eq!(last_words(&path, 1, 2048).unwrap(), b"line 99\n");
        std::fs::write(&path, "2016-10-06T00:17:09Z stdout F new\n").unwrap();
        assert_eq!(last_words(&path, 2, 2048).unwrap(), b"line 99\nnew\n");
    }

    proptest! {
        #[test]
        fn as_counted_forwards(lines in prop::collection::vec("[a-z]{0,9}", 0..40), wanted in 0u64..50, ended: bool) {
            let mut text = lines.join("\n");
            if ended && !lines.is_empty() { text.push('\n'); }
            let all: Vec<&[u8]> = text.as_bytes().split_inclusive(|b| *b == b'\n').collect();
            let skip = all.len().saturating_sub(wanted as usize);
            let expected: Vec<u8> = all[skip..].concat();
            let (got, count) = text_of(text.as_bytes(), wanted);
            prop_assert_eq!(got, expected);
            prop_assert_eq!(count, (all.len() - skip) as u64);
        }
    }
}
