//! What is done to the file system: set volumes up, take them away, find what is there.

pub mod atomic;
pub mod device;
pub mod dir;
mod error;
pub mod find;
pub mod group;
pub mod host_path;
pub mod local_volume;
pub mod mount;
pub mod note;
pub mod remove;
pub mod set_up;
pub mod sub_path;
pub mod tear_down;

pub use error::VolumeError;
