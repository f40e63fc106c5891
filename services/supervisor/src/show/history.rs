//! `polylet history`.

use polylet_kit::Config;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use polylet_wire::supervisor::v1::{ListUpgradesRequest, UpgradeKind, UpgradeRecord};
use serde_json::{Value, json};

use super::upgrade_steps::word;
use crate::args::OutputFormat;
use crate::client::{self, ClientError};
use crate::core::text;
use crate::core::upgrade::starts_after::starts_in_words;
use crate::upgrade::starts_from_wire;

/// Prints upgrades and rollbacks, the latest last.
pub(crate) async fn show(config: &Config, output: OutputFormat) -> Result<(), ClientError> {
    let upgrades = upgrades(config).await?;
    if output == OutputFormat::Json {
        let list: Vec<Value> = upgrades.iter().map(as_json).collect();
        super::json(&json!({ "upgrades": list }));
        return Ok(());
    }
    let titles = [
        "RUN", "STARTED", "KIND", "SERVICE", "FROM", "TO", "RESULT", "CAUSE", "STARTS",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(upgrades.iter().map(row));
    super::print(&text::table(&rows));
    Ok(())
}

/// Upgrades and rollbacks, the latest last.
pub(super) async fn upgrades(config: &Config) -> Result<Vec<UpgradeRecord>, ClientError> {
    let supervisor = SupervisorServiceClient::new(client::connect(config, "supervisor")?);
    let list = || {
        let mut supervisor = supervisor.clone();
        async move { supervisor.list_upgrades(ListUpgradesRequest {}).await }
    };
    Ok(client::read("supervisor", list).await?.upgrades)
}

fn kind(upgrade: &UpgradeRecord) -> &'static str {
    match upgrade.kind() {
        UpgradeKind::Unspecified => "unknown",
        UpgradeKind::Upgrade => "upgrade",
        UpgradeKind::Rollback => "rollback",
    }
}

/// The result, or how far it is.
fn result(upgrade: &UpgradeRecord) -> String {
    let word = word(upgrade.step());
    match upgrade.finished_at {
        Some(_) => word.to_owned(),
        None => format!("in progress ({word})"),
    }
}

fn row(upgrade: &UpgradeRecord) -> Vec<String> {
    let resumed = if upgrade.resumed { ", resumed" } else { "" };
    let cause = if upgrade.cause.is_empty() {
        "-"
    } else {
        &upgrade.cause
    };
    let starts = starts_from_wire(upgrade.starts.clone()).ok();
    [
        upgrade.run.to_string(),
        client::time(upgrade.started_at.as_ref()),
        kind(upgrade).to_owned(),
        upgrade.service.clone(),
        upgrade.from_version.clone(),
        upgrade.to_version.clone(),
        format!("{}{resumed}", result(upgrade)),
        cause.to_owned(),
        starts.map_or_else(|| "-".to_owned(), |starts| starts_in_words(&starts)),
    ]
    .into()
}

fn as_json(upgrade: &UpgradeRecord) -> Value {
    json!({
        "run": upgrade.run,
        "kind": kind(upgrade),
        "service": upgrade.service,
        "fromVersion": upgrade.from_version,
        "toVersion": upgrade.to_version,
        "startedAt": client::time(upgrade.started_at.as_ref()),
        "finishedAt": client::time(upgrade.finished_at.as_ref()),
        "step": word(upgrade.step()),
        "cause": upgrade.cause,
        "resumed": upgrade.resumed,
        "starts": starts_from_wire(upgrade.starts.clone()).ok(),
    })
}
