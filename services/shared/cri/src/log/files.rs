//! The files of a log, opened so that a concurrent rotation hides none of them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::read::MultiGzDecoder;

use super::rotated::{RotatedKind, RotatedName};
use super::tail_position;

const BLOCK: usize = 64 * 1024;

/// An open file of a log, which can be read even if it is renamed or removed.
pub(super) struct CriLogFile {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    pub(super) modified: Option<SystemTime>,
    pub(super) compressed: bool,
    file: File,
    /// The decompressed content from the position where reading starts, if that is not the beginning.
    reader: Option<Box<dyn Read + Send>>,
}

impl CriLogFile {
    fn open(path: PathBuf, compressed: bool) -> io::Result<Option<Self>> {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let meta = file.metadata()?;
        Ok(Some(CriLogFile {
            path,
            inode: meta.ino(),
            modified: meta.modified().ok(),
            compressed,
            file,
            reader: None,
        }))
    }

    /// Moves the start of reading to the last `lines` lines, and returns how many there are.
    pub(super) fn seek_to_tail(&mut self, lines: u64) -> io::Result<u64> {
        if !self.compressed {
            let tail = tail_position::find_tail(&mut self.file, lines)?;
            self.file.seek(SeekFrom::Start(tail.offset))?;
            return Ok(tail.lines);
        }
        let total = skip_lines(&mut self.decompress()?, u64::MAX)?;
        let mut reader = self.decompress()?;
        skip_lines(&mut reader, total.saturating_sub(lines))?;
        self.reader = Some(Box::new(reader));
        Ok(total.min(lines))
    }

    fn decompress(&mut self) -> io::Result<BufReader<GzipReader>> {
        self.file.seek(SeekFrom::Start(0))?;
        let decoder = MultiGzDecoder::new(self.file.try_clone()?);
        Ok(BufReader::with_capacity(
            BLOCK,
            GzipReader(decoder, self.path.clone()),
        ))
    }

    /// A reader of the content.
    pub(super) fn into_reader(mut self) -> io::Result<Box<dyn Read + Send>> {
        match self.reader.take() {
            Some(reader) => Ok(reader),
            None if self.compressed => Ok(Box::new(self.decompress()?)),
            None => Ok(Box::new(self.file)),
        }
    }
}

/// Decompresses a file. A corrupt file ends where it is corrupt, so that the others can be read.
struct GzipReader(MultiGzDecoder<File>, PathBuf);

impl Read for GzipReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).or_else(|error| {
            if error.kind() == io::ErrorKind::Interrupted {
                return Err(error);
            }
            tracing::warn!(path = %self.1.display(), %error, "corrupt compressed log; skipping the rest of the file");
            Ok(0)
        })
    }
}

/// Skips at most `max` lines and returns how many there were, including one without a line break.
fn skip_lines(reader: &mut impl BufRead, max: u64) -> io::Result<u64> {
    let (mut lines, mut in_line) = (0, false);
    while lines < max {
        let block = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            block => block?,
        };
        if block.is_empty() {
            break;
        }
        let end = block.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(block.len(), |at| at + 1);
        in_line = end.is_none();
        lines += u64::from(end.is_some());
        reader.consume(used);
    }
    Ok(lines + u64::from(in_line))
}

/// The files of a log at one moment.
pub(super) struct LogSnapshot {
    /// The files that are complete, oldest first.
    pub(super) complete: Vec<CriLogFile>,
    /// The file that the runtime may still write to.
    pub(super) growing: Option<CriLogFile>,
    /// The stamp of the newest complete file, or the given `after`.
    pub(super) newest: Option<String>,
}

impl LogSnapshot {
    /// Opens the log `current` and its rotated files with stamps after `after`.
    pub(super) fn take(current: &Path, after: Option<&str>) -> io::Result<Self> {
        // Opened before the others are listed: after a rotation in between, a file is in both, which
        // its inode shows, and none is missing.
        let growing = CriLogFile::open(current.to_owned(), false)?;
        let (Some(directory), Some(log)) = (current.parent(), current.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let log = log.to_string_lossy();
        let mut found: Vec<(RotationStamp, CriLogFile)> = Vec::new();
        for stamp in stamps(directory, &log)? {
            if after.is_some_and(|after| stamp.as_str() <= after) {
                continue;
            }
            if let Some(file) = open_rotated(directory, &log, &stamp)? {
                found.push((stamp, file));
            }
        }
        if let Some(growing) = &growing {
            // From this one on, the files were rotated after `current` was opened.
            if let Some(at) = found.iter().position(|(_, s)| s.inode == growing.inode) {
                found.truncate(at);
            }
        }
        let growing = match growing {
            Some(growing) => Some(growing),
            // Renamed, and the runtime, which has not opened a new file, still writes to it.
            None => match found.pop() {
                Some((_, file)) if !file.compressed => Some(file),
                other => {
                    found.extend(other);
                    None
                }
            },
        };
        Ok(LogSnapshot {
            newest: found
                .last()
                .map(|(stamp, _)| stamp.clone())
                .or(after.map(str::to_owned)),
            complete: found.into_iter().map(|(_, file)| file).collect(),
            growing,
        })
    }
}

/// Whether the runtime has switched from the file `inode` to another one. `inode` was the current file
/// when `after` was the stamp of the newest rotated one.
pub(super) fn is_replaced(current: &Path, inode: u64, after: Option<&str>) -> bool {
    match std::fs::metadata(current) {
        Ok(meta) => meta.ino() != inode,
        // Missing during a rotation: of this file, or of a later one.
        Err(_) => {
            let (Some(directory), Some(log)) = (current.parent(), current.file_name()) else {
                return false;
            };
            let stamps = stamps(directory, &log.to_string_lossy()).unwrap_or_default();
            let later = |stamp: &&RotationStamp| after.is_none_or(|after| stamp.as_str() > after);
            stamps.iter().filter(later).count() > 1
        }
    }
}

type RotationStamp = String;

/// The stamps of all rotated files, oldest first.
fn stamps(directory: &Path, log: &str) -> io::Result<Vec<RotationStamp>> {
    let mut stamps = Vec::new();
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(stamps),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name();
        let rotated = name.to_str().and_then(|name| RotatedName::parse(log, name));
        stamps.extend(
            rotated
                .filter(|one| one.kind != RotatedKind::Temporary)
                .map(|one| one.stamp.to_owned()),
        );
    }
    stamps.sort_unstable();
    // During its compression, a file exists twice.
    stamps.dedup();
    Ok(stamps)
}

fn open_rotated(directory: &Path, log: &str, stamp: &str) -> io::Result<Option<CriLogFile>> {
    for kind in [RotatedKind::Plain, RotatedKind::Compressed] {
        let path = directory.join(RotatedName { stamp, kind }.file_name(log));
        if let Some(file) = CriLogFile::open(path, kind == RotatedKind::Compressed)? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(files: &[CriLogFile]) -> Vec<String> {
        let name = |s: &CriLogFile| s.path.file_name().unwrap().to_str().unwrap().to_owned();
        files.iter().map(name).collect()
    }

    #[test]
    fn files_of_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let current = dir.path().join("0.log");
        for name in [
            "0.log",
            "0.log.20260103-030405",
            "0.log.20260102-030405",
            "0.log.20260101-030405.gz",
            "0.log.20260102-030405.gz",
            "0.log.20260104-030405.tmp",
            "10.log.20260105-030405",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let all = LogSnapshot::take(&current, None).unwrap();
        let expected = [
            "0.log.20260101-030405.gz",
            "0.log.20260102-030405",
            "0.log.20260103-030405",
        ];
        assert_eq!(names(&all.complete), expected);
        assert_eq!(all.growing.unwrap().path, current);
        assert_eq!(all.newest.as_deref(), Some("20260103-030405"));

        let later = LogSnapshot::take(&current, Some("20260102-030405")).unwrap();
        assert_eq!(names(&later.complete), expected[2..]);
        let none = LogSnapshot::take(&current, Some("20270101-000000")).unwrap();
        assert!(none.complete.is_empty());
        assert_eq!(none.newest.as_deref(), Some("20270101-000000"));

        // Between the rename and the runtime's new file.
        std::fs::rename(&current, dir.path().join("0.log.20260106-030405")).unwrap();
        let between = LogSnapshot::take(&current, None).unwrap();
        assert_eq!(names(&between.complete), expected);
        assert!(
            between
                .growing
                .unwrap()
                .path
                .ends_with("0.log.20260106-030405")
        );
    }

    #[test]
    fn tails_of_compressed_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log.20260101-030405.gz");
        let mut encoder =
            flate2::write::GzEncoder::new(File::create(&path).unwrap(), Default::default());
        encoder.write_all(b"a\nb\nc").unwrap();
        encoder.finish().unwrap();
        for (requested, lines, text) in [(0, 0, ""), (2, 2, "b\nc"), (9, 3, "a\nb\nc")] {
            let mut file = CriLogFile::open(path.clone(), true).unwrap().unwrap();
            assert_eq!(file.seek_to_tail(requested).unwrap(), lines);
            let mut read = String::new();
            file.into_reader()
                .unwrap()
                .read_to_string(&mut read)
                .unwrap();
            assert_eq!(read, text);
        }
    }
}
