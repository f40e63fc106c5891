//! The container runtime as a typed client: CRI v1 over its Unix socket.
//!
//! - [`RuntimeClient`] has a method for each call that Polylet uses, with upstream's deadlines.
//! - [`CriError`] is a failed call.
//! - [`labels`] has the labels and annotations that identify pods, which are upstream's to the letter.
//! - [`log`] reads the log files that the runtime writes.
//! - [`v1`] has the messages of the interface.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod client;
mod error;
pub mod labels;
pub mod log;

pub use client::{CallContext, ExecOutput, ExecRequest, RuntimeClient, listener_pid};
pub use error::{CriError, RuntimeMessage};
/// The messages of the interface.
pub use polylet_wire::runtime::v1;
