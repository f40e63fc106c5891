use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use polylet_harness::build::{self, Profile};
use polylet_harness::{HarnessError, machine};
use rustix::process::Signal;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::results::Counts;

/// A test program that cargo built.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Display name: crate and target.
    pub(crate) name: String,
    /// The target's name: `images` for `tests/images.rs`.
    pub(crate) target: String,
    pub(crate) path: PathBuf,
    /// The crate's directory, the working directory of its tests.
    pub(crate) dir: PathBuf,
}

impl Program {
    pub(crate) fn is_e2e(&self) -> bool {
        self.dir.ends_with("tests/e2e")
    }

    /// Whether it runs a virtual machine; the crate's unit tests do not.
    pub(crate) fn is_vm(&self) -> bool {
        self.name.starts_with("tests/vm test ")
    }

    /// Whether it needs a cluster, by its name: `cluster.rs`, `api_volumes.rs`, `registration.rs`.
    pub(crate) fn needs_cluster(&self) -> bool {
        let starts = ["cluster", "api_", "registration", "node_api_streams"];
        self.is_vm() || self.is_e2e() && starts.iter().any(|start| self.target.starts_with(start))
    }
}

/// A cargo subcommand that compiles the workspace, in the profile of `cargo demo`: one after the other,
/// both commands compile their dependencies once.
pub(crate) fn compiling(subcommand: &str) -> Command {
    cargo(&[subcommand, "--workspace", "--profile", Profile::Demo.name()])
}

/// A cargo command with these arguments in the workspace's root.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = build::cargo();
    command
        .args(words)
        .current_dir(machine::workspace())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs a command with inherited output; returns whether it succeeded.
pub(crate) async fn succeeds(mut command: Command, name: &str) -> Result<bool, HarnessError> {
    let ran = command.status().await;
    Ok(ran.map_err(|source| run_error(name, source))?.success())
}

/// Builds test programs and lists them; `None` on a compile error. If targets are given, builds only
/// those.
pub(crate) async fn build_tests(targets: &[String]) -> Result<Option<Vec<Program>>, HarnessError> {
    let format = "--message-format=json-render-diagnostics";
    // Always the whole workspace, so that features are the same and nothing is built twice.
    let mut command = compiling("test");
    command.args(["--no-run", format]);
    for target in targets {
        command.args(["--test", target]);
    }
    let (mut child, mut lines) = piped(&mut command, "cargo test --no-run")?;
    let mut programs = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        programs.extend(program(&line));
    }
    let ended = child
        .wait()
        .await
        .map_err(|source| run_error("cargo test --no-run", source))?;
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(ended.success().then_some(programs))
}

/// The used fields of a cargo message.
#[derive(Deserialize)]
struct CargoMessage {
    reason: String,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<CargoTarget>,
    profile: Option<CargoProfile>,
}

#[derive(Deserialize)]
struct CargoTarget {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct CargoProfile {
    test: bool,
}

fn program(line: &str) -> Option<Program> {
    let message: CargoMessage = serde_json::from_str(line).ok()?;
    if message.reason != "compiler-artifact" || !message.profile?.test {
        return None;
    }
    let target = message.target?;
    let dir = message.manifest_path?.parent()?.to_owned();
    let krate = dir
        .strip_prefix(machine::workspace())
        .unwrap_or(&dir)
        .display()
        .to_string();
    let kind = target.kind.first().cloned().unwrap_or_default();
    let name = format!("{krate} {kind} {}", target.name);
    Some(Program {
        name,
        target: target.name,
        path: message.executable?,
        dir,
    })
}

/// Runs one test program and forwards its output. A program that exits without a result line or
/// exceeds `limit` counts as one failure.
pub(crate) async fn test(
    program: &Program,
    words: &[&str],
    env: &[(&str, &Path)],
    limit: Duration,
) -> Result<Counts, HarnessError> {
    println!("\n     Running {}", program.name);
    let mut command = test_command(program, words, env);
    counted(&mut command, &program.name, limit).await
}

/// The command that runs a test program.
pub(crate) fn test_command(program: &Program, words: &[&str], env: &[(&str, &Path)]) -> Command {
    let mut command = Command::new(&program.path);
    command
        .args(words)
        .current_dir(&program.dir)
        .stdin(Stdio::null())
        .env("CARGO_MANIFEST_DIR", &program.dir)
        .envs(env.iter().copied());
    command
}

/// Runs a command and adds up the result lines in its output.
pub(crate) async fn counted(
    command: &mut Command,
    name: &str,
    limit: Duration,
) -> Result<Counts, HarnessError> {
    let (mut child, mut lines) = piped(command, name)?;
    let mut counts = Counts::default();
    let read = async {
        while let Ok(Some(line)) = lines.next_line().await {
            println!("{line}");
            if let Some(more) = Counts::read(&line) {
                counts.add(more);
            }
        }
    };
    let in_time = tokio::time::timeout(limit, read).await.is_ok();
    if !in_time {
        println!(
            "{name} takes longer than {} s: stopping it",
            limit.as_secs()
        );
        stop(&mut child).await;
    }
    let ended = child
        .wait()
        .await
        .map_err(|source| run_error(name, source))?;
    if (!ended.success() || !in_time) && counts.failed == 0 {
        println!("{name} exited with {ended} without reporting a failed test");
        counts.failed = 1;
    }
    Ok(counts)
}

/// Sends SIGTERM, so that a test can clean up, and SIGKILL a minute later.
async fn stop(child: &mut Child) {
    if let Some(pid) = child.id() {
        machine::signal(pid, Signal::TERM);
    }
    if tokio::time::timeout(Duration::from_secs(60), child.wait())
        .await
        .is_err()
    {
        // Fails only if the child has exited.
        let _ = child.start_kill();
    }
}

fn piped(
    command: &mut Command,
    name: &str,
) -> Result<(Child, Lines<BufReader<ChildStdout>>), HarnessError> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|source| run_error(name, source))?;
    let out = child
        .stdout
        .take()
        .ok_or_else(|| run_error(name, std::io::Error::other("no pipe")))?;
    Ok((child, BufReader::new(out).lines()))
}

/// The error of a program that cannot be run.
pub(crate) fn run_error(name: &str, source: std::io::Error) -> HarnessError {
    HarnessError::Run {
        program: name.to_owned(),
        source,
    }
}

/// The names of the test programs in a directory, such as `tests/e2e/tests`: one per file, or
/// directory with a `main.rs`.
pub(crate) fn targets(dir: &str) -> Vec<String> {
    let dir = machine::workspace().join(dir);
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = files.filter_map(|file| {
        let path = file.path();
        let is_rust = path.extension().is_some_and(|end| end == "rs");
        let is_program = is_rust || path.join("main.rs").is_file();
        is_program
            .then(|| path.file_stem()?.to_str().map(str::to_owned))
            .flatten()
    });
    names.collect()
}
