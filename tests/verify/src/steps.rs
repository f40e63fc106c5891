use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_harness::build::Profile;
use polylet_harness::cluster::Programs;
use polylet_harness::previous::PreviousVersion;
use polylet_harness::{Flavour, HarnessError, build, machine, packages, scratch};

use crate::command::{self, Program, cargo, compiling};
use crate::results::{Counts, Summary};
use crate::{Suite, VerifyArgs};

/// Time limit of a crate's test program, well above the longest.
const UNIT_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Time limit of an end-to-end test program; the longest test injects faults for two minutes.
const E2E_LIMIT: Duration = Duration::from_secs(20 * 60);

/// The same with `POLYLET_TEST_LONG`: fourteen faults are caused one after another.
const LONG_E2E_LIMIT: Duration = Duration::from_secs(60 * 60);

/// How long the fuzz targets run, all together, and the number that their choices follow from.
const FUZZ_SECONDS: &str = "60";
const FUZZ_SEED: &str = "1";

/// Time limit of building and running the fuzz targets.
const FUZZ_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The test program that needs programs with crash points, its time limit, and the binary.
const CRASH_POINTS: &str = "crash_points";
const CRASH_POINTS_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
const CRASH_POINTS_BINARY: &str = "polylet-crash-points";

/// The test program that needs programs of two versions, and its time limit.
const COMPATIBILITY: &str = "compatibility";
const COMPATIBILITY_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Programs that run only when named: they build or download monitoring systems first, or take minutes.
const ONLY_BY_NAME: [&str; 6] = [
    "cluster_kubectl",
    "cluster_metrics_server",
    "cluster_prometheus",
    "node_api_hostile_clients",
    "trace_diff",
    "upgrade_starts",
];

/// Time limit of a virtual machine's test program, and of each of its rounds beyond the default.
const VM_LIMIT: Duration = Duration::from_secs(40 * 60);
const ROUND_LIMIT: Duration = Duration::from_secs(5 * 60);

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
    prepare(needs_nodes.into_iter().any(wanted)).await?;
    if wanted(Suite::Compatibility) {
        // Before anything is built.
        PreviousVersion::find(args.previous.as_deref())?;
    }
    if wanted(Suite::Fuzz) {
        install(&packages::missing_for_fuzzing())?;
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
    if wanted(Suite::Unit) || needs_nodes.into_iter().any(wanted) {
        tests(&mut summary, args).await?;
    }
    // After the tests, which have built the dependencies.
    if wanted(Suite::Fuzz) {
        fuzz(&mut summary).await?;
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
        (false, _) if wanted(Suite::CrashPoints) => vec![CRASH_POINTS.to_owned()],
        (false, _) if wanted(Suite::Compatibility) => vec![COMPATIBILITY.to_owned()],
        (false, true) => command::targets("tests/e2e/tests"),
        (false, false) => args.e2e.clone(),
    };
    let Some(programs) = command::build_tests(&targets).await? else {
        summary.check("building the tests", false, begun.elapsed());
        return Ok(());
    };
    let (vm, programs): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::is_vm);
    let is_crash_points = |program: &Program| program.target == CRASH_POINTS;
    let (crash_points, programs): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(is_crash_points);
    let is_compatibility = |program: &Program| program.target == COMPATIBILITY;
    let (compatibility, programs): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(is_compatibility);
    let (e2e, unit): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::is_e2e);
    if wanted(Suite::Unit) {
        units(summary, &unit).await?;
    }
    if wanted(Suite::E2e) {
        let chosen = |program: &Program| match args.e2e.is_empty() {
            true => !ONLY_BY_NAME.contains(&program.target.as_str()),
            false => args.e2e.contains(&program.target),
        };
        let e2e: Vec<_> = e2e.into_iter().filter(chosen).collect();
        if e2e.iter().any(Program::needs_cluster) {
            cluster_programs(summary).await?;
        }
        on_runtimes(summary, &e2e).await?;
    }
    if wanted(Suite::CrashPoints) {
        cluster_programs(summary).await?;
        with_crash_points(summary, &crash_points).await?;
    }
    if wanted(Suite::Compatibility) {
        with_previous(summary, &compatibility, args).await?;
    }
    if wanted(Suite::Vm) {
        cluster_programs(summary).await?;
        in_virtual_machine(summary, &vm, args).await?;
    }
    Ok(())
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

/// Fuzzes all targets for [`FUZZ_SECONDS`] together; `cargo fuzz-long` does so for long.
async fn fuzz(summary: &mut Summary) -> Result<(), HarnessError> {
    title("fuzz targets");
    let begun = Instant::now();
    let time = ["--total-seconds", FUZZ_SECONDS, "--seed", FUZZ_SEED];
    let mut step = cargo(&["fuzz-long"]);
    step.args(time);
    let ended = command::succeeds(step, "cargo fuzz-long");
    let good = match tokio::time::timeout(FUZZ_LIMIT, ended).await {
        Ok(good) => good?,
        Err(_) => {
            let limit = FUZZ_LIMIT.as_secs();
            println!("cargo fuzz-long takes longer than {limit} s: stopping it");
            false
        }
    };
    summary.check("fuzz targets", good, begun.elapsed());
    Ok(())
}

/// Builds etcd, kube-apiserver and the other cluster programs, unless already built.
async fn cluster_programs(summary: &mut Summary) -> Result<(), HarnessError> {
    title("building the programs of a Kubernetes cluster (Go)");
    let begun = Instant::now();
    let built = Programs::ready(&|line| println!("{line}")).await;
    let good = match built {
        Err(error @ HarnessError::Failed { .. }) => {
            println!("{}", polylet_harness::error::report(&error));
            false
        }
        other => other.map(|_| true)?,
    };
    summary.check("programs of a cluster", good, begun.elapsed());
    Ok(())
}

/// Runs in a virtual machine; each program boots its own.
async fn in_virtual_machine(
    summary: &mut Summary,
    programs: &[Program],
    args: &VerifyArgs,
) -> Result<(), HarnessError> {
    let Some(bin_dir) = release_binaries(summary).await? else {
        return Ok(());
    };
    title("in a virtual machine");
    let begun = Instant::now();
    let rounds = args.rounds.map(|rounds| rounds.to_string());
    let rounds = rounds.as_deref().map(Path::new);
    let mut env = vec![("POLYLET_TEST_BIN_DIR", bin_dir.as_path())];
    env.extend(rounds.map(|rounds| ("POLYLET_VM_ROUNDS", rounds)));
    let named = |program: &&Program| args.e2e.is_empty() || args.e2e.contains(&program.target);
    let mut counts = Counts::default();
    for program in programs.iter().filter(named) {
        // Each round boots the machine, waits for its pods and may take minutes.
        let limit = VM_LIMIT + ROUND_LIMIT * args.rounds.unwrap_or_default();
        let words = ["--test-threads=1", "--include-ignored", "--nocapture"];
        counts.add(command::test(program, &words, &env, limit).await?);
    }
    summary.tests("virtual machine", counts, begun.elapsed());
    Ok(())
}

/// Builds programs with crash points beside those of the tests, and runs the tests that need them.
async fn with_crash_points(
    summary: &mut Summary,
    programs: &[Program],
) -> Result<(), HarnessError> {
    title("building programs with crash points");
    let begun = Instant::now();
    let feature = "polylet-multicall/crash-points";
    let mut build = compiling("build");
    build.args(["--bin", CRASH_POINTS_BINARY, "--features", feature]);
    if !command::succeeds(build, "cargo build").await? {
        summary.check("building crash points", false, begun.elapsed());
        return Ok(());
    }
    let built = Profile::Demo.directory();
    let bin_dir = built.join("crash-points");
    let directory = bin_dir.display().to_string();
    machine::run(&built.join(CRASH_POINTS_BINARY), &["--install", &directory])?;
    title("crash points");
    let begun = Instant::now();
    let env = [
        ("POLYLET_TEST_CONTAINERD", Path::new("v2")),
        ("POLYLET_TEST_BIN_DIR", bin_dir.as_path()),
    ];
    let words = ["--test-threads=1", "--include-ignored", "--nocapture"];
    let mut counts = Counts::default();
    let feature = "polylet-crash-points/system-calls";
    let package = ["test", "--package", "polylet-crash-points"];
    let mut own = cargo(&package);
    own.args(["--profile", Profile::Demo.name(), "--features", feature]);
    counts.add(command::counted(&mut own, "tests of crash points", UNIT_LIMIT).await?);
    for program in programs {
        counts.add(command::test(program, &words, &env, CRASH_POINTS_LIMIT).await?);
    }
    summary.tests("crash points", counts, begun.elapsed());
    Ok(())
}

/// Builds the programs of this tree and of the version before, and runs the tests that need both.
async fn with_previous(
    summary: &mut Summary,
    programs: &[Program],
    args: &VerifyArgs,
) -> Result<(), HarnessError> {
    let previous = PreviousVersion::find(args.previous.as_deref())?;
    title(&format!("building the programs of {}", previous.name));
    let begun = Instant::now();
    let built = async {
        let old = previous.programs(&|line| println!("{line}")).await?;
        let new = build::programs(Profile::Demo, &|_| ()).await?;
        Ok((old, new))
    };
    let (old, new) = match built.await {
        Ok(built) => built,
        Err(error @ HarnessError::Failed { .. }) => {
            println!("{}", polylet_harness::error::report(&error));
            summary.check("building two versions", false, begun.elapsed());
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let title = format!("compatibility with {}", previous.name);
    self::title(&title);
    let begun = Instant::now();
    let env = [
        ("POLYLET_TEST_CONTAINERD", Path::new("v2")),
        ("POLYLET_TEST_BIN_DIR", new.as_path()),
        ("POLYLET_TEST_PREVIOUS_BIN_DIR", old.as_path()),
        ("POLYLET_TEST_PREVIOUS", Path::new(&previous.name)),
    ];
    let words = ["--test-threads=1", "--include-ignored", "--nocapture"];
    let mut counts = Counts::default();
    for program in programs {
        counts.add(command::test(program, &words, &env, COMPATIBILITY_LIMIT).await?);
    }
    summary.tests(&title, counts, begun.elapsed());
    Ok(())
}

/// Builds the release binaries; `None` if they do not compile, which is in the summary then.
async fn release_binaries(summary: &mut Summary) -> Result<Option<PathBuf>, HarnessError> {
    title("building the release binaries");
    let begun = Instant::now();
    match build::programs(Profile::Release, &|_| ()).await {
        Ok(bin_dir) => Ok(Some(bin_dir)),
        Err(HarnessError::Failed { .. }) => {
            summary.check("building the services", false, begun.elapsed());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Runs on Debian's containerd, which has no events, and on 2.x, which has. Cluster tests run on one
/// of them only: the other tests cover the runtime differences.
async fn on_runtimes(summary: &mut Summary, programs: &[Program]) -> Result<(), HarnessError> {
    let Some(bin_dir) = release_binaries(summary).await? else {
        return Ok(());
    };
    for (flavour, word) in [(Flavour::Debian, "debian"), (Flavour::V2, "v2")] {
        let program = flavour.program(&|line| println!("{line}"))?;
        let version = machine::run(&program, &["--version"])?;
        let version = version.split_whitespace().nth(2).unwrap_or(word).to_owned();
        let name = format!("end to end, containerd {version}");
        title(&name);
        let begun = Instant::now();
        let mut counts = Counts::default();
        let env = [
            ("POLYLET_TEST_CONTAINERD", Path::new(word)),
            ("POLYLET_TEST_BIN_DIR", bin_dir.as_path()),
        ];
        let once = |program: &&Program| flavour == Flavour::V2 || !program.needs_cluster();
        for program in programs.iter().filter(once) {
            let mut words = vec!["--test-threads=1", "--include-ignored"];
            let mut limit = E2E_LIMIT;
            // Long tests print what they measure.
            if std::env::var_os("POLYLET_TEST_LONG").is_some() {
                words.push("--nocapture");
                limit = LONG_E2E_LIMIT;
            }
            counts.add(command::test(program, &words, &env, limit).await?);
        }
        summary.tests(&name, counts, begun.elapsed());
    }
    Ok(())
}

fn title(text: &str) {
    println!("\n== {text}");
}
