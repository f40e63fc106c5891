//! `cargo package-deb`: builds the Debian package into `target/debian/`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use polylet_kit::report;
use polylet_packaging::{bolt, deb};

/// Builds the Debian package
#[derive(Parser)]
#[command(name = "cargo package-deb")]
struct Args {
    /// Package this multicall program instead of building one in release
    #[arg(long, conflicts_with = "bolt")]
    program: Option<PathBuf>,
    /// Arrange the program's code by profiles of a node at work, with LLVM's BOLT: less of it is in memory. Takes some
    /// twenty minutes, and runs pods on private containerds, as root
    #[arg(long)]
    bolt: bool,
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
        None if args.bolt => bolt::build().map_err(|error| report(&error))?,
        None => release()?,
    };
    let output = match &args.output {
        Some(path) => std::path::absolute(path).map_err(|error| error.to_string())?,
        None => polylet_packaging::root().join("target/debian"),
    };
    let built = deb::build(&program, &output, args.fast);
    built.map_err(|error| report(&error))?;
    println!("the package is in {}", output.display());
    Ok(())
}

/// Builds the program that is shipped.
fn release() -> Result<PathBuf, String> {
    let status = Command::new("cargo")
        .args(["build", "--release", "--bin", "polylet-multicall"])
        .current_dir(polylet_packaging::root())
        .status();
    let target = polylet_packaging::target_directory();
    match status {
        Ok(status) if status.success() => Ok(target.join(Path::new("release/polylet-multicall"))),
        Ok(status) => Err(format!("cargo build: {status}")),
        Err(error) => Err(format!("cargo build: {error}")),
    }
}
