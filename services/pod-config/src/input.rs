//! Inputs of the event loop: what the static sources have read.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use tracing::Span;

use crate::core::adoption::PodLogDirectory;

/// All inputs of the event loop.
#[derive(Debug)]
pub enum Input {
    /// A scan of the manifest directory.
    Directory(ScanResult),
    /// A response of the URL.
    Http(UrlResponse),
}

/// Result of a scan of the manifest directory.
#[derive(Debug)]
pub struct ScanResult {
    /// Which files exist.
    pub listing: DirListing,
    /// Files that were read or have failed.
    pub files: Vec<FileState>,
    /// Log directories of pods that may be left from a kubelet; of the first scan only, as no kubelet
    /// starts pods later.
    pub pod_logs: Arc<[PodLogDirectory]>,
}

/// The files of the manifest directory.
#[derive(Debug, PartialEq)]
pub enum DirListing {
    /// Not listed: only some files were read.
    Partial,
    /// The origins of all files.
    Complete(BTreeSet<String>),
    /// The path does not exist: the source has no pods.
    Missing,
    /// The path could not be read; pods are retained.
    Unreadable(String),
}

/// State of one file.
#[derive(Debug)]
pub struct FileState {
    /// Path of the file.
    pub origin: String,
    /// When its change was first observed.
    pub observed_at: Timestamp,
    /// Trace of the change; disabled when no change is expected.
    pub span: Span,
    /// Contents or error.
    pub result: ReadResult,
}

/// Result of reading a file.
#[derive(Debug)]
pub enum ReadResult {
    /// The file was read.
    Read {
        /// All bytes of the file.
        bytes: Vec<u8>,
        /// Device, inode, size and modification time.
        fingerprint: String,
        /// When the file was last written or moved into place.
        changed_at: Option<Timestamp>,
        /// Whether the file appears to be written completely.
        settled: bool,
    },
    /// The file exists and could not be read.
    Unreadable {
        /// The error.
        message: String,
        /// As for a file that was read; without one, each scan tries again.
        fingerprint: Option<String>,
    },
    /// The file does not exist.
    Gone,
}

/// A response of the URL, or a failure.
#[derive(Debug)]
pub struct UrlResponse {
    /// When it was received.
    pub observed_at: Timestamp,
    /// Trace of the change; disabled when there is none.
    pub span: Span,
    /// The body, or an error.
    pub result: Result<FetchResult, String>,
}

/// Body of a successful response.
#[derive(Debug)]
pub enum FetchResult {
    /// The same body as before.
    Unchanged,
    /// Another body.
    Body {
        /// The complete URL, which is part of the pods' identity.
        url: String,
        /// The body.
        bytes: Vec<u8>,
        /// Hash of the body.
        fingerprint: String,
    },
}
