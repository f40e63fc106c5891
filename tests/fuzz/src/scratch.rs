//! The scratch directory for parsers that read files: one per process, in memory if possible.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// File systems in memory, fastest first.
const IN_MEMORY: &str = "/dev/shm";

/// An empty directory, removed at the end.
#[derive(Debug)]
pub struct FuzzScratch(TempDir);

impl FuzzScratch {
    /// A new directory.
    ///
    /// # Panics
    /// If there is neither a file system in memory nor a temporary directory that can be written.
    pub fn new() -> Self {
        let builder = tempfile::Builder::new().prefix("polylet-fuzz-").to_owned();
        let dir = builder.tempdir_in(IN_MEMORY).or_else(|_| builder.tempdir());
        FuzzScratch(dir.expect("a temporary directory"))
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, with its directories.
    ///
    /// # Panics
    /// If the file system is full.
    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).expect("a directory");
        }
        fs::write(&path, content).expect("a file");
        path
    }
}

impl Default for FuzzScratch {
    fn default() -> Self {
        Self::new()
    }
}
