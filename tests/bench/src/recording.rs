//! Traces of a run, which `polylet trace record` writes to a file, and what `polylet trace` makes of them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use polylet_harness::error::report;
use polylet_harness::wait::{Poll, timeout, until};
use polylet_harness::{HarnessError, Node, machine};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::manifests::ManifestKind;
use crate::pods::PodDriver;

/// What `polylet trace record` prints when it has begun.
const HAS_BEGUN: &str = "recording";
/// The pod whose removal is the last trace.
const LAST_POD: &str = "last-recorded";

/// A recording under way.
pub(crate) struct TraceRecording {
    file: PathBuf,
    child: Child,
    _config: NamedTempFile,
}

impl TraceRecording {
    /// Returns when it has begun.
    pub(crate) async fn start(node: &Node, file: &Path) -> Result<TraceRecording, HarnessError> {
        let failed = |source| HarnessError::Run {
            program: "polylet trace record".to_owned(),
            source,
        };
        // Processes whose command lines name the node's directory count as the agent's.
        let config = NamedTempFile::new().map_err(failed)?;
        std::fs::copy(node.config(), config.path()).map_err(failed)?;
        let mut command = Command::new(node.program("polylet"));
        command.args(["trace", "record", "--root", "all"]).arg(file);
        command.arg("--config").arg(config.path());
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
        if let Some(errors) = child.stderr.take() {
            let mut lines = BufReader::new(errors).lines();
            let first = tokio::time::timeout(timeout(), lines.next_line()).await;
            let first = first
                .unwrap_or(Ok(None))
                .map_err(failed)?
                .unwrap_or_default();
            if !first.starts_with(HAS_BEGUN) {
                return Err(failed(std::io::Error::other(first)));
            }
        }
        Ok(TraceRecording {
            file: file.to_owned(),
            child,
            _config: config,
        })
    }

    /// Ends it after the traces of all pods that were removed.
    pub(crate) async fn finish(
        mut self,
        node: &Node,
        pods: &mut PodDriver<'_>,
    ) -> Result<PathBuf, HarnessError> {
        pods.start(LAST_POD, &ManifestKind::Bare.manifest(LAST_POD))
            .await?;
        pods.remove(LAST_POD).await?;
        // Traces are written in the order in which they end.
        until("the trace of the last removal", || is_recorded(node)).await?;
        if let Some(pid) = self.child.id() {
            machine::signal(pid, Signal::INT);
        }
        let ended = tokio::time::timeout(timeout(), self.child.wait()).await;
        match ended {
            Ok(Ok(status)) if status.success() => Ok(self.file),
            ended => Err(HarnessError::Run {
                program: "polylet trace record".to_owned(),
                source: std::io::Error::other(format!("it ended with {ended:?}")),
            }),
        }
    }
}

async fn is_recorded(node: &Node) -> Poll<()> {
    let list = ["trace", "list", "--root", "pod.delete", "-o", "json"];
    let listed = match node.cli(&list).await {
        Ok(output) => serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        Err(error) => return Poll::Pending(report(&error)),
    };
    let mut traces = listed["traces"].as_array().into_iter().flatten();
    let is_last = |trace: &Value| {
        trace["name"]
            .as_str()
            .is_some_and(|name| name.starts_with(LAST_POD))
    };
    match traces.any(is_last) {
        true => Poll::Ready(()),
        false => Poll::Pending("it has not ended".to_owned()),
    }
}

/// Where the time of the starts and removals in a file went, by step and by whose time it was.
pub(crate) async fn print_top(node: &Node, file: &Path) -> Result<(), HarnessError> {
    let file = file.display().to_string();
    for root in ["pod.start", "pod.delete"] {
        for by in ["step", "owner"] {
            println!("\n{root}, by {by}:");
            let top = ["trace", "top", "--root", root, "--by", by, "--from", &file];
            print_command(node, &top).await?;
        }
    }
    Ok(())
}

/// The starts and removals of an earlier run beside those of this one.
pub(crate) async fn print_diff(node: &Node, before: &Path, now: &Path) -> Result<(), HarnessError> {
    let [before, now] = [before, now].map(|file| file.display().to_string());
    for root in ["pod.start", "pod.delete"] {
        println!("\n{root}, against {before}:");
        print_command(node, &["trace", "diff", "--root", root, &before, &now]).await?;
    }
    Ok(())
}

/// Prints what a command prints, its errors too: a file without such traces is no reason to give up the run.
async fn print_command(node: &Node, words: &[&str]) -> Result<(), HarnessError> {
    let output = node.cli(words).await?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
