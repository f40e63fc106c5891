//! Why upgrades are refused.

use std::path::PathBuf;

use polylet_kit::state_file::StateFileError;
use tonic::Status;

use super::describe::DescribeError;
use crate::backend::BackendError;
use crate::backend::programs::ProgramStoreError;
use crate::core::upgrade::compatibility::Incompatibility;
use crate::handover::check::CheckError;

/// Why an upgrade or a rollback was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("{service} is not a service that can be upgraded")]
    UnknownService { service: String },
    #[error("no service is named")]
    NoService,
    #[error("{path} is not an absolute path")]
    RelativePath { path: PathBuf },
    #[error("the timeout is not between one second and one hour")]
    Timeout,
    #[error("an upgrade is in progress")]
    InProgress,
    #[error("the history of upgrades cannot be read")]
    History(#[source] std::sync::Arc<StateFileError>),
    #[error("the beginning cannot be recorded")]
    Record(#[source] StateFileError),
    #[error("the starts after upgrade {run} cannot be recorded")]
    RecordStarts {
        run: u64,
        #[source]
        source: StateFileError,
    },
    #[error("there was no upgrade {run}")]
    NoRun { run: u64 },
    #[error(transparent)]
    Describe(#[from] DescribeError),
    #[error(transparent)]
    Store(#[from] ProgramStoreError),
    #[error("comparing {path} with the installed versions")]
    Compare {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    NotManaged(BackendError),
    #[error(
        "{link} is not the program that this supervisor runs: restart it first, or set binDirectory in \
         PolyletConfiguration"
    )]
    OtherSupervisor { link: PathBuf },
    #[error(transparent)]
    Handover(#[from] CheckError),
    #[error("decoding the descriptor of this program")]
    OwnDescriptor(#[source] serde_json::Error),
    #[error("asking the service manager")]
    Backend(#[from] BackendError),
    #[error("{}", lines(.0))]
    Incompatible(Vec<Incompatibility>),
    #[error("there would be no way back: {}; accept that with --one-way", lines(.0))]
    NoWayBack(Vec<Incompatibility>),
    #[error("{service} has not been upgraded from another version")]
    NoVersionBefore { service: String },
    #[error("an operation ended unexpectedly")]
    Task(#[source] tokio::task::JoinError),
}

fn lines(found: &[Incompatibility]) -> String {
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

impl From<UpgradeError> for Status {
    fn from(error: UpgradeError) -> Status {
        let text = polylet_kit::report(&error);
        match error {
            UpgradeError::UnknownService { .. }
            | UpgradeError::NoService
            | UpgradeError::RelativePath { .. }
            | UpgradeError::Timeout => Status::invalid_argument(text),
            UpgradeError::NoRun { .. } => Status::not_found(text),
            _ => Status::failed_precondition(text),
        }
    }
}
