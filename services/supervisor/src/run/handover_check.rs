//! The answer to whether this program could continue in the process of another one.

use std::fs::File;
use std::os::fd::AsFd;

use polylet_kit::{Config, Exit, report};

use super::programs;
use crate::handover::check::Confirmation;
use crate::handover::{StateError, read_file};

/// Why this program could not continue.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Preflight(#[from] polylet_machine::PreflightError),
    #[error(transparent)]
    Programs(#[from] programs::ProgramsError),
    #[error("reading the standard input")]
    Input(#[source] std::io::Error),
}

/// Answers the question, with the state in the standard input and the configuration to run with.
pub(crate) fn answer_check(config: &Config) -> Exit {
    match adoptable(config) {
        Ok(adopted_services) => {
            let confirmation = Confirmation { adopted_services };
            // A number in a structure: encoding cannot fail.
            println!(
                "{}",
                serde_json::to_string(&confirmation).unwrap_or_default()
            );
            Exit::Ok
        }
        Err(error) => {
            eprintln!("{}", report(&error));
            Exit::Failed
        }
    }
}

fn adoptable(config: &Config) -> Result<usize, AnswerError> {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let state = read_file(File::from(input.map_err(AnswerError::Input)?))?;
    polylet_machine::check(&config.kubelet)?;
    let directory = programs::directory(config.polylet.bin_directory.as_deref())?;
    programs::find(&directory)?;
    Ok(state.services.len())
}
