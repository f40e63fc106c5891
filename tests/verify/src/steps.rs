use std::path::Path;
use std::time::{Duration, Instant};

use polylet_harness::cluster::Programs;
use polylet_harness::previous::PreviousVersion;
use polylet_harness::{HarnessError, machine, packages, scratch};

use crate::background::Background;
use crate::command::{self, Program, cargo, compiling};
use crate::conformance::Conformance;
use crate::node_suites;
use crate::results::{Counts, Summary, title};
use crate::{Suite, VerifyArgs};

/// Time limit of a crate's test program, well above the longest.
const UNIT_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The simulation's test program: minutes of computing.
const SIMULATION: &str = "tests/sim test seeds";

/// How long the fuzz targets run, all together, and the number that their choices follow from.
const FUZZ_SECONDS: &str = "60";
const FUZZ_SEED: &str = "1";

/// Runs the selected parts; a failure does not stop the following ones.
pub(crate) async fn all(args: &VerifyArgs) -> Result<Summary, HarnessError> {
    let wanted = |part| args.wants(part);
    let mut summary = Summary::default();
    let needs_nodes = [
        Suite::E2e,
        Suite::Vm,
        Suite::CrashPoints,
        Suite::Compatibility,
    ];
    let needs_nodes = needs_nodes.into_iter().any(wanted);
    prepare(needs_nodes || wanted(Suite::Conformance)).await?;
    if wanted(Suite::Compatibility) {
        // Before anything is built.
        PreviousVersion::find(args.previous.as_deref())?;
    }
    if wanted(Suite::Fuzz) {
        install(&packages::missing_for_fuzzing())?;
    }
    if wanted(Suite::Conformance) {
        install(&packages::missing_for_suites())?;
    }
    if wanted(Suite::Fmt) {
        let step = cargo(&["fmt", "--all", "--check"]);
        check(&mut summary, "cargo fmt --check", step).await?;
    }
    if wanted(Suite::Clippy) {
        let mut step = compiling("clippy");
        step.args(["--all-targets", "--", "--deny", "warnings"]);
        check(&mut summary, "cargo clippy", step).await?;
    }
    if wanted(Suite::Unit) || needs_nodes {
        tests(&mut summary, args).await?;
    } else if wanted(Suite::Fuzz) {
        fuzz()?.end(&mut summary).await?;
    } else if wanted(Suite::Conformance)
        && let Some(bin_dir) = node_suites::programs(&mut summary, args).await?
        && let Some(conformance) = Conformance::prepare(&mut summary).await?
    {
        conformance.run(&mut summary, &bin_dir).await?;
    }
    Ok(summary)
}

/// Unit tests, end-to-end tests and those in a virtual machine, whichever are selected.
async fn tests(summary: &mut Summary, args: &VerifyArgs) -> Result<(), HarnessError> {
    let wanted = |part| args.wants(part);
    title("building the tests");
    let begun = Instant::now();
    let targets = match (wanted(Suite::Unit), args.e2e.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) if wanted(Suite::Vm) => command::targets("tests/vm/tests"),
        (false, _) if wanted(Suite::CrashPoints) => vec![node_suites::CRASH_POINTS.to_owned()],
        (false, _) if wanted(Suite::Compatibility) => vec![node_suites::COMPATIBILITY.to_owned()],
        (false, true) => command::targets("tests/e2e/tests"),
        (false, false) => args.e2e.clone(),
    };
    let Some(programs) = command::build_tests(&targets).await? else {
        summary.check("building the tests", false, begun.elapsed());
        return Ok(());
    };
    let mut chosen = TestPrograms::new(programs);
    // Before cargo builds the fuzz targets, and keeps other builds waiting.
    let bin_dir = match wanted(Suite::E2e) || wanted(Suite::Conformance) {
        true => node_suites::programs(summary, args).await?,
        false => None,
    };
    let conformance = match wanted(Suite::Conformance) {
        true => Conformance::prepare(summary).await?,
        false => None,
    };
    let mut background = Vec::new();
    if wanted(Suite::Unit) {
        background.extend(chosen.simulation.take().map(simulation).transpose()?);
        units(summary, &chosen.unit).await?;
    }
    if wanted(Suite::Fuzz) {
        background.push(fuzz()?);
    }
    if let Some(bin_dir) = bin_dir.as_deref().filter(|_| wanted(Suite::E2e)) {
        let e2e = node_suites::selected(chosen.e2e, args);
        if e2e.iter().any(Program::needs_cluster) {
            node_suites::cluster_programs(summary).await?;
        }
        node_suites::on_runtimes(summary, &e2e, bin_dir).await?;
    }
    for work in background {
        work.end(summary).await?;
    }
    if let Some((conformance, bin_dir)) = conformance.zip(bin_dir) {
        conformance.run(summary, &bin_dir).await?;
    }
    if wanted(Suite::CrashPoints) {
        node_suites::cluster_programs(summary).await?;
        node_suites::with_crash_points(summary, &chosen.crash_points).await?;
    }
    if wanted(Suite::Compatibility) {
        node_suites::with_previous(summary, &chosen.compatibility, args).await?;
    }
    if wanted(Suite::Vm) {
        node_suites::cluster_programs(summary).await?;
        node_suites::in_virtual_machine(summary, &chosen.vm, args).await?;
    }
    Ok(())
}

/// The built test programs by what they need.
struct TestPrograms {
    /// Those of one crate.
    unit: Vec<Program>,
    simulation: Option<Program>,
    /// Those of a node on a container runtime.
    e2e: Vec<Program>,
    crash_points: Vec<Program>,
    compatibility: Vec<Program>,
    vm: Vec<Program>,
}

impl TestPrograms {
    fn new(programs: Vec<Program>) -> Self {
        let (vm, programs): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::is_vm);
        let (e2e, programs): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::is_e2e);
        let of = |target: &'static str| move |program: &Program| program.target == target;
        let (crash_points, e2e) = e2e.into_iter().partition(of(node_suites::CRASH_POINTS));
        let e2e: Vec<_> = e2e;
        let (compatibility, e2e) = e2e.into_iter().partition(of(node_suites::COMPATIBILITY));
        let is_simulation = |program: &Program| program.name == SIMULATION;
        let (simulation, unit): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_simulation);
        Self {
            unit,
            simulation: simulation.into_iter().next(),
            e2e,
            crash_points,
            compatibility,
            vm,
        }
    }
}

/// Installs tools and packages, and cleans up after killed runs.
async fn prepare(e2e: bool) -> Result<(), HarnessError> {
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let mut look = cargo(&[tool, "--version"]);
        look.stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        if !command::succeeds(look, tool).await? {
            machine::run(Path::new("rustup"), &["component", "add", component])?;
        }
    }
    if !e2e {
        return Ok(());
    }
    machine::need_root()?;
    machine::architecture()?;
    install(&packages::missing())?;
    Programs::can_be_had().await?;
    for left in scratch::remove_leftovers() {
        println!("failed to remove leftovers of an earlier run: {left}");
    }
    Ok(())
}

fn install(missing: &[packages::Need]) -> Result<(), HarnessError> {
    for need in missing {
        println!("installing {} ({})", need.package, need.why);
    }
    packages::install(missing, &|line| println!("  {line}"))
}

async fn check(
    summary: &mut Summary,
    name: &str,
    step: tokio::process::Command,
) -> Result<(), HarnessError> {
    title(name);
    let begun = Instant::now();
    let good = command::succeeds(step, name).await?;
    summary.check(name, good, begun.elapsed());
    Ok(())
}

async fn units(summary: &mut Summary, programs: &[Program]) -> Result<(), HarnessError> {
    title("tests of each crate, and the repository's rules");
    let begun = Instant::now();
    let mut counts = Counts::default();
    for program in programs {
        // Ignored by default: one changes the machine's clock for a second, one needs Go.
        let args: &[&str] = match program.target.as_str() {
            "clock_step" | "static_pods" => &["--include-ignored"],
            _ => &[],
        };
        counts.add(command::test(program, args, &[], UNIT_LIMIT).await?);
    }
    let mut docs = compiling("test");
    docs.args(["--doc", "--quiet"]);
    counts.add(command::counted(&mut docs, "examples in the documentation", UNIT_LIMIT).await?);
    summary.tests("unit, property and tidy tests", counts, begun.elapsed());
    Ok(())
}

/// Runs the simulation, which computes for minutes.
fn simulation(program: Program) -> Result<Background, HarnessError> {
    Background::start("simulation", command::test_command(&program, &[], &[]))
}

/// Fuzzes all targets for [`FUZZ_SECONDS`] together; `cargo fuzz-long` does so for long. Later than the tests'
/// build, which has compiled the dependencies.
fn fuzz() -> Result<Background, HarnessError> {
    let time = ["--total-seconds", FUZZ_SECONDS, "--seed", FUZZ_SEED];
    let mut fuzz = cargo(&["fuzz-long"]);
    fuzz.args(time);
    Background::start("fuzz targets", fuzz)
}
