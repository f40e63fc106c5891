//! The container runtime as a typed client: CRI v1 over its Unix socket.
//!
//! [`Runtime`] has a method for every call that Polylet makes, each with the deadline that upstream
//! gives it; [`CriError`] says what a failure means. [`labels`] holds the labels and annotations
//! that pods are recognised by, which are upstream's to the letter. [`log`] reads the log files
//! that the runtime writes. The raw messages are [`v1`].

mod client;
mod error;
/// Labels and annotations on sandboxes and containers.
pub mod labels;
/// Container logs.
pub mod log;

pub use client::{About, ExecOutput, ExecRequest, Runtime};
pub use error::{CriError, RuntimeSaid};
/// The messages of the interface.
pub use polylet_wire::runtime::v1;
