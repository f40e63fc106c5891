//! `cargo conformance`: Kubernetes' own end-to-end suites against a node of this tree, or against a real
//! kubelet in the same way. Prints a table, and leaves JUnit files and logs below `target/conformance`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use polylet_harness::error::report;
use polylet_harness::{HarnessError, build, guard, machine, packages, scratch};

/// Command lines of the suites.
mod command;
/// Images under the names that the suite asks for.
mod images;
/// What the suite of a node needs beside the node.
mod node_suite;
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
/// A stand-in for the service manager of the node.
mod unit;

use results::SuiteResults;
use specs::SpecSelection;
use suite::SuitePrograms;
use testbed::Testbed;

/// Runs one of Kubernetes' own end-to-end suites against one node.
#[derive(Debug, Parser)]
#[command(name = "cargo conformance")]
struct ConformanceArgs {
    /// The suite.
    #[arg(long, value_enum, default_value_t = SuiteKind::Cluster)]
    suite: SuiteKind,
    /// The node agent.
    #[arg(long, value_enum, default_value_t = AgentKind::Polylet)]
    agent: AgentKind,
    /// Runs the specs whose names match this regular expression (Go's syntax) instead of the list.
    #[arg(long, value_name = "REGEX")]
    focus: Option<String>,
    /// Runs a part of the cluster suite's list that takes a few minutes.
    #[arg(long, conflicts_with_all = ["focus", "suite"])]
    short: bool,
    /// How often each spec runs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Specs at a time; serial ones follow alone.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    procs: u32,
    /// Builds the suite's programs and runs nothing.
    #[arg(long)]
    build_only: bool,
    /// Directory of Polylet's programs; a build of this tree if not set.
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
}

/// Which of Kubernetes' suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SuiteKind {
    /// `e2e.test`: a cluster's API and what its nodes make of it.
    Cluster,
    /// `e2e_node.test`: one node from the inside, with restarts and other configurations of its agent.
    /// The node uses the kubelet's own ports, root directory and cgroup, so that the machine must have no
    /// other one.
    Node,
}

impl SuiteKind {
    fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Node => "node",
        }
    }
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
        if let Some(regex) = &self.focus {
            return SpecSelection::Matching(regex.clone());
        }
        SpecSelection::Names(match self.suite {
            SuiteKind::Node => specs::of_node(),
            SuiteKind::Cluster if self.short => specs::short_of_cluster(),
            SuiteKind::Cluster => specs::of_cluster(),
        })
    }
}

fn main() -> ExitCode {
    if let Some(code) = unit::stand_in() {
        return code;
    }
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
    let suite = SuitePrograms::ready(args.suite, &say).await?;
    if args.build_only {
        return Ok(true);
    }
    let bin_dir = match &args.bin_dir {
        Some(bin_dir) => bin_dir.clone(),
        None => build::programs(build::Profile::Demo, &|_| ()).await?,
    };
    let mut testbed = Testbed::start(args.agent, bin_dir, &suite, &say).await?;
    let selection = args.selection();
    let output = results::directory(args.suite, args.agent);
    let mut results = SuiteResults::new(&selection);
    for round in 1..=args.rounds {
        let dir = output.join(format!("round-{round}"));
        let log = dir.join("suite.log");
        say(&format!(
            "round {round} of {}, log: {}",
            args.rounds,
            log.display()
        ));
        testbed.begin_round().await?;
        let ran = run::suite(&suite, &mut testbed, &selection, args.procs, &dir).await;
        testbed.save_logs(&dir)?;
        results.add(ran?);
    }
    testbed.remove()?;
    println!("{}", results.table(&results::baseline(args.suite)?));
    results.save(args.suite, args.agent)?;
    println!("JUnit files, logs and reports: {}", output.display());
    Ok(results.all_passed())
}
