//! `cargo fuzz-long`: runs the engine for some or all targets, for a time.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::{TARGETS, Target, directory, target};

/// Runs of the engine.
mod engine;
/// Which target runs next, and for how long.
mod schedule;
/// How long targets have run in all.
mod totals;

use engine::{EngineRun, FuzzEngine};
use schedule::{Remaining, Schedule};
use totals::Totals;

/// The longest run of a target before another one gets the processor, if earlier runs count.
const SLICE: Duration = Duration::from_secs(300);

/// Fuzzes for a time; a found input ends its target's run and is printed.
#[derive(Debug, Parser)]
#[command(name = "cargo fuzz-long")]
pub struct FuzzArgs {
    /// Fuzzes only the targets of these names.
    #[arg(long)]
    target: Vec<String>,
    /// The time for each target.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The time for all targets together, which they share.
    #[arg(long)]
    total_seconds: Option<u64>,
    /// Counts the processor time of earlier runs: `--seconds` is then for all runs, the targets with the
    /// least so far run first, in turns, and `--total-seconds` only ends this run.
    #[arg(long)]
    resume: bool,
    /// A run that can be repeated: begins with the stored inputs alone, and chooses by this number.
    #[arg(long, conflicts_with = "resume")]
    seed: Option<u32>,
    /// Targets that run at the same time; by default as many as there are processors.
    #[arg(long)]
    jobs: Option<usize>,
    /// Runs the target on this input only.
    #[arg(long, value_name = "INPUT", conflicts_with = "minimize")]
    replay: Option<PathBuf>,
    /// Reduces this input to the smallest that fails in the same target, instead of fuzzing.
    #[arg(long, value_name = "INPUT")]
    minimize: Option<PathBuf>,
    /// Lists the targets, with the processor time and inputs of all runs so far.
    #[arg(long)]
    list: bool,
}

/// Why nothing can be fuzzed.
#[derive(Debug, thiserror::Error)]
pub enum FuzzError {
    /// A name is not one of a target.
    #[error("no target {0:?}; --list shows them")]
    NoTarget(String),
    /// An input without its target.
    #[error("--minimize and --replay need one --target")]
    OneTarget,
    /// The engine does not start, or cannot be waited for.
    #[error("failed to run {program}")]
    Run {
        /// The path of the engine.
        program: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The engine's processor time is not known.
    #[error("failed to read the processor time of process {pid}")]
    ProcessorTime {
        /// The engine's process.
        pid: i32,
        /// The cause.
        #[source]
        source: procfs::ProcError,
    },
    /// A file or directory under `target/fuzz` cannot be written.
    #[error("failed to write {path}")]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A worker panicked.
    #[error("a worker panicked")]
    Worker,
}

/// Does what the arguments say. Returns whether nothing was found.
pub fn run(args: &FuzzArgs) -> Result<bool, FuzzError> {
    let targets = match args.target.as_slice() {
        [] => TARGETS.iter().collect(),
        names => selected(names)?,
    };
    if args.list {
        print_totals(&targets);
        return Ok(true);
    }
    let engine = FuzzEngine::new(args.seed)?;
    let one_target = || match targets.as_slice() {
        [target] => Ok(*target),
        _ => Err(FuzzError::OneTarget),
    };
    match (&args.minimize, &args.replay) {
        (Some(input), _) => engine.minimize(one_target()?, &absolute(input), args.seconds),
        (None, Some(input)) => engine.replay(one_target()?, &absolute(input)),
        (None, None) => fuzz(&engine, &targets, args),
    }
}

fn selected(names: &[String]) -> Result<Vec<&'static Target>, FuzzError> {
    let found = names
        .iter()
        .map(|name| target(name).ok_or_else(|| FuzzError::NoTarget(name.clone())));
    found.collect()
}

/// Cargo runs this program in its crate's directory; paths are relative to the workspace's.
fn absolute(input: &Path) -> PathBuf {
    directory().join("../..").join(input)
}

/// Fuzzes the targets, some at a time.
fn fuzz(
    engine: &FuzzEngine,
    targets: &[&'static Target],
    args: &FuzzArgs,
) -> Result<bool, FuzzError> {
    let processors = thread::available_parallelism().map(NonZero::get);
    let jobs = args.jobs.unwrap_or(processors.unwrap_or(1)).max(1);
    let schedule = Mutex::new(schedule(targets, jobs, args));
    // An unknown time, if a panic left it locked, is no reason to end the other workers.
    let lock = || schedule.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = || -> Result<bool, FuzzError> {
        let mut clean = true;
        loop {
            let Some((target, time)) = lock().next(Instant::now()) else {
                return Ok(clean);
            };
            let run = engine.fuzz(target, time)?;
            clean &= run.found.is_none();
            lock().finish(target.name, run.processor_time, run.found.is_some());
            report(target, &run)?;
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        let results = workers.into_iter().map(|worker| worker.join());
        let mut clean = true;
        for result in results {
            clean &= result.map_err(|_| FuzzError::Worker)??;
        }
        Ok(clean)
    })
}

fn schedule(targets: &[&'static Target], jobs: usize, args: &FuzzArgs) -> Schedule {
    let seconds = match args.total_seconds {
        Some(total) if !args.resume => share(total, jobs, targets.len()),
        _ => args.seconds,
    };
    let each = Duration::from_secs(seconds);
    let earlier = |target: &Target| match args.resume {
        true => Totals::read(target).processor_time(),
        false => Duration::ZERO,
    };
    let remaining = targets.iter().map(|target| Remaining {
        target,
        time: each.saturating_sub(earlier(target)),
    });
    let total = args.total_seconds.map(Duration::from_secs);
    Schedule::new(
        remaining.collect(),
        args.resume.then_some(SLICE),
        total
            .filter(|_| args.resume)
            .map(|total| Instant::now() + total),
    )
}

/// The seconds of one target, when this many run at a time.
fn share(total: u64, jobs: usize, targets: usize) -> u64 {
    let rounds = targets.div_ceil(jobs).max(1) as u64;
    (total / rounds).max(1)
}

/// Records and prints what a run of a target did.
fn report(target: &Target, run: &EngineRun) -> Result<(), FuzzError> {
    let totals = Totals::add(target, run.processor_time, run.inputs)?;
    let result = match &run.found {
        None => "nothing found",
        Some(_) => "FAILED",
    };
    println!(
        "{:<16} {:>9} inputs in {:>4} s, {result}; in all {}",
        target.name,
        run.inputs,
        run.processor_time.as_secs(),
        totals.describe(),
    );
    if let Some(found) = &run.found {
        println!("{found}");
    }
    Ok(())
}

fn print_totals(targets: &[&Target]) {
    for target in targets {
        println!("{:<16} {}", target.name, Totals::read(target).describe());
    }
}

/// The directory of a target outside the tree: found inputs, logs and times.
fn target_directory(target: &Target) -> PathBuf {
    let root = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => directory().join("../../target"),
    };
    let root = root.canonicalize().unwrap_or(root);
    root.join("fuzz").join(target.name)
}

fn write_error(path: &Path) -> impl Fn(std::io::Error) -> FuzzError {
    let path = path.to_owned();
    move |source| FuzzError::Write {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_share_the_total_time() {
        // Nineteen targets, two at a time, are ten rounds.
        assert_eq!(share(60, 2, 19), 6);
        assert_eq!(share(60, 1, 19), 3);
        assert_eq!(share(5, 2, 19), 1, "each gets a second at least");
    }
}
