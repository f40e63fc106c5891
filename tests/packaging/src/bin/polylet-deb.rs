//! `cargo package-deb`: builds the Debian package into `target/debian/`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use polylet_kit::report;
use polylet_packaging::deb;
use polylet_packaging::program::{self, ProfileUse};

/// Builds the Debian package
#[derive(Parser)]
#[command(name = "cargo package-deb")]
struct Args {
    /// Package this multicall program instead of building one in release
    #[arg(long, conflicts_with_all = ["pgo", "bolt"])]
    program: Option<PathBuf>,
    /// Compile the program by a profile of a node at work: it takes less processor time. Takes the better part of an
    /// hour, and runs pods on private containerds, as root
    #[arg(long)]
    pgo: bool,
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
        None => {
            let profile_use = ProfileUse {
                pgo: args.pgo,
                bolt: args.bolt,
            };
            program::build(profile_use).map_err(|error| report(&error))?
        }
    };
    let output = match &args.output {
        Some(path) => std::path::absolute(path).map_err(|error| error.to_string())?,
        None => polylet_packaging::root().join("target/debian"),
    };
    let built = deb::build(&program, &output, args.fast);
    built.map_err(|error| report(&error))?;
    println!("the program is {}", program.display());
    println!("the package is in {}", output.display());
    Ok(())
}
