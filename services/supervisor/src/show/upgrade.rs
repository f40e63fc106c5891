//! `polylet upgrade` and `polylet rollback`: one line per step.

use std::path::Path;
use std::time::Duration;

use polylet_kit::Config;
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::UpgradeStep;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use serde_json::json;
use tonic::{Code, Status, Streaming};

use crate::args::{OutputFormat, RollbackArgs, UpgradeArgs};
use crate::client::{self, ClientError};
use crate::core::order::SERVICES;

/// How long the steps of one service may take beside the time until it is in step.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// Upgrades one service or all.
pub(crate) async fn upgrade(
    config: &Config,
    args: UpgradeArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let programs = programs(&args)?;
    let mut supervisor = SupervisorServiceClient::new(client::connect(config, "supervisor")?);
    let request = wire::UpgradeRequest {
        programs,
        dry_run: args.dry_run,
        timeout: prost_types::Duration::try_from(args.timeout).ok(),
        one_way: args.one_way,
    };
    let steps = supervisor.upgrade(request).await;
    let mut steps = steps.map_err(|status| error(&status))?.into_inner();
    while let Some(step) = next(&mut steps, args.timeout).await? {
        print(step.progress.unwrap_or_default(), output);
    }
    Ok(())
}

/// Rolls back one service or all.
pub(crate) async fn roll_back(
    config: &Config,
    args: RollbackArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let mut supervisor = SupervisorServiceClient::new(client::connect(config, "supervisor")?);
    let request = wire::RollbackRequest {
        services: args.service.into_iter().collect(),
        dry_run: args.dry_run,
        timeout: prost_types::Duration::try_from(args.timeout).ok(),
    };
    let steps = supervisor.rollback(request).await;
    let mut steps = steps.map_err(|status| error(&status))?.into_inner();
    let mut nothing = true;
    while let Some(step) = next(&mut steps, args.timeout).await? {
        print(step.progress.unwrap_or_default(), output);
        nothing = false;
    }
    if nothing && output == OutputFormat::Text {
        super::print("nothing to roll back\n");
    }
    Ok(())
}

/// The programs that the arguments name.
fn programs(args: &UpgradeArgs) -> Result<Vec<wire::ServiceProgram>, ClientError> {
    if let Some(service) = &args.service {
        return Ok(vec![program(service, &args.to)?]);
    }
    let paths = SERVICES.map(|service| {
        let file = args.to.join(format!("polylet-{}", service.name));
        (service.name, file)
    });
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
        Code::FailedPrecondition | Code::InvalidArgument => ClientError::Refused(message),
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

fn print(progress: wire::UpgradeProgress, output: OutputFormat) {
    let word = word(progress.step());
    if output == OutputFormat::Json {
        let line = json!({
            "service": progress.service,
            "step": word,
            "message": progress.message,
        });
        super::print(&format!("{line}\n"));
        return;
    }
    let wire::UpgradeProgress {
        service, message, ..
    } = progress;
    super::print(&format!("{service}: {word}: {message}\n"));
}

/// The name of a step, also in the history.
pub(super) fn word(step: UpgradeStep) -> &'static str {
    match step {
        UpgradeStep::Unspecified => "unknown",
        UpgradeStep::Checked => "checked",
        UpgradeStep::Installed => "installed",
        UpgradeStep::Drained => "drained",
        UpgradeStep::Activated => "activated",
        UpgradeStep::Restarted => "restarted",
        UpgradeStep::Done => "done",
        UpgradeStep::RollingBack => "rolling back",
        UpgradeStep::RolledBack => "rolled back",
        UpgradeStep::Failed => "failed",
        UpgradeStep::Unchanged => "unchanged",
    }
}
