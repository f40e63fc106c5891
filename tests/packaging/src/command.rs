//! Runs other programs.

use std::io;
use std::path::Path;
use std::process::{Command, Output};

/// A program that did not do its job.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CommandError {
    #[error("running {command}")]
    Run { command: String, source: io::Error },
    #[error("{command} failed ({status}): {output}")]
    Failed {
        command: String,
        status: String,
        output: String,
    },
    /// It has said itself why.
    #[error("{command} failed ({status})")]
    FailedVisibly { command: String, status: String },
}

/// Runs a command to its end. Its output is shown only if it fails.
pub(crate) fn run(mut command: Command) -> Result<Output, CommandError> {
    let output = command.output().map_err(not_run(&command))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(CommandError::Failed {
        command: first_words(&command),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Runs a command that shows what it does.
pub(crate) fn run_visibly(mut command: Command) -> Result<(), CommandError> {
    let status = command.status().map_err(not_run(&command))?;
    if status.success() {
        return Ok(());
    }
    Err(CommandError::FailedVisibly {
        command: first_words(&command),
        status: status.to_string(),
    })
}

fn not_run(command: &Command) -> impl FnOnce(io::Error) -> CommandError + use<> {
    let command = first_words(command);
    |source| CommandError::Run { command, source }
}

/// The program's name and its first argument.
fn first_words(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name();
    let words = program.into_iter().chain(command.get_args().take(1));
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
