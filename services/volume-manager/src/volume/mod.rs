//! Effects on the file system: setting volumes up and tearing them down.

pub mod atomic;
pub mod delete;
pub mod device;
pub mod dir;
mod error;
pub mod format;
pub mod fs_group;
pub mod host_path;
pub mod local_volume;
pub mod marker;
pub mod metadata;
pub mod mount;
pub mod nfs;
mod program;
pub mod progress;
pub mod removal;
pub mod set_up;
pub mod sub_path;
pub mod tear_down;

pub use error::{CsiError, VolumeError};

/// The warning event of a volume that has been set up all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// Runs work on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(VolumeError::Aborted(std::path::PathBuf::new())))
}
