//! The second command of the README, `cargo verify`: formatting, lints, every test of the
//! workspace, and the end-to-end tests on two container runtimes. It installs what they need.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use polylet_harness::error::report;

/// Running cargo and test programs.
mod command;
/// Results of test programs, read from what they print.
mod results;
/// What is checked, in order.
mod steps;

/// Runs every check and every test; the last line sums them up.
#[derive(Debug, Parser)]
#[command(name = "cargo verify")]
struct Args {
    /// Runs only this part.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Runs only the end-to-end test programs of these names, such as `walk`.
    #[arg(long)]
    e2e: Vec<String>,
}

/// A part of the verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// `cargo fmt --check`.
    Fmt,
    /// `cargo clippy`, warnings denied.
    Clippy,
    /// Tests of one crate at a time: tables, properties, the repository's rules.
    Unit,
    /// Whole nodes on real container runtimes.
    E2e,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("verify: {error}");
            return ExitCode::FAILURE;
        }
    };
    let sum = runtime.block_on(steps::all(&args));
    match sum {
        Ok(sum) => {
            sum.print();
            if sum.is_good() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("\nverify: {}", report(&error));
            ExitCode::FAILURE
        }
    }
}
