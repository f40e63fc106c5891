//! Looking at the directory. Everything here may block and runs on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tracing::Span;

use super::observe;

/// Upstream's bound on a manifest.
const MOST_BYTES: u64 = 10 * 1024 * 1024;
/// A file that was written to more recently may still be being written.
pub(super) const QUIET: Duration = Duration::from_secs(2);

/// What one look has found.
#[derive(Debug)]
pub struct Looked {
    /// What is there.
    pub listing: Listing,
    /// What was read, or could not be.
    pub files: Vec<Seen>,
}

/// What is there.
#[derive(Debug, PartialEq)]
pub enum Listing {
    /// Only some files were asked for.
    Partial,
    /// All files, by origin.
    Whole(BTreeSet<String>),
    /// There is no such path: nothing is to run.
    Missing,
    /// It could not be read, so nothing is known.
    Unreadable(String),
}

/// One file.
#[derive(Debug)]
pub struct Seen {
    /// Its path.
    pub origin: String,
    /// When its change was first seen.
    pub observed_at: Timestamp,
    /// The trace of the change; disabled when nothing new is expected.
    pub span: Span,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of reading a file.
#[derive(Debug)]
pub enum Outcome {
    /// Its bytes.
    Read {
        /// All of them.
        bytes: Vec<u8>,
        /// Changes with them.
        stamp: String,
        /// Nobody is writing, as far as can be known.
        settled: bool,
    },
    /// It is there and cannot be read. Without a stamp it is tried again at each look.
    Unreadable {
        /// Why.
        message: String,
        /// As for a file that was read.
        stamp: Option<String>,
    },
    /// It is not there.
    Gone,
}

/// What to look at.
pub(super) enum Ask {
    /// Everything; files under these stamps need no reading, those expected no trace.
    All {
        known: BTreeMap<String, String>,
        expected: BTreeMap<String, String>,
    },
    /// These files, complete as far as their writers have told.
    Some(Vec<Wanted>),
}

pub(super) struct Wanted {
    pub(super) origin: String,
    pub(super) observed_at: Timestamp,
    /// Under this stamp it is no news.
    pub(super) expected: Option<String>,
}

pub(super) fn look(root: &Path, ask: Ask) -> Looked {
    match ask {
        Ask::Some(wanted) => {
            let files = wanted.into_iter().map(
                |Wanted {
                     origin,
                     observed_at,
                     expected,
                 }| {
                    let now = std::fs::metadata(&origin).map(|m| stamp(&m)).ok();
                    let span = if now.is_some() && now != expected {
                        observe(&origin)
                    } else {
                        Span::none()
                    };
                    let outcome = read(Path::new(&origin), &origin, &span, true);
                    Seen {
                        origin,
                        observed_at,
                        span,
                        outcome,
                    }
                },
            );
            Looked {
                listing: Listing::Partial,
                files: files.collect(),
            }
        }
        Ask::All { known, expected } => all(root, &known, &expected),
    }
}

fn all(
    root: &Path,
    known: &BTreeMap<String, String>,
    expected: &BTreeMap<String, String>,
) -> Looked {
    let nothing = |listing| Looked {
        listing,
        files: Vec::new(),
    };
    let paths = match list(root) {
        Ok(paths) => paths,
        Err(error) if error.kind() == ErrorKind::NotFound => return nothing(Listing::Missing),
        Err(error) => return nothing(Listing::Unreadable(format!("cannot be read: {error}"))),
    };
    let mut there = BTreeSet::new();
    let mut files = Vec::new();
    for path in paths {
        let observed_at = Timestamp::now();
        let Some(origin) = path.to_str().map(str::to_owned) else {
            let origin = path.to_string_lossy().into_owned();
            let outcome = Outcome::Unreadable {
                message: "its name is not UTF-8 text".into(),
                stamp: None,
            };
            there.insert(origin.clone());
            files.push(Seen {
                origin,
                observed_at,
                span: Span::none(),
                outcome,
            });
            continue;
        };
        there.insert(origin.clone());
        let now = std::fs::metadata(&path).map(|m| stamp(&m)).ok();
        if now.is_some() && now.as_ref() == known.get(&origin) {
            continue;
        }
        let is_news = now.is_some() && now.as_ref() != expected.get(&origin);
        let span = if is_news {
            observe(&origin)
        } else {
            Span::none()
        };
        let outcome = read(&path, &origin, &span, false);
        files.push(Seen {
            origin,
            observed_at,
            span,
            outcome,
        });
    }
    Looked {
        listing: Listing::Whole(there),
        files,
    }
}

/// The files of a directory, or the one file. Hidden names are not manifests.
fn list(root: &Path) -> io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(root)?.is_dir() {
        return Ok(vec![root.to_owned()]);
    }
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// Changes with the content, as far as the file system tells.
fn stamp(meta: &Metadata) -> String {
    format!(
        "{}:{}:{}:{}.{:09}",
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec()
    )
}

fn read(path: &Path, origin: &str, span: &Span, complete: bool) -> Outcome {
    let reading = if span.is_disabled() {
        Span::none()
    } else {
        tracing::info_span!(parent: span, "podconfig.read", file = origin, bytes = tracing::field::Empty)
    };
    let outcome = reading.in_scope(|| try_read(path, complete));
    if let Outcome::Read { bytes, .. } = &outcome {
        reading.record("bytes", bytes.len());
    }
    outcome
}

fn try_read(path: &Path, complete: bool) -> Outcome {
    let unreadable = |message: String, meta: Option<&Metadata>| Outcome::Unreadable {
        message,
        stamp: meta.map(stamp),
    };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match std::fs::symlink_metadata(path) {
                Ok(_) => unreadable("is a link to something that is not there".into(), None),
                Err(_) => Outcome::Gone,
            };
        }
        Err(error) => return unreadable(format!("cannot be read: {error}"), None),
    };
    if let Some(kind) = not_a_file(&meta) {
        return unreadable(
            format!("is {kind}: a regular file was expected"),
            Some(&meta),
        );
    }
    if meta.len() > MOST_BYTES {
        return unreadable(
            format!("has {} bytes: at most {MOST_BYTES} are read", meta.len()),
            Some(&meta),
        );
    }
    match open(path).and_then(|file| content(&file)) {
        Ok((_, meta)) if meta.len() > MOST_BYTES => unreadable(
            format!("has more than {MOST_BYTES} bytes, which is the most that is read"),
            None,
        ),
        Ok((bytes, meta)) => {
            // A size that is not what was read: somebody is writing at this moment.
            let whole = bytes.len() as u64 == meta.len();
            Outcome::Read {
                bytes,
                settled: whole && (complete || is_quiet(&meta)),
                stamp: stamp(&meta),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Outcome::Gone,
        Err(error) => unreadable(format!("cannot be read: {error}"), None),
    }
}

fn not_a_file(meta: &Metadata) -> Option<&'static str> {
    let kind = meta.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a FIFO"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a device"),
    }
}

/// Should the file have become a FIFO just now, opening it does not wait for a writer.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(
            (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY)
                .bits()
                .cast_signed(),
        )
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("no longer a regular file"))
    }
}

fn content(mut file: &File) -> io::Result<(Vec<u8>, Metadata)> {
    let mut bytes = Vec::new();
    // Twice at most: who writes all the time is looked at again later.
    for _ in 0..2 {
        use std::io::Seek;
        bytes.clear();
        file.rewind()?;
        let before = file.metadata()?;
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if stamp(&before) == stamp(&file.metadata()?) {
            break;
        }
    }
    let meta = file.metadata()?;
    Ok((bytes, meta))
}

/// A time of change in the future says nothing about the present.
fn is_quiet(meta: &Metadata) -> bool {
    let changed = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    SystemTime::now()
        .duration_since(changed)
        .map_or(true, |age| age >= QUIET)
}
