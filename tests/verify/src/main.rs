//! `cargo verify`: formatting, lints, all tests of the workspace, and the end-to-end tests on two
//! container runtimes. Installs missing tools and packages.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use polylet_harness::error::report;

/// Computing beside tests that wait.
mod background;
/// Execution of cargo and test programs.
mod command;
/// Kubernetes' own tests.
mod conformance;
/// Tests of whole nodes.
mod node_suites;
/// Results of test programs, parsed from their output.
mod results;
/// The checks, in order.
mod steps;

/// Runs all checks and tests; the last line is the total.
#[derive(Debug, Parser)]
#[command(name = "cargo verify")]
struct VerifyArgs {
    /// Runs only this part.
    #[arg(long, value_enum)]
    only: Option<Suite>,
    /// Runs only the end-to-end test programs of these names, such as `images`; with `--only vm` only
    /// the virtual machine's.
    #[arg(long)]
    e2e: Vec<String>,
    /// The version before, for `--only compatibility`: a tag or a commit. Without it, the last tag `v*`.
    #[arg(long, value_name = "REF")]
    previous: Option<String>,
    /// Runs the end-to-end tests on the release binaries, as shipped, instead of those of `cargo demo`.
    #[arg(long)]
    release: bool,
    /// Number of rounds in the virtual machine: power cuts of `power_loss`, kills and upgrades of all services
    /// of `systemd`.
    #[arg(long)]
    rounds: Option<u32>,
}

impl VerifyArgs {
    /// Whether to run a part. Those that take long run only when asked for.
    fn wants(&self, part: Suite) -> bool {
        let by_default = ![Suite::Vm, Suite::CrashPoints, Suite::Compatibility].contains(&part);
        self.only.map_or(by_default, |only| only == part)
    }
}

/// A part of the verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// `cargo fmt --check`.
    Fmt,
    /// `cargo clippy`, warnings denied.
    Clippy,
    /// Tests of one crate at a time: tables, properties, the repository's rules.
    Unit,
    /// A minute of all fuzz targets.
    Fuzz,
    /// Whole nodes on real container runtimes.
    E2e,
    /// A part of Kubernetes' own end-to-end suite; the whole is `cargo conformance`.
    Conformance,
    /// Each service killed at each of its side effects. Only when asked for: it takes most of an hour, and
    /// programs of its own.
    CrashPoints,
    /// Each program with all others of the version before, and the reverse. Only when asked for: it builds
    /// that version.
    Compatibility,
    /// A node in a virtual machine, with a kernel and a disk to lose. Only when asked for: an emulated
    /// processor is slow.
    Vm,
}

fn main() -> ExitCode {
    let args = VerifyArgs::parse();
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
    let summary = runtime.block_on(steps::all(&args));
    match summary {
        Ok(summary) => {
            summary.print();
            if summary.is_good() {
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
