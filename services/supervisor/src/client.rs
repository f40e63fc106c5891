//! Calls of commands to the services' sockets.

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use polylet_kit::{Config, Exit, report};
use polylet_wire::lifecycle::v1::GetInfoRequest;
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;

use crate::core::order;

/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a list of pods: all of them with their manifests may exceed a hundred megabytes.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("Polylet is not running in {directory} ({service} is not listening)")]
    NotRunning {
        directory: PathBuf,
        service: &'static str,
    },
    #[error("permission denied on {directory}; run as root")]
    PermissionDenied { directory: PathBuf },
    #[error("{service} did not respond: {message}")]
    NoResponse {
        service: &'static str,
        message: String,
    },
    #[error("{service} has not synced yet; waiting for {peers}")]
    NotSynced {
        service: &'static str,
        peers: String,
    },
    #[error("{0}")]
    NotFound(String),
    #[error("refused: {0}")]
    Refused(String),
    #[error("{0}")]
    NotUpgraded(String),
    #[error("reading {what}")]
    Read {
        what: String,
        #[source]
        source: polylet_kit::BoxError,
    },
    #[error("{0}")]
    InvalidData(String),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    FailedOn(String),
    #[error("writing {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
}

/// Runs a command, prints its error, and returns its exit code.
pub(crate) fn run(command: impl Future<Output = Result<(), ClientError>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => Err(ClientError::Runtime(error)),
    };
    let Err(error) = result else {
        return Exit::Ok.into();
    };
    eprintln!("polylet: {}", report(&error));
    match error {
        ClientError::NotRunning { .. }
        | ClientError::PermissionDenied { .. }
        | ClientError::NoResponse { .. }
        | ClientError::NotSynced { .. } => Exit::Unavailable,
        ClientError::NotFound(_) => Exit::NotFound,
        ClientError::InvalidData(_) => Exit::Data,
        ClientError::Usage(_) => Exit::Usage,
        ClientError::FailedOn(_) => Exit::FailedOn,
        ClientError::Read { .. }
        | ClientError::Write { .. }
        | ClientError::Runtime(_)
        | ClientError::Refused(_)
        | ClientError::NotUpgraded(_) => Exit::Failed,
    }
    .into()
}

/// The service of a name that somebody typed, or the supervisor.
pub(crate) fn known_service(name: &str) -> Result<&'static str, ClientError> {
    order::program_name(name).ok_or_else(|| {
        let known: Vec<_> = order::upgradable().collect();
        let known = known.join(", ");
        ClientError::NotFound(format!("unknown service {name:?}; known are {known}"))
    })
}

/// A channel to a service, if it is listening.
pub(crate) fn connect(
    config: &Config,
    service: &'static str,
) -> Result<tonic::transport::Channel, ClientError> {
    let directory = config.polylet.run_directory.clone();
    let socket = directory.join(format!("{service}.sock"));
    match UnixStream::connect(&socket) {
        Ok(_) => Ok(polylet_kit::channel::unix(&socket)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(ClientError::PermissionDenied { directory })
        }
        Err(_) => Err(ClientError::NotRunning { directory, service }),
    }
}

/// A channel to a peer that the command line declares to call, if it is listening and serves what this
/// build needs.
pub(crate) async fn connect_to_peer(
    config: &Config,
    service: &'static str,
) -> Result<tonic::transport::Channel, ClientError> {
    let channel = connect(config, service)?;
    let check = polylet_kit::check_peer(&channel, service, crate::DESCRIPTOR.calls);
    let no_response = |message| ClientError::NoResponse { service, message };
    match tokio::time::timeout(TIMEOUT, check).await {
        Ok(Ok(())) => Ok(channel),
        Ok(Err(status)) if status.code() == tonic::Code::FailedPrecondition => {
            Err(ClientError::Refused(status.message().to_owned()))
        }
        Ok(Err(status)) => Err(no_response(status.message().to_owned())),
        Err(_) => Err(no_response(format!("timed out after {TIMEOUT:?}"))),
    }
}

/// Waits for the response to a call.
pub(crate) async fn call<T>(
    service: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, ClientError> {
    call_with_timeout(TIMEOUT, service, call).await
}

/// The same for a call that only reads: it is repeated once if its connection was lost, as when it was accepted
/// just before the supervisor's program was replaced.
pub(crate) async fn read<T, F>(
    service: &'static str,
    attempt: impl Fn() -> F,
) -> Result<T, ClientError>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    use tonic::Code::{Cancelled, Unavailable, Unknown};
    let repeated = async {
        match attempt().await {
            Err(status) if matches!(status.code(), Cancelled | Unavailable | Unknown) => {
                attempt().await
            }
            response => response,
        }
    };
    call(service, repeated).await
}

/// The same for a list of pods.
pub(crate) async fn list<T>(
    service: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, ClientError> {
    call_with_timeout(LIST_TIMEOUT, service, call).await
}

async fn call_with_timeout<T>(
    timeout: Duration,
    service: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, ClientError> {
    let no_response = |message: String| ClientError::NoResponse { service, message };
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) if status.code() == tonic::Code::NotFound => {
            Err(ClientError::NotFound(status.message().to_owned()))
        }
        Ok(Err(status)) if status.code() == tonic::Code::Unimplemented => Err(
            ClientError::Refused(format!("{service} is older than this command; upgrade it")),
        ),
        Ok(Err(status)) => Err(no_response(status.message().to_owned())),
        Err(_) => Err(no_response(format!("timed out after {timeout:?}"))),
    }
}

/// Names the peers that a service waits for, if that is why it did not respond.
pub(crate) async fn explain(config: &Config, error: ClientError) -> ClientError {
    let ClientError::NoResponse { service, .. } = error else {
        return error;
    };
    let Ok(channel) = connect(config, service) else {
        return error;
    };
    let mut lifecycle = LifecycleServiceClient::new(channel);
    let info = call(service, lifecycle.get_info(GetInfoRequest {})).await;
    let unsynced: Vec<String> = info
        .map(|info| info.peers.into_iter().filter(|peer| !peer.synced))
        .map(|unsynced| unsynced.map(|peer| peer.service).collect())
        .unwrap_or_default();
    if unsynced.is_empty() {
        return error;
    }
    ClientError::NotSynced {
        service,
        peers: unsynced.join(", "),
    }
}

/// A wire timestamp as text; empty if there is none.
pub(crate) fn time(at: Option<&prost_types::Timestamp>) -> String {
    polylet_wire::time::from_wire_opt(at)
        .map(|at| at.to_string())
        .unwrap_or_default()
}
