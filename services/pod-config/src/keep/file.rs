//! One kept file.

use std::borrow::Borrow;
use std::path::{Path, PathBuf};

use polylet_kit::{kept, report};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kept file and the version of its form.
#[derive(Clone)]
pub(crate) struct File {
    path: PathBuf,
    version: u32,
}

impl File {
    pub(crate) fn new(path: PathBuf, version: u32) -> File {
        File { path, version }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What a former life has kept. A file that cannot be used is put aside.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> Option<T> {
        kept::load_or_set_aside(&self.path, self.version, "what was kept cannot be used")
    }

    /// Writes it, on a thread that may block.
    pub(super) async fn save<T: Serialize>(
        &self,
        data: impl Borrow<T> + Send + 'static,
    ) -> Result<(), String> {
        let (path, version) = (self.path.clone(), self.version);
        let write = move || kept::save(&path, version, data.borrow());
        match tokio::task::spawn_blocking(write).await {
            Ok(saved) => saved.map_err(|error| report(&error)),
            Err(error) => Err(format!(
                "writing {} was given up: {error}",
                self.path.display()
            )),
        }
    }
}
