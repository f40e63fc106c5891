//! Work that only computes, beside end-to-end tests, which mostly wait.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use polylet_harness::HarnessError;
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::command::run_error;
use crate::results::{Counts, Summary, title};

/// Time limit of such work, which has the processors only when nothing else needs them.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// A command that runs at idle priority. Its output is printed when it has ended.
pub(crate) struct Background {
    name: &'static str,
    output: File,
    ended: JoinHandle<std::io::Result<CommandEnd>>,
}

struct CommandEnd {
    /// None if it was stopped for the time that it took.
    status: Option<ExitStatus>,
    took: Duration,
}

impl Background {
    /// Starts a command.
    pub(crate) fn start(name: &'static str, command: Command) -> Result<Self, HarnessError> {
        let output = tempfile::tempfile().map_err(|source| run_error(name, source))?;
        let copy = || output.try_clone().map_err(|source| run_error(name, source));
        let mut command = at_idle_priority(&command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(copy()?)
            .stderr(copy()?)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| run_error(name, source))?;
        let begun = Instant::now();
        let ended = tokio::spawn(async move {
            let status = tokio::time::timeout(LIMIT, child.wait()).await;
            Ok(CommandEnd {
                status: status.ok().transpose()?,
                took: begun.elapsed(),
            })
        });
        Ok(Self {
            name,
            output,
            ended,
        })
    }

    /// Waits for its end, prints its output and adds its result.
    pub(crate) async fn end(mut self, summary: &mut Summary) -> Result<(), HarnessError> {
        let failed = |source| run_error(self.name, source);
        let ended = self.ended.await.map_err(std::io::Error::other);
        let ended = ended.and_then(|ended| ended).map_err(failed)?;
        title(self.name);
        self.output.rewind().map_err(failed)?;
        let mut counts = Counts::default();
        for line in BufReader::new(self.output).lines() {
            let line = line.map_err(failed)?;
            if let Some(more) = Counts::read(&line) {
                counts.add(more);
            }
            println!("{line}");
        }
        let good = ended.status.is_some_and(|status| status.success());
        if ended.status.is_none() {
            let limit = LIMIT.as_secs();
            println!("{} took longer than {limit} s and was stopped", self.name);
        }
        if !good && counts.failed == 0 {
            counts.failed = 1;
        }
        summary.tests(self.name, counts, ended.took);
        Ok(())
    }
}

/// The same command, scheduled only when a processor is idle.
fn at_idle_priority(command: &Command) -> Command {
    let command = command.as_std();
    let mut idle = Command::new("chrt");
    idle.args(["--idle", "0"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => idle.env(name, value),
            None => idle.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        idle.current_dir(directory);
    }
    idle
}
