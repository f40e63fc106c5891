use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::error::HarnessError;
use crate::machine;
use crate::node::SERVICES;

/// Builds the release binaries and gives their directory. Cargo tells its progress itself.
///
/// # Errors
/// When cargo cannot be run or the build fails.
pub async fn release() -> Result<PathBuf, HarnessError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    // By binary and not by package: then cargo resolves the features of the whole workspace, as
    // it did for this program, and builds nothing twice.
    command.args(["build", "--release", "--bin", "polylet"]);
    for service in SERVICES {
        command.arg("--bin").arg(format!("polylet-{service}"));
    }
    let program = "cargo build --release".to_owned();
    let ran = command
        .current_dir(machine::workspace())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await;
    let status = ran.map_err(|source| HarnessError::Run {
        program: program.clone(),
        source,
    })?;
    if !status.success() {
        let output = "see the compiler's messages above".to_owned();
        return Err(HarnessError::Failed {
            program,
            status: status.to_string(),
            output,
        });
    }
    Ok(machine::target_dir().join("release"))
}
