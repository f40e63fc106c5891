//! Tests of whole nodes: on container runtimes, with crash points, with programs of two versions, and in a
//! virtual machine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_harness::build::{self, Profile};
use polylet_harness::cluster::Programs;
use polylet_harness::previous::PreviousVersion;
use polylet_harness::{Flavour, HarnessError, machine};

use crate::VerifyArgs;
use crate::command::{self, Program, cargo, compiling};
use crate::results::{Counts, Summary, title};

/// Time limit of an end-to-end test program, several times the longest.
const E2E_LIMIT: Duration = Duration::from_secs(20 * 60);

/// The same with `POLYLET_TEST_LONG`: fourteen faults are caused one after another.
const LONG_E2E_LIMIT: Duration = Duration::from_secs(60 * 60);

/// The test program that needs programs with crash points, its time limit, and the binary.
pub(crate) const CRASH_POINTS: &str = "crash_points";
const CRASH_POINTS_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
const CRASH_POINTS_BINARY: &str = "polylet-crash-points";

/// The test program that needs programs of two versions, and its time limit.
pub(crate) const COMPATIBILITY: &str = "compatibility";
const COMPATIBILITY_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Programs that run only when named: they build or download monitoring systems first, or take minutes.
const ONLY_BY_NAME: [&str; 8] = [
    "cluster_kubectl",
    "cluster_metrics_server",
    "cluster_prometheus",
    "node_api_hostile_clients",
    "trace_browser",
    "trace_collector",
    "trace_diff",
    "upgrade_starts",
];

/// Programs whose subject is the same on every runtime: they run on one, as those of a cluster do.
const ON_ONE_RUNTIME: [&str; 6] = [
    "bad_input",
    "cli",
    "multicall",
    "upgrade",
    "upgrade_coordinator",
    "upgrade_supervisor",
];

/// Time limit of a virtual machine's test program, and of each of its rounds beyond the default.
const VM_LIMIT: Duration = Duration::from_secs(40 * 60);
const ROUND_LIMIT: Duration = Duration::from_secs(5 * 60);

/// The end-to-end programs that were asked for.
pub(crate) fn selected(programs: Vec<Program>, args: &VerifyArgs) -> Vec<Program> {
    let chosen = |program: &Program| match args.e2e.is_empty() {
        true => !ONLY_BY_NAME.contains(&program.target.as_str()),
        false => args.e2e.contains(&program.target),
    };
    programs.into_iter().filter(chosen).collect()
}

/// Builds the node's programs for [`on_runtimes`]; `None` if they do not compile, which is in the summary
/// then. Those of `cargo demo` unless the shipped ones were asked for: link-time optimization takes minutes.
pub(crate) async fn programs(
    summary: &mut Summary,
    args: &VerifyArgs,
) -> Result<Option<PathBuf>, HarnessError> {
    let profile = match args.release {
        true => Profile::Release,
        false => Profile::Demo,
    };
    built(summary, profile).await
}

/// Builds etcd, kube-apiserver and the other cluster programs, unless already built.
pub(crate) async fn cluster_programs(summary: &mut Summary) -> Result<(), HarnessError> {
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

fn runs_on_one_runtime(program: &Program) -> bool {
    program.needs_cluster() || ON_ONE_RUNTIME.contains(&program.target.as_str())
}

/// Runs on Debian's containerd, which has no events, and on 2.x, which has.
pub(crate) async fn on_runtimes(
    summary: &mut Summary,
    programs: &[Program],
    bin_dir: &Path,
) -> Result<(), HarnessError> {
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
            ("POLYLET_TEST_BIN_DIR", bin_dir),
        ];
        let here = |program: &&Program| flavour == Flavour::V2 || !runs_on_one_runtime(program);
        for program in programs.iter().filter(here) {
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

/// Builds the node's programs; `None` if they do not compile, which is in the summary then.
async fn built(summary: &mut Summary, profile: Profile) -> Result<Option<PathBuf>, HarnessError> {
    title(&format!(
        "building the node's programs ({})",
        profile.name()
    ));
    let begun = Instant::now();
    match build::programs(profile, &|_| ()).await {
        Ok(bin_dir) => Ok(Some(bin_dir)),
        Err(HarnessError::Failed { .. }) => {
            summary.check("building the services", false, begun.elapsed());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Builds programs with crash points beside those of the tests, and runs the tests that need them.
pub(crate) async fn with_crash_points(
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
    counts.add(command::counted(&mut own, "tests of crash points", CRASH_POINTS_LIMIT).await?);
    for program in programs {
        counts.add(command::test(program, &words, &env, CRASH_POINTS_LIMIT).await?);
    }
    summary.tests("crash points", counts, begun.elapsed());
    Ok(())
}

/// Builds the programs of this tree and of the version before, and runs the tests that need both.
pub(crate) async fn with_previous(
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
    let name = format!("compatibility with {}", previous.name);
    title(&name);
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
    summary.tests(&name, counts, begun.elapsed());
    Ok(())
}

/// Runs in a virtual machine; each program boots its own.
pub(crate) async fn in_virtual_machine(
    summary: &mut Summary,
    programs: &[Program],
    args: &VerifyArgs,
) -> Result<(), HarnessError> {
    let Some(bin_dir) = built(summary, Profile::Release).await? else {
        return Ok(());
    };
    title("in a virtual machine");
    let begun = Instant::now();
    let rounds = args.rounds.map(|rounds| rounds.to_string());
    let rounds = rounds.as_deref().map(Path::new);
    let mut env = vec![("POLYLET_TEST_BIN_DIR", bin_dir.as_path())];
    env.extend(rounds.map(|rounds| ("POLYLET_TEST_ROUNDS", rounds)));
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
