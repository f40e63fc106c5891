use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::error::HarnessError;
use crate::machine;
use crate::node::SERVICES;

/// Cargo, without the variables by which the cargo that runs this program describes it: build
/// scripts look at some of them, and would build their crates, and all that need these, anew for
/// each program that asks.
pub fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    let described = |name: &str| {
        let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        of_package.iter().any(|start| name.starts_with(start))
            || ["OUT_DIR", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"].contains(&name)
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(described) {
            command.env_remove(name);
        }
    }
    command
}

/// Builds the release binaries and gives their directory. Cargo tells its progress itself.
///
/// # Errors
/// When cargo cannot be run or the build fails.
pub async fn release() -> Result<PathBuf, HarnessError> {
    let mut command = cargo();
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
