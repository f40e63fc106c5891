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
}

/// Runs a command to its end. Its output is shown only if it fails.
pub(crate) fn run(mut command: Command) -> Result<Output, CommandError> {
    let program = Path::new(command.get_program()).file_name();
    let words = program.into_iter().chain(command.get_args().take(1));
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let words = words.join(" ");
    let output = match command.output() {
        Ok(output) => output,
        Err(source) => {
            let command = words;
            return Err(CommandError::Run { command, source });
        }
    };
    if output.status.success() {
        return Ok(output);
    }
    Err(CommandError::Failed {
        command: words,
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
