//! What is done to the file system: set volumes up, take them away, find what is there.

pub mod atomic;
pub mod device;
pub mod dir;
pub mod disk;
mod error;
pub mod find;
pub mod group;
pub mod host_path;
pub mod local_volume;
pub mod mount;
pub mod note;
pub mod progress;
pub mod remove;
pub mod set_up;
pub mod sub_path;
pub mod tear_down;

pub use error::VolumeError;

/// What people are told of a volume that is there all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The event's reason.
    pub reason: &'static str,
    /// The event's words.
    pub message: String,
}

/// Runs local work on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(VolumeError::BrokenOff(std::path::PathBuf::new())))
}
