use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use polylet_fuzz::directory;

use crate::FuzzError;

/// The name of the engine's binary.
const ENGINE: &str = "polylet-fuzz-engine";

/// Builds the engine: the crates of the workspace with instrumentation, their dependencies as in
/// every other build, which is where they come from if there was one.
pub(crate) fn engine() -> Result<PathBuf, FuzzError> {
    let root = directory().join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let status = Command::new(&cargo)
        .args([
            "build",
            "--bin",
            ENGINE,
            "--features",
            "polylet-fuzz/engine",
        ])
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            directory().join("rustc-with-coverage.sh"),
        )
        .env("CARGO_INCREMENTAL", "0")
        .current_dir(&root)
        .status();
    let status = status.map_err(|source| FuzzError::Run {
        program: cargo.to_string_lossy().into_owned(),
        source,
    })?;
    if !status.success() {
        return Err(FuzzError::Build);
    }
    Ok(target_directory().join("debug").join(ENGINE))
}

/// Cargo's target directory.
pub(crate) fn target_directory() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => directory().join("../../target"),
    }
}
