use std::path::Path;
use std::time::{Duration, Instant};

use polylet_harness::cluster::Programs;
use polylet_harness::{Flavour, HarnessError, build, machine, packages, scratch};

use crate::command::{self, Program, cargo};
use crate::results::{Counts, Sum};
use crate::{Args, Part};

/// No test program of one crate takes so long by far.
const UNIT_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The longest end-to-end test disturbs a node for two minutes.
const E2E_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Runs the wanted parts, each to its end, whatever the ones before it gave.
pub(crate) async fn all(args: &Args) -> Result<Sum, HarnessError> {
    let wanted = |part| args.only.is_none_or(|only| only == part);
    let mut sum = Sum::default();
    prepare(wanted(Part::E2e)).await?;
    if wanted(Part::Fmt) {
        let step = cargo(&["fmt", "--all", "--check"]);
        check(&mut sum, "cargo fmt --check", step).await?;
    }
    if wanted(Part::Clippy) {
        let words = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ];
        check(&mut sum, "cargo clippy", cargo(&words)).await?;
    }
    if !wanted(Part::Unit) && !wanted(Part::E2e) {
        return Ok(sum);
    }
    title("building the tests");
    let begun = Instant::now();
    let targets = match (wanted(Part::Unit), args.e2e.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => command::e2e_targets(),
        (false, false) => args.e2e.clone(),
    };
    let Some(programs) = command::build_tests(&targets).await? else {
        sum.check("building the tests", false, begun.elapsed());
        return Ok(sum);
    };
    let (e2e, unit): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::is_e2e);
    if wanted(Part::Unit) {
        units(&mut sum, &unit).await?;
    }
    if wanted(Part::E2e) {
        let named = |program: &Program| args.e2e.is_empty() || args.e2e.contains(&program.target);
        let e2e: Vec<_> = e2e.into_iter().filter(named).collect();
        if e2e.iter().any(Program::needs_cluster) {
            cluster_programs(&mut sum).await?;
        }
        on_runtimes(&mut sum, &e2e).await?;
    }
    Ok(sum)
}

/// Tools and packages; what earlier runs that were killed left behind goes.
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
    let missing = packages::missing();
    for need in &missing {
        println!("installing {} ({})", need.package, need.why);
    }
    packages::install(&missing, &|line| println!("  {line}"))?;
    Programs::can_be_had().await?;
    for left in scratch::remove_leftovers() {
        println!("left by an earlier run, and still there: {left}");
    }
    Ok(())
}

async fn check(
    sum: &mut Sum,
    name: &str,
    step: tokio::process::Command,
) -> Result<(), HarnessError> {
    title(name);
    let begun = Instant::now();
    let good = command::succeeds(step, name).await?;
    sum.check(name, good, begun.elapsed());
    Ok(())
}

async fn units(sum: &mut Sum, programs: &[Program]) -> Result<(), HarnessError> {
    title("tests of each crate, and the repository's rules");
    let begun = Instant::now();
    let mut counts = Counts::default();
    for program in programs {
        counts.add(command::test(program, &[], &[], UNIT_LIMIT).await?);
    }
    let mut docs = cargo(&["test", "--workspace", "--doc", "--quiet"]);
    counts.add(command::counted(&mut docs, "examples in the documentation", UNIT_LIMIT).await?);
    sum.tests("unit, property and tidy tests", counts, begun.elapsed());
    Ok(())
}

/// etcd, kube-apiserver and the others: built once, then found.
async fn cluster_programs(sum: &mut Sum) -> Result<(), HarnessError> {
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
    sum.check("programs of a cluster", good, begun.elapsed());
    Ok(())
}

/// Debian's containerd has no events, 2.x has: the node must do with both. Of a cluster's node only
/// what is below the API matters there, which the other tests show: once is enough.
async fn on_runtimes(sum: &mut Sum, programs: &[Program]) -> Result<(), HarnessError> {
    title("building the release binaries for the end-to-end tests");
    let begun = Instant::now();
    let bin_dir = match build::release().await {
        Ok(bin_dir) => bin_dir,
        Err(HarnessError::Failed { .. }) => {
            sum.check("building the services", false, begun.elapsed());
            return Ok(());
        }
        Err(error) => return Err(error),
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
            ("POLYLET_TEST_BIN_DIR", &bin_dir),
        ];
        let once = |program: &&Program| flavour == Flavour::V2 || !program.needs_cluster();
        for program in programs.iter().filter(once) {
            let words = ["--test-threads=1", "--include-ignored"];
            counts.add(command::test(program, &words, &env, E2E_LIMIT).await?);
        }
        sum.tests(&name, counts, begun.elapsed());
    }
    Ok(())
}

fn title(text: &str) {
    println!("\n== {text}");
}
