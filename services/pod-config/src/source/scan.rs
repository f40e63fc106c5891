//! Scans of the manifest directory. All functions may block and run on a thread of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tracing::Span;

use crate::core::adoption::PodLogDirectory;
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
        /// The directory of pods' logs, if pods of a kubelet are to be found there.
        pod_logs: Option<PathBuf>,
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
            pod_logs: Arc::default(),
        },
        ReadRequest::All {
            known,
            restored,
            pod_logs,
        } => ScanResult {
            pod_logs: pod_logs
                .map(|path| list_pod_logs(&path))
                .unwrap_or_default(),
            ..scan_all(root, &known, &restored)
        },
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
        pod_logs: Arc::default(),
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
        pod_logs: Arc::default(),
    }
}

/// The log directories of static pods. Without the directory, no pod was left by a kubelet.
fn list_pod_logs(path: &Path) -> Arc<[PodLogDirectory]> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let directory = |entry: std::fs::DirEntry| {
        let meta = entry.metadata().ok()?;
        // Not every file system has the time of birth. The modification time is later: it changes
        // with the first start of each container.
        let created_at = meta.created().or_else(|_| meta.modified()).ok()?;
        let created_at = Timestamp::try_from(created_at).ok()?;
        PodLogDirectory::from_name(entry.file_name().to_str()?, created_at)
    };
    entries.filter_map(directory).collect()
}

/// When a file was last written, or moved to its path. A change of its mode alone, which also changes
/// the inode's time, does not count: it leaves the directory as it is.
fn changed_at(path: &Path, meta: &Metadata) -> Option<Timestamp> {
    let modified = Timestamp::try_from(meta.modified().ok()?).ok()?;
    let inode_changed = nanoseconds(meta.ctime(), meta.ctime_nsec())?;
    let directory = std::fs::metadata(path.parent()?).ok()?;
    let directory_modified = Timestamp::try_from(directory.modified().ok()?).ok()?;
    Some(modified.max(inode_changed.min(directory_modified)))
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> Option<Timestamp> {
    Timestamp::new(seconds, i32::try_from(nanoseconds).ok()?).ok()
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
        tracing::info_span!(parent: span, "podconfig.read", polylet.pod.origin = origin, file.size = tracing::field::Empty)
    };
    let result = reading.in_scope(|| try_read(path, complete));
    if let ReadResult::Read { bytes, .. } = &result {
        reading.record("file.size", bytes.len());
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
                changed_at: changed_at(path, &meta),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_mode_is_no_change_of_a_manifest() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        std::fs::write(&path, "a").unwrap();
        let changed = || changed_at(&path, &std::fs::metadata(&path).unwrap()).unwrap();
        let written = changed();
        let mode = std::fs::Permissions::from_mode(0o600);
        while nanoseconds_of_inode(&path) <= written {
            std::fs::set_permissions(&path, mode.clone()).unwrap();
        }
        assert_eq!(changed(), written);
        // Moving an older file into place is a change.
        let other = dir.path().join("b");
        std::fs::hard_link(&path, &other).unwrap();
        std::fs::rename(&other, dir.path().join("c.yaml")).unwrap();
        assert!(changed() > written);
    }

    fn nanoseconds_of_inode(path: &Path) -> Timestamp {
        let meta = std::fs::metadata(path).unwrap();
        nanoseconds(meta.ctime(), meta.ctime_nsec()).unwrap()
    }

    #[test]
    fn log_directories_have_the_time_of_their_birth() {
        let dir = tempfile::tempdir().unwrap();
        let before = Timestamp::now() - jiff::SignedDuration::from_secs(1);
        let name = "kube-system_etcd-n1_8cd7ba3c5c3ea8ff1f3ffa1d1f5ae6ab";
        std::fs::create_dir(dir.path().join(name)).unwrap();
        std::fs::create_dir(
            dir.path()
                .join("default_web_0b7b3e1c-55d5-4d6f-9d8f-6a4b0a3f2a11"),
        )
        .unwrap();
        let found = list_pod_logs(dir.path());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "etcd-n1");
        assert!(found[0].created_at > before);
        assert!(list_pod_logs(&dir.path().join("absent")).is_empty());
    }
}
