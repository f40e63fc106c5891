//! `cargo package-deb`: builds the Debian package into `target/debian/`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use polylet_packaging::deb;

/// Builds the Debian package
#[derive(Parser)]
#[command(name = "cargo package-deb")]
struct Args {
    /// Package this multicall program instead of building one in release
    #[arg(long)]
    program: Option<PathBuf>,
    /// Compress less, for a package that is not sent anywhere
    #[arg(long)]
    fast: bool,
    /// The package's file or directory [default: target/debian]
    #[arg(long)]
    output: Option<PathBuf>,
}

fn main() -> ExitCode {
    match build(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo package-deb: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build(args: &Args) -> Result<(), String> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => release()?,
    };
    let output = match &args.output {
        Some(path) => std::path::absolute(path).map_err(|error| error.to_string())?,
        None => polylet_packaging::root().join("target/debian"),
    };
    let built = deb::build(&program, &output, args.fast);
    built.map_err(|error| polylet_kit::report(&error))?;
    println!("the package is in {}", output.display());
    Ok(())
}

/// Builds the program that is shipped.
fn release() -> Result<PathBuf, String> {
    let root = polylet_packaging::root();
    let status = Command::new("cargo")
        .args(["build", "--release", "--bin", "polylet-multicall"])
        .current_dir(&root)
        .status();
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => root.join("target"),
    };
    match status {
        Ok(status) if status.success() => Ok(target.join(Path::new("release/polylet-multicall"))),
        Ok(status) => Err(format!("cargo build: {status}")),
        Err(error) => Err(format!("cargo build: {error}")),
    }
}
