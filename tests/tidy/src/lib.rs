//! Rules of the repository as tests.

use std::path::PathBuf;

/// Compiling and generating the wire.
pub mod wire;

/// The repository's root.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(PathBuf::from).unwrap_or(here)
}
