use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::error::HarnessError;
use crate::machine;

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

/// Builds the programs of a node as they are shipped, one file under ten names, and gives the
/// directory of the names. Cargo tells its progress itself.
///
/// # Errors
/// When cargo cannot be run, the build fails, or the names cannot be made.
pub async fn release() -> Result<PathBuf, HarnessError> {
    let mut build = cargo();
    // By binary and not by package: then cargo resolves the features of the whole workspace, as
    // it did for this program, and builds nothing twice.
    build
        .args(["build", "--release", "--bin", MULTICALL])
        .current_dir(machine::workspace());
    run("cargo build --release", build).await?;
    let release = machine::target_dir().join("release");
    let names = release.join("node");
    let mut install = Command::new(release.join(MULTICALL));
    install.arg("--install").arg(&names);
    run(MULTICALL, install).await?;
    Ok(names)
}

/// All programs of a node in one file.
pub const MULTICALL: &str = "polylet-multicall";

async fn run(program: &str, mut command: Command) -> Result<(), HarnessError> {
    let ran = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await;
    let status = ran.map_err(|source| HarnessError::Run {
        program: program.to_owned(),
        source,
    })?;
    if !status.success() {
        let output = "see its messages above".to_owned();
        return Err(HarnessError::Failed {
            program: program.to_owned(),
            status: status.to_string(),
            output,
        });
    }
    Ok(())
}
