//! `cargo fuzz-long`: builds the engine with instrumentation and runs it for some or all targets.

use std::process::ExitCode;

use clap::Parser;
use polylet_fuzz::{TARGETS, Target, target};

/// The build of the engine.
mod build;
/// Runs of the engine.
mod session;

use session::Session;

/// Fuzzes for a time; a finding ends the target's run and is printed with its input.
#[derive(Debug, Parser)]
#[command(name = "cargo fuzz-long")]
struct FuzzArgs {
    /// Fuzzes only the targets of these names.
    #[arg(long)]
    target: Vec<String>,
    /// The time for each target.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The time for all targets together, instead.
    #[arg(long)]
    total_seconds: Option<u64>,
    /// Targets that run at the same time; by default as many as there are processors.
    #[arg(long)]
    jobs: Option<usize>,
    /// Reduces this input to the smallest that fails in the same target, instead of fuzzing.
    #[arg(long, value_name = "INPUT")]
    minimize: Option<std::path::PathBuf>,
    /// Lists the targets.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&FuzzArgs::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {}", polylet_kit::report(&error));
            ExitCode::FAILURE
        }
    }
}

/// Whether nothing was found.
fn run(args: &FuzzArgs) -> Result<bool, FuzzError> {
    if args.list {
        TARGETS
            .iter()
            .for_each(|target| println!("{}", target.name));
        return Ok(true);
    }
    let targets = match args.target.as_slice() {
        [] => TARGETS.iter().collect(),
        names => selected(names)?,
    };
    let processors = std::thread::available_parallelism();
    let jobs = args.jobs.or(processors.ok().map(Into::into)).unwrap_or(1);
    let session = Session {
        engine: build::engine()?,
        seconds: match args.total_seconds {
            Some(total) => share(total, jobs, targets.len()),
            None => args.seconds,
        },
    };
    match &args.minimize {
        Some(input) => session.minimize(&targets, input),
        None => session.fuzz(&targets, jobs),
    }
}

/// The seconds of one target, when this many run at a time.
fn share(total: u64, jobs: usize, targets: usize) -> u64 {
    let rounds = targets.div_ceil(jobs.max(1)).max(1) as u64;
    (total / rounds).max(1)
}

fn selected(names: &[String]) -> Result<Vec<&'static Target>, FuzzError> {
    let found = names
        .iter()
        .map(|name| target(name).ok_or_else(|| FuzzError::NoTarget(name.clone())));
    found.collect()
}

/// Why nothing can be fuzzed.
#[derive(Debug, thiserror::Error)]
enum FuzzError {
    #[error("no target {0:?}; --list shows them")]
    NoTarget(String),
    #[error("--minimize needs one --target")]
    OneTarget,
    #[error("failed to run {program}")]
    Run {
        program: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the engine does not compile")]
    Build,
    #[error("failed to write {path}")]
    Write {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
}
