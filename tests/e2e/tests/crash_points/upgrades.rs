//! An upgrade of a service, with crashes of the supervisor that carries it out and of the service.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use polylet_e2e::ok;
use polylet_harness::error::report;
use polylet_harness::node::default_bin_dir;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions};
use serde_json::Value;

use crate::control::Point;
use crate::results::{Results, verify};
use crate::run::CrashRun;

/// It has state on disk, and other services call it.
const SERVICE: &str = "prober";
/// Each write of the journal is another stage.
const MAX_OCCURRENCES: u32 = 10;

pub(crate) async fn upgrade_and_roll_back() {
    let programs = ok(tempfile::tempdir());
    let multicall = default_bin_dir().join("polylet-multicall");
    let mut install = Command::new(multicall);
    let installed = ok(install.arg("--install").arg(programs.path()).status());
    assert!(installed.success());
    let builds = ok(tempfile::tempdir());
    let options = NodeOptions {
        bin_dir: Some(programs.path().to_owned()),
        ..NodeOptions::default()
    };
    let mut run = CrashRun::start(options).await;
    let mut points = Vec::new();
    // The first one makes a version of the plain file.
    for number in 0..2 {
        let build = build(builds.path(), number);
        run.control.record();
        upgraded(&mut run, &build, None).await.expect("an upgrade");
        points = run.control.recorded(MAX_OCCURRENCES);
    }
    let is_part = |point: &Point| ["supervisor", SERVICE].contains(&point.service.as_str());
    points.retain(is_part);
    let mut results = Results::new("upgrade");
    for (at, point) in points.iter().enumerate() {
        run.settle().await.expect("a node in step");
        let build = build(builds.path(), at + 2);
        run.control.arm(point);
        let end = upgraded(&mut run, &build, Some(point)).await;
        let (has_crashed, well) = run.recovered(point).await;
        results.add(point, has_crashed, end.and(well));
        ok(fs::remove_file(build));
    }
    let mut failures = results.finish();
    let last = build(builds.path(), points.len() + 2);
    failures.extend(upgraded(&mut run, &last, None).await.err());
    failures.extend(temporary_files(programs.path()));
    verify(&failures);
    run.node.remove().expect("nothing left of the node");
}

/// Another build of the service, told by its length: bytes after the end of a program do not matter.
fn build(directory: &Path, number: usize) -> PathBuf {
    let path = directory.join(format!("build-{number}"));
    ok(fs::copy(
        default_bin_dir().join(format!("polylet-{SERVICE}")),
        &path,
    ));
    let mut file = ok(File::options().append(true).open(&path));
    ok(file.write_all(&vec![b'+'; number + 1]));
    path
}

/// Upgrades, starts the supervisor again if it crashes, and waits for the end of the upgrade: done, rolled
/// back or not begun, and everything as the history says.
async fn upgraded(run: &mut CrashRun, build: &Path, point: Option<&Point>) -> Result<(), String> {
    let path = build.display().to_string();
    let before = active(&run.node)?;
    let records = history(&run.node).await?.len();
    let command = run.node.cli(&["upgrade", SERVICE, "--to", &path]).await;
    let output = command.map_err(|e| report(&e))?;
    if point.is_some_and(|point| point.service == "supervisor") && run.control.has_crashed() {
        run.node.down();
        run.node.up().await.map_err(|e| report(&e))?;
    } else if point.is_none() && !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let node = &mut run.node;
    let ended = until("the end of the upgrade", || async {
        match history(node).await {
            Ok(upgrades) if upgrades.iter().all(|one| one["finishedAt"] != "") => {
                Poll::Ready(upgrades)
            }
            Ok(upgrades) => Poll::Pending(format!("{:?}", upgrades.last())),
            Err(error) => Poll::Pending(error),
        }
    })
    .await;
    let upgrades = ended.map_err(|e| report(&e))?;
    node.wait_in_step().await.map_err(|e| report(&e))?;
    let new = upgrades.get(records..).unwrap_or_default();
    let step = new.last().map_or("not begun", |last| {
        last["step"].as_str().unwrap_or_default()
    });
    let now = active(node)?;
    let expected = match step {
        "done" => size(build)?,
        "rolled back" | "not begun" | "failed" => before,
        other => return Err(format!("unknown end {other:?}")),
    };
    if now != expected || new.len() > 1 {
        return Err(format!("{step}: active {now}, before {before}, {new:?}"));
    }
    let running = running(node).await?;
    if running != now {
        return Err(format!(
            "{step}: a program of {running} runs, {now} is active"
        ));
    }
    if point.is_none() && step != "done" {
        return Err(format!("without a crash: {step}"));
    }
    Ok(())
}

fn size(path: &Path) -> Result<u64, String> {
    let metadata = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(metadata.len())
}

/// The size of the active program.
fn active(node: &Node) -> Result<u64, String> {
    size(&node.program(&format!("polylet-{SERVICE}")))
}

/// The size of the running program.
async fn running(node: &Node) -> Result<u64, String> {
    let services = node.services().await.map_err(|e| report(&e))?;
    let service = services.iter().find(|one| one.name == SERVICE);
    let pid = service.map_or(0, |service| service.pid);
    size(Path::new(&format!("/proc/{pid}/exe")))
}

async fn history(node: &Node) -> Result<Vec<Value>, String> {
    let output = node.cli(&["history", "-o", "json"]).await;
    let output = output.map_err(|e| report(&e))?;
    let parsed: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let upgrades = parsed["upgrades"].as_array().cloned();
    upgrades.ok_or_else(|| "no history".to_owned())
}

/// Files that an interrupted installation left, after a later one.
fn temporary_files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(temporary_files(&entry.path()));
        } else if name.starts_with('.') || name.ends_with(".new") {
            found.push(entry.path().display().to_string());
        }
    }
    found
}
