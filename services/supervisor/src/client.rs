//! The way from a command to a service's socket.

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use polylet_kit::{Config, Exit, report};
use polylet_wire::lifecycle::v1::GetInfoRequest;
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;

/// How long a command waits for an answer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// How long it waits for all pods with their manifests: that may be more than a hundred megabytes.
const LISTED: Duration = Duration::from_secs(60);

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("no node is running in {directory} ({service} does not listen there)")]
    NotRunning {
        directory: PathBuf,
        service: &'static str,
    },
    #[error("{directory} belongs to another user: try as root")]
    NotAllowed { directory: PathBuf },
    #[error("{service} does not answer: {message}")]
    Silent {
        service: &'static str,
        message: String,
    },
    #[error("{service} has nothing to tell yet: it waits for {peers}")]
    Waiting {
        service: &'static str,
        peers: String,
    },
    #[error("{0}")]
    NotFound(String),
    #[error("{what} cannot be read")]
    Unreadable {
        what: String,
        #[source]
        source: polylet_kit::BoxError,
    },
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
}

/// Runs a command to its end and tells how it went.
pub(crate) fn answer(command: impl Future<Output = Result<(), AskError>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let answered = match runtime {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => Err(AskError::Runtime(error)),
    };
    let Err(error) = answered else {
        return Exit::Ok.into();
    };
    eprintln!("polylet: {}", report(&error));
    match error {
        AskError::NotRunning { .. }
        | AskError::NotAllowed { .. }
        | AskError::Silent { .. }
        | AskError::Waiting { .. } => Exit::Unavailable,
        AskError::NotFound(_) => Exit::NotFound,
        AskError::Unreadable { .. } | AskError::Runtime(_) => Exit::Failed,
    }
    .into()
}

/// A transport to a service of the node, once it is known that somebody listens.
pub(crate) fn connect(
    config: &Config,
    service: &'static str,
) -> Result<tonic::transport::Channel, AskError> {
    let directory = config.polylet.run_directory.clone();
    let socket = directory.join(format!("{service}.sock"));
    match UnixStream::connect(&socket) {
        Ok(_) => Ok(polylet_kit::channel::plain(&socket)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(AskError::NotAllowed { directory })
        }
        Err(_) => Err(AskError::NotRunning { directory, service }),
    }
}

/// The answer of a call, in time.
pub(crate) async fn within<T>(
    service: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, AskError> {
    answered(DEADLINE, service, call).await
}

/// The same, of a list of all pods.
pub(crate) async fn listed<T>(
    service: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, AskError> {
    answered(LISTED, service, call).await
}

async fn answered<T>(
    deadline: Duration,
    service: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, AskError> {
    let silent = |message: String| AskError::Silent { service, message };
    match tokio::time::timeout(deadline, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) if status.code() == tonic::Code::NotFound => {
            Err(AskError::NotFound(status.message().to_owned()))
        }
        Ok(Err(status)) => Err(silent(status.message().to_owned())),
        Err(_) => Err(silent(format!("nothing within {deadline:?}"))),
    }
}

/// Why a service that is there says nothing: it may not have heard all its peers yet.
pub(crate) async fn explained(config: &Config, silent: AskError) -> AskError {
    let AskError::Silent { service, .. } = silent else {
        return silent;
    };
    let Ok(channel) = connect(config, service) else {
        return silent;
    };
    let mut lifecycle = LifecycleServiceClient::new(channel);
    let info = within(service, lifecycle.get_info(GetInfoRequest {})).await;
    let behind: Vec<String> = info
        .map(|info| info.peers.into_iter().filter(|peer| !peer.synced))
        .map(|behind| behind.map(|peer| peer.service).collect())
        .unwrap_or_default();
    match behind.is_empty() {
        true => silent,
        false => AskError::Waiting {
            service,
            peers: behind.join(", "),
        },
    }
}

/// A wire timestamp as text; empty when there is none.
pub(crate) fn time(at: Option<&prost_types::Timestamp>) -> String {
    polylet_wire::time::from_wire_opt(at)
        .map(|at| at.to_string())
        .unwrap_or_default()
}
