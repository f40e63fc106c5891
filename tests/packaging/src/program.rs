//! The multicall program that the package has.

use std::path::PathBuf;
use std::process::Command;

use crate::bolt::{self, BoltError};
use crate::command::{CommandError, run_visibly};
use crate::pgo::{self, PgoError};

/// What profiles of a node at work are used for.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProfileUse {
    /// To compile the program.
    pub pgo: bool,
    /// To arrange its code.
    pub bolt: bool,
}

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProgramError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Pgo(#[from] PgoError),
    #[error(transparent)]
    Bolt(#[from] BoltError),
}

/// Builds the program and returns its path. Profiles are recorded anew: by nodes on private containerds, as root.
///
/// # Errors
/// If a tool is missing, or a build or a benchmark fails.
pub fn build(profile_use: ProfileUse) -> Result<PathBuf, ProgramError> {
    let program = if profile_use.pgo {
        pgo::build(profile_use.bolt)?
    } else {
        release(profile_use.bolt)?
    };
    if profile_use.bolt {
        return Ok(bolt::arrange(&program)?);
    }
    Ok(program)
}

fn release(with_relocations: bool) -> Result<PathBuf, CommandError> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--bin", "polylet-multicall"])
        .current_dir(crate::root());
    if with_relocations {
        cargo.env("POLYLET_EMIT_RELOCS", "1");
    }
    run_visibly(cargo)?;
    Ok(crate::target_directory().join("release/polylet-multicall"))
}
