//! `polylet upgrade` and `polylet rollback`: one line per step.

use std::path::Path;
use std::time::Duration;

use polylet_kit::Config;
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use tonic::{Code, Status, Streaming};

use super::follow_upgrade::FollowedRun;
use super::starts_after::{GivenUp, StartWatch};
use super::upgrade_steps::STEP_TIMEOUT;
use crate::args::{OutputFormat, RollbackArgs, UpgradeArgs};
use crate::backend::programs::file_name;
use crate::client::{self, ClientError};
use crate::core::order::upgradable;

/// Upgrades one service or all.
pub(crate) async fn upgrade(
    config: &Config,
    args: UpgradeArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let programs = programs(&args)?;
    let watch = StartWatch::begin(config, &args, output).await?;
    let mut run = FollowedRun::begin(config, args.timeout, output).await?;
    let mut supervisor = SupervisorServiceClient::new(client::connect(config, "supervisor")?);
    let request = wire::UpgradeRequest {
        programs,
        dry_run: args.dry_run,
        timeout: prost_types::Duration::try_from(args.timeout).ok(),
        one_way: args.one_way,
    };
    let steps = supervisor.upgrade(request).await;
    let mut steps = steps.map_err(|status| error(&status))?.into_inner();
    let ended = loop {
        match next(&mut steps, args.timeout).await {
            Ok(Some(step)) => run.print(step.progress.unwrap_or_default()),
            ended => break ended.map(drop),
        }
    };
    let is_changed = run.end(ended).await?;
    let Some(watch) = watch else {
        return Ok(());
    };
    match watch.finish(is_changed).await? {
        None => Ok(()),
        Some(given_up) => give_up(config, args.timeout, given_up, output).await,
    }
}

/// Rolls back what was upgraded, as pods start more slowly: an error in any case.
async fn give_up(
    config: &Config,
    timeout: Duration,
    given_up: GivenUp,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let GivenUp { services, reason } = given_up;
    let request = wire::RollbackRequest {
        services,
        dry_run: false,
        timeout: prost_types::Duration::try_from(timeout).ok(),
    };
    roll_back_services(config, request, timeout, output).await?;
    Err(ClientError::FailedOn(format!(
        "rolled back, as starts of pods are {reason}"
    )))
}

/// Rolls back one service or all.
pub(crate) async fn roll_back(
    config: &Config,
    args: RollbackArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let request = wire::RollbackRequest {
        services: args.service.into_iter().collect(),
        dry_run: args.dry_run,
        timeout: prost_types::Duration::try_from(args.timeout).ok(),
    };
    roll_back_services(config, request, args.timeout, output).await
}

async fn roll_back_services(
    config: &Config,
    request: wire::RollbackRequest,
    timeout: Duration,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let mut run = FollowedRun::begin(config, timeout, output).await?;
    let mut supervisor = SupervisorServiceClient::new(client::connect(config, "supervisor")?);
    let steps = supervisor.rollback(request).await;
    let mut steps = steps.map_err(|status| error(&status))?.into_inner();
    let mut nothing = true;
    let ended = loop {
        match next(&mut steps, timeout).await {
            Ok(Some(step)) => run.print(step.progress.unwrap_or_default()),
            ended => break ended.map(drop),
        }
        nothing = false;
    };
    if nothing && ended.is_ok() && output == OutputFormat::Text {
        super::print("nothing to roll back\n");
    }
    run.end(ended).await.map(drop)
}

/// The programs that the arguments name.
fn programs(args: &UpgradeArgs) -> Result<Vec<wire::ServiceProgram>, ClientError> {
    if let Some(service) = &args.service {
        return Ok(vec![program(service, &args.to)?]);
    }
    let paths = upgradable().map(|service| (service, args.to.join(file_name(service))));
    let paths: Vec<_> = paths.collect();
    let missing: Vec<String> = paths
        .iter()
        .filter(|(_, path)| !path.is_file())
        .map(|(_, path)| path.display().to_string())
        .collect();
    if !missing.is_empty() {
        return Err(ClientError::NotFound(format!(
            "missing: {}",
            missing.join(", ")
        )));
    }
    let programs = paths.iter().map(|(name, path)| program(name, path));
    programs.collect()
}

fn program(service: &str, path: &Path) -> Result<wire::ServiceProgram, ClientError> {
    // Links stay: the supervisor reads them.
    let path = std::path::absolute(path).map_err(|source| ClientError::Read {
        what: path.display().to_string(),
        source: source.into(),
    })?;
    Ok(wire::ServiceProgram {
        service: service.to_owned(),
        path: path.to_string_lossy().into_owned(),
    })
}

async fn next<T>(steps: &mut Streaming<T>, timeout: Duration) -> Result<Option<T>, ClientError> {
    let timeout = timeout.saturating_mul(2) + STEP_TIMEOUT;
    match tokio::time::timeout(timeout, steps.message()).await {
        Ok(step) => step.map_err(|status| error(&status)),
        Err(_) => Err(ClientError::NoResponse {
            service: "supervisor",
            message: format!("no step within {timeout:?}"),
        }),
    }
}

fn error(status: &Status) -> ClientError {
    let message = status.message().to_owned();
    match status.code() {
        Code::FailedPrecondition | Code::InvalidArgument | Code::PermissionDenied => {
            ClientError::Refused(message)
        }
        Code::Aborted => ClientError::NotUpgraded(message),
        Code::Unimplemented => ClientError::NoResponse {
            service: "supervisor",
            message: "it is too old for this command".to_owned(),
        },
        _ => ClientError::NoResponse {
            service: "supervisor",
            message,
        },
    }
}
