//! `cargo package-deb`: builds the Debian package into `target/debian/`.

use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let root = polylet_packaging::root();
    match build(&root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo package-deb: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build(root: &Path) -> Result<(), String> {
    let installed = Command::new("cargo").args(["deb", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        return Err("cargo-deb is missing: cargo install cargo-deb --locked".to_owned());
    }
    let package = root.join("target/package");
    polylet_packaging::extras::write(&package)
        .map_err(|error| format!("writing {}: {error}", package.display()))?;
    cargo(root, &["build", "--release", "--bin", "polylet-multicall"])?;
    cargo(root, &["deb", "--no-build", "-p", "polylet-multicall"])
}

fn cargo(root: &Path, args: &[&str]) -> Result<(), String> {
    let status = Command::new("cargo").args(args).current_dir(root).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {}: {status}", args.join(" "))),
        Err(error) => Err(format!("cargo {}: {error}", args.join(" "))),
    }
}
