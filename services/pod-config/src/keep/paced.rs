//! What the cluster said, written whole at its pace.

use std::path::PathBuf;

use polylet_kit::CancellationToken;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{File, Pace};
use crate::core::cluster::kept::VERSION;

/// One kept file. Clones share it. What is written is asked for when it is, so that no copy of it
/// is held at rest.
#[derive(Clone)]
pub(crate) struct Paced {
    file: File,
    pace: Pace,
}

impl Paced {
    pub(crate) fn new(path: PathBuf) -> Paced {
        Paced {
            file: File::new(path, VERSION),
            pace: Pace::new(),
        }
    }

    /// What a former life has kept. A file that cannot be used is put aside.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> Option<T> {
        self.file.load()
    }

    /// Something changed that matters.
    pub(crate) fn soon(&self) {
        self.pace.soon();
    }

    /// Something changed.
    pub(crate) fn later(&self) {
        self.pace.later();
    }

    /// When it is written.
    pub(crate) fn pace(&self) -> Pace {
        self.pace.clone()
    }

    /// Writes until the drain what `make` gives.
    pub(crate) async fn run<T: Serialize + Send + 'static>(
        self,
        make: impl Fn() -> T,
        drain: CancellationToken,
    ) {
        let write = async || self.file.save::<T>(make()).await;
        self.pace.clone().run(write, drain).await;
    }
}
