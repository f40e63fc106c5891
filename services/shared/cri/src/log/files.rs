//! The files of one log, opened so that nothing falls between two of them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::read::MultiGzDecoder;

use super::rotated::{Form, Rotated};
use super::tail;

const BLOCK: usize = 64 * 1024;

/// One file of a log, held open: whatever becomes of its name, its lines can be read.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    pub(super) modified: Option<SystemTime>,
    pub(super) packed: bool,
    file: File,
    /// What is in a packed one, from where reading is to begin.
    text: Option<Box<dyn Read + Send>>,
}

impl Source {
    fn open(path: PathBuf, packed: bool) -> io::Result<Option<Self>> {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let meta = file.metadata()?;
        Ok(Some(Source {
            path,
            inode: meta.ino(),
            modified: meta.modified().ok(),
            packed,
            file,
            text: None,
        }))
    }

    /// Has reading begin at the last `wanted` lines. Gives how many there are.
    pub(super) fn tail(&mut self, wanted: u64) -> io::Result<u64> {
        if !self.packed {
            let tail = tail::find(&mut self.file, wanted)?;
            self.file.seek(SeekFrom::Start(tail.offset))?;
            return Ok(tail.lines);
        }
        let all = skip_lines(&mut self.unpack()?, u64::MAX)?;
        let mut text = self.unpack()?;
        skip_lines(&mut text, all.saturating_sub(wanted))?;
        self.text = Some(Box::new(text));
        Ok(all.min(wanted))
    }

    fn unpack(&mut self) -> io::Result<BufReader<Unpacked>> {
        self.file.seek(SeekFrom::Start(0))?;
        let decoder = MultiGzDecoder::new(self.file.try_clone()?);
        Ok(BufReader::with_capacity(
            BLOCK,
            Unpacked(decoder, self.path.clone()),
        ))
    }

    /// What is in it, from where reading is to begin.
    pub(super) fn into_text(mut self) -> io::Result<Box<dyn Read + Send>> {
        match self.text.take() {
            Some(text) => Ok(text),
            None if self.packed => Ok(Box::new(self.unpack()?)),
            None => Ok(Box::new(self.file)),
        }
    }
}

/// A packed file that turns out to be broken ends there: the others are worth reading all the same.
struct Unpacked(MultiGzDecoder<File>, PathBuf);

impl Read for Unpacked {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).or_else(|error| {
            if error.kind() == io::ErrorKind::Interrupted {
                return Err(error);
            }
            tracing::warn!(path = %self.1.display(), %error, "a packed log is broken");
            Ok(0)
        })
    }
}

/// Passes over lines; gives how many there were, one without its end included.
fn skip_lines(text: &mut impl BufRead, most: u64) -> io::Result<u64> {
    let (mut lines, mut within) = (0, false);
    while lines < most {
        let block = match text.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            block => block?,
        };
        if block.is_empty() {
            break;
        }
        let end = block.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(block.len(), |at| at + 1);
        within = end.is_none();
        lines += u64::from(end.is_some());
        text.consume(used);
    }
    Ok(lines + u64::from(within))
}

/// All files of a log as they were at one moment.
pub(super) struct Snapshot {
    /// Files that are complete, oldest first.
    pub(super) complete: Vec<Source>,
    /// The one that may still be written to.
    pub(super) growing: Option<Source>,
    /// The stamp of the newest complete one, now or before.
    pub(super) newest: Option<String>,
}

impl Snapshot {
    /// Opens the files of the log `current` with stamps after `after`.
    pub(super) fn take(current: &Path, after: Option<&str>) -> io::Result<Self> {
        // Opened before the others are listed: a rotation in between shows one file twice, which
        // its number tells, and never hides one.
        let growing = Source::open(current.to_owned(), false)?;
        let (Some(folder), Some(log)) = (current.parent(), current.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let log = log.to_string_lossy();
        let mut found: Vec<(Stamp, Source)> = Vec::new();
        for stamp in stamps(folder, &log)? {
            if after.is_some_and(|after| stamp.as_str() <= after) {
                continue;
            }
            if let Some(source) = open_rotated(folder, &log, &stamp)? {
                found.push((stamp, source));
            }
        }
        if let Some(growing) = &growing {
            // From here on they are newer than what was the current one a moment ago.
            if let Some(at) = found.iter().position(|(_, s)| s.inode == growing.inode) {
                found.truncate(at);
            }
        }
        let growing = match growing {
            Some(growing) => Some(growing),
            // Moved away, and the runtime has not opened a new one: it still writes there.
            None => match found.pop() {
                Some((_, source)) if !source.packed => Some(source),
                other => {
                    found.extend(other);
                    None
                }
            },
        };
        Ok(Snapshot {
            newest: found
                .last()
                .map(|(stamp, _)| stamp.clone())
                .or(after.map(str::to_owned)),
            complete: found.into_iter().map(|(_, source)| source).collect(),
            growing,
        })
    }
}

/// Whether the runtime has gone on from the file `inode`, which was the current one when `after` was
/// the newest rotated one.
pub(super) fn is_replaced(current: &Path, inode: u64, after: Option<&str>) -> bool {
    match std::fs::metadata(current) {
        Ok(meta) => meta.ino() != inode,
        // Away for a moment during a rotation: of this file, or already of a later one?
        Err(_) => {
            let (Some(folder), Some(log)) = (current.parent(), current.file_name()) else {
                return false;
            };
            let stamps = stamps(folder, &log.to_string_lossy()).unwrap_or_default();
            let later = |stamp: &&Stamp| after.is_none_or(|after| stamp.as_str() > after);
            stamps.iter().filter(later).count() > 1
        }
    }
}

type Stamp = String;

/// The stamps of all rotated files, oldest first.
fn stamps(folder: &Path, log: &str) -> io::Result<Vec<Stamp>> {
    let mut stamps = Vec::new();
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(stamps),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name();
        let rotated = name.to_str().and_then(|name| Rotated::parse(log, name));
        stamps.extend(
            rotated
                .filter(|one| one.form != Form::Unfinished)
                .map(|one| one.stamp.to_owned()),
        );
    }
    stamps.sort_unstable();
    // One that has just been packed is there twice for a moment.
    stamps.dedup();
    Ok(stamps)
}

fn open_rotated(folder: &Path, log: &str, stamp: &str) -> io::Result<Option<Source>> {
    for form in [Form::Plain, Form::Packed] {
        let path = folder.join(Rotated { stamp, form }.name(log));
        if let Some(source) = Source::open(path, form == Form::Packed)? {
            return Ok(Some(source));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(sources: &[Source]) -> Vec<String> {
        let name = |s: &Source| s.path.file_name().unwrap().to_str().unwrap().to_owned();
        sources.iter().map(name).collect()
    }

    #[test]
    fn one_moment_of_a_log() {
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
        let all = Snapshot::take(&current, None).unwrap();
        let wanted = [
            "0.log.20260101-030405.gz",
            "0.log.20260102-030405",
            "0.log.20260103-030405",
        ];
        assert_eq!(names(&all.complete), wanted);
        assert_eq!(all.growing.unwrap().path, current);
        assert_eq!(all.newest.as_deref(), Some("20260103-030405"));

        let later = Snapshot::take(&current, Some("20260102-030405")).unwrap();
        assert_eq!(names(&later.complete), wanted[2..]);
        let none = Snapshot::take(&current, Some("20270101-000000")).unwrap();
        assert!(none.complete.is_empty());
        assert_eq!(none.newest.as_deref(), Some("20270101-000000"));

        // Between the rename and the runtime's new file.
        std::fs::rename(&current, dir.path().join("0.log.20260106-030405")).unwrap();
        let between = Snapshot::take(&current, None).unwrap();
        assert_eq!(names(&between.complete), wanted);
        assert!(
            between
                .growing
                .unwrap()
                .path
                .ends_with("0.log.20260106-030405")
        );
    }

    #[test]
    fn the_tail_of_a_packed_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log.20260101-030405.gz");
        let mut packer =
            flate2::write::GzEncoder::new(File::create(&path).unwrap(), Default::default());
        packer.write_all(b"a\nb\nc").unwrap();
        packer.finish().unwrap();
        for (wanted, lines, text) in [(0, 0, ""), (2, 2, "b\nc"), (9, 3, "a\nb\nc")] {
            let mut source = Source::open(path.clone(), true).unwrap().unwrap();
            assert_eq!(source.tail(wanted).unwrap(), lines);
            let mut read = String::new();
            source
                .into_text()
                .unwrap()
                .read_to_string(&mut read)
                .unwrap();
            assert_eq!(read, text);
        }
    }
}
