//! The static sources: the manifest directory and the URL.

pub mod directory;
mod events;
mod fetch;
pub mod http;
mod scan;
