//! Scans of the manifest directory. All functions may block and run on a thread of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tracing::Span;

use crate::input::{DirListing, FileState, ReadResult, ScanResult};
use crate::trace::new_pod_trace;

/// The kubelet's limit on the size of a manifest.
const MAX_FILE_BYTES: u64 = 10 * 1024 * 1024;
/// A file that was modified within this period may still be being written.
pub(super) const QUIET_PERIOD: Duration = Duration::from_secs(2);

/// What to read.
pub(super) enum ReadRequest {
    /// All files but those that have their known fingerprint. A file with its restored fingerprint
    /// is read without a trace.
    All {
        known: BTreeMap<String, String>,
        restored: BTreeMap<String, String>,
    },
    /// Some files, which were closed by their writers or quiet for a while.
    Some(Vec<ReadTarget>),
}

pub(super) struct ReadTarget {
    pub(super) origin: String,
    pub(super) observed_at: Timestamp,
    /// With this fingerprint, the file is read without a trace.
    pub(super) expected: Option<String>,
}

pub(super) fn scan(root: &Path, request: ReadRequest) -> ScanResult {
    match request {
        ReadRequest::Some(targets) => ScanResult {
            listing: DirListing::Partial,
            files: targets.into_iter().map(read_target).collect(),
        },
        ReadRequest::All { known, restored } => scan_all(root, &known, &restored),
    }
}

fn read_target(target: ReadTarget) -> FileState {
    let ReadTarget {
        origin,
        observed_at,
        expected,
    } = target;
    let span = trace_if_changed(&origin, current_fingerprint(&origin), expected.as_ref());
    let result = read(Path::new(&origin), &origin, &span, true);
    FileState {
        origin,
        observed_at,
        span,
        result,
    }
}

fn scan_all(
    root: &Path,
    known: &BTreeMap<String, String>,
    restored: &BTreeMap<String, String>,
) -> ScanResult {
    let failed = |listing| ScanResult {
        listing,
        files: Vec::new(),
    };
    let paths = match list(root) {
        Ok(paths) => paths,
        Err(error) if error.kind() == ErrorKind::NotFound => return failed(DirListing::Missing),
        Err(error) => {
            let message = format!("cannot be read: {error}");
            return failed(DirListing::Unreadable(message));
        }
    };
    let mut origins = BTreeSet::new();
    let mut files = Vec::new();
    for path in paths {
        let observed_at = Timestamp::now();
        let Some(origin) = path.to_str().map(str::to_owned) else {
            let origin = path.to_string_lossy().into_owned();
            let result = ReadResult::Unreadable {
                message: "file name is not UTF-8".into(),
                fingerprint: None,
            };
            origins.insert(origin.clone());
            files.push(FileState {
                origin,
                observed_at,
                span: Span::none(),
                result,
            });
            continue;
        };
        origins.insert(origin.clone());
        let current = current_fingerprint(&origin);
        if current.is_some() && current.as_ref() == known.get(&origin) {
            continue;
        }
        let span = trace_if_changed(&origin, current, restored.get(&origin));
        let result = read(&path, &origin, &span, false);
        files.push(FileState {
            origin,
            observed_at,
            span,
            result,
        });
    }
    ScanResult {
        listing: DirListing::Complete(origins),
        files,
    }
}

/// The files of a directory, or the one file. Hidden files are no manifests.
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

fn current_fingerprint(origin: &str) -> Option<String> {
    std::fs::metadata(origin).map(|m| fingerprint(&m)).ok()
}

fn trace_if_changed(origin: &str, current: Option<String>, expected: Option<&String>) -> Span {
    if current.is_some() && current.as_ref() != expected {
        new_pod_trace(origin)
    } else {
        Span::none()
    }
}

/// Changes with the contents of the file, as far as the file system tells.
fn fingerprint(meta: &Metadata) -> String {
    format!(
        "{}:{}:{}:{}.{:09}",
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec()
    )
}

fn read(path: &Path, origin: &str, span: &Span, complete: bool) -> ReadResult {
    let reading = if span.is_disabled() {
        Span::none()
    } else {
        tracing::info_span!(parent: span, "podconfig.read", file = origin, bytes = tracing::field::Empty)
    };
    let result = reading.in_scope(|| try_read(path, complete));
    if let ReadResult::Read { bytes, .. } = &result {
        reading.record("bytes", bytes.len());
    }
    result
}

fn try_read(path: &Path, complete: bool) -> ReadResult {
    let unreadable = |message: String, meta: Option<&Metadata>| ReadResult::Unreadable {
        message,
        fingerprint: meta.map(fingerprint),
    };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match std::fs::symlink_metadata(path) {
                Ok(_) => unreadable("is a dangling link".into(), None),
                Err(_) => ReadResult::Gone,
            };
        }
        Err(error) => return unreadable(format!("cannot be read: {error}"), None),
    };
    if let Some(kind) = irregular_kind(&meta) {
        let message = format!("is {kind}: expected a regular file");
        return unreadable(message, Some(&meta));
    }
    if meta.len() > MAX_FILE_BYTES {
        let message = format!(
            "has {} bytes: at most {MAX_FILE_BYTES} are allowed",
            meta.len()
        );
        return unreadable(message, Some(&meta));
    }
    match open(path).and_then(|file| contents(&file)) {
        Ok((_, meta)) if meta.len() > MAX_FILE_BYTES => {
            let message = format!("has more than {MAX_FILE_BYTES} bytes");
            unreadable(message, None)
        }
        Ok((bytes, meta)) => {
            // Otherwise the file is being written.
            let stable = bytes.len() as u64 == meta.len();
            ReadResult::Read {
                bytes,
                settled: stable && (complete || is_quiet(&meta)),
                fingerprint: fingerprint(&meta),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => ReadResult::Gone,
        Err(error) => unreadable(format!("cannot be read: {error}"), None),
    }
}

fn irregular_kind(meta: &Metadata) -> Option<&'static str> {
    let kind = meta.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a FIFO"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a device"),
    }
}

/// Opens a regular file; without waiting for a writer, should it have become a FIFO meanwhile.
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

fn contents(mut file: &File) -> io::Result<(Vec<u8>, Metadata)> {
    let mut bytes = Vec::new();
    // Twice at most: a file that is always being written is read again later.
    for _ in 0..2 {
        bytes.clear();
        file.rewind()?;
        let before = file.metadata()?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        if fingerprint(&before) == fingerprint(&file.metadata()?) {
            break;
        }
    }
    let meta = file.metadata()?;
    Ok((bytes, meta))
}

/// Whether a file was not modified lately. A modification time in the future is ignored.
fn is_quiet(meta: &Metadata) -> bool {
    let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    SystemTime::now()
        .duration_since(modified)
        .map_or(true, |age| age >= QUIET_PERIOD)
}
