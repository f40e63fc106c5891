//! `cargo conformance`: Kubernetes' own end-to-end suite against a node of this tree, or against a real
//! kubelet in the same way. Prints a table, and leaves JUnit files and logs below `target/conformance`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use polylet_harness::error::report;
use polylet_harness::{HarnessError, build, guard, machine, packages, scratch};

/// Images under the names that the suite asks for.
mod images;
/// Results of several rounds, and the table.
mod results;
/// Execution of the suite.
mod run;
/// Names of the specs.
mod specs;
/// The suite's programs.
mod suite;
/// The cluster with its node.
mod testbed;

use results::SuiteResults;
use specs::SpecSelection;
use suite::SuitePrograms;
use testbed::Testbed;

/// Runs Kubernetes' own end-to-end suite against one node.
#[derive(Debug, Parser)]
#[command(name = "cargo conformance")]
struct ConformanceArgs {
    /// The node agent.
    #[arg(long, value_enum, default_value_t = AgentKind::Polylet)]
    agent: AgentKind,
    /// Runs the specs whose names match this regular expression (Go's syntax) instead of the list.
    #[arg(long, value_name = "REGEX")]
    focus: Option<String>,
    /// Runs a part of the list that takes a few minutes.
    #[arg(long, conflicts_with = "focus")]
    short: bool,
    /// How often each spec runs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Specs at a time; serial ones follow alone.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    procs: u32,
    /// Directory of Polylet's programs; a build of this tree if not set.
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
}

/// What runs the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AgentKind {
    /// The programs of this tree.
    Polylet,
    /// The real kubelet.
    Kubelet,
}

impl AgentKind {
    fn name(self) -> &'static str {
        match self {
            Self::Polylet => "polylet",
            Self::Kubelet => "kubelet",
        }
    }
}

impl ConformanceArgs {
    fn selection(&self) -> SpecSelection {
        match (&self.focus, self.short) {
            (Some(regex), _) => SpecSelection::Matching(regex.clone()),
            (None, true) => SpecSelection::Names(specs::short()),
            (None, false) => SpecSelection::Names(specs::all()),
        }
    }
}

fn main() -> ExitCode {
    let args = ConformanceArgs::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(all(&args)).map_err(|error| report(&error)),
        Err(error) => Err(format!("failed to start the async runtime: {error}")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all rounds and prints the table. Returns whether every spec passed every time.
async fn all(args: &ConformanceArgs) -> Result<bool, HarnessError> {
    let say = |line: &str| eprintln!("{line}");
    guard::on_signals();
    machine::need_root()?;
    for left in scratch::remove_leftovers() {
        say(&format!(
            "failed to remove leftovers of an earlier run: {left}"
        ));
    }
    let missing = [packages::missing(), packages::missing_for_suites()].concat();
    packages::install(&missing, &say)?;
    let suite = SuitePrograms::ready(&say).await?;
    let bin_dir = match &args.bin_dir {
        Some(bin_dir) => bin_dir.clone(),
        None => build::programs(build::Profile::Demo, &|_| ()).await?,
    };
    let testbed = Testbed::start(args.agent, bin_dir, &suite, &say).await?;
    let selection = args.selection();
    let output = results::directory(args.agent);
    let mut results = SuiteResults::new(&selection);
    for round in 1..=args.rounds {
        let dir = output.join(format!("round-{round}"));
        let log = dir.join("suite.log");
        say(&format!(
            "round {round} of {}, log: {}",
            args.rounds,
            log.display()
        ));
        let ran = run::suite(&suite, &testbed, &selection, args.procs, &dir).await;
        testbed.save_logs(&dir)?;
        results.add(ran?);
    }
    testbed.remove()?;
    println!("{}", results.table(&results::baseline()?));
    results.save(args.agent)?;
    println!("JUnit files, logs and reports: {}", output.display());
    Ok(results.all_passed())
}
