//! Wire types to domain types and back.

use std::path::PathBuf;
use std::time::Duration;

use polylet_wire::supervisor::v1 as wire;
use polylet_wire::time::to_wire;
use tonic::Status;

use super::log::UpgradeHistory;
use super::{DEFAULT_TIMEOUT, UpgradeOptions};
use crate::core::order::SUPERVISOR;
use crate::core::upgrade::journal::{
    StartComparison, SwapStage, UpgradeJournal, UpgradeKind, UpgradeOutcome, UpgradeRecord,
};

/// The longest text of a recorded comparison, in characters, and the most steps.
const MAX_TEXT: usize = 200;
const MAX_SLOWER: usize = 50;

pub(crate) fn upgrade_options(
    request: wire::UpgradeRequest,
) -> Result<(Vec<(String, PathBuf)>, UpgradeOptions), Status> {
    let options = UpgradeOptions {
        dry_run: request.dry_run,
        timeout: timeout(request.timeout)?,
        one_way: request.one_way,
    };
    let programs = request.programs.into_iter();
    let programs = programs.map(|program| (program.service, PathBuf::from(program.path)));
    Ok((programs.collect(), options))
}

pub(crate) fn rollback_options(
    request: wire::RollbackRequest,
) -> Result<(Vec<String>, UpgradeOptions), Status> {
    let options = UpgradeOptions {
        dry_run: request.dry_run,
        timeout: timeout(request.timeout)?,
        one_way: true,
    };
    Ok((request.services, options))
}

fn timeout(timeout: Option<prost_types::Duration>) -> Result<Duration, Status> {
    match timeout {
        None => Ok(DEFAULT_TIMEOUT),
        Some(timeout) => Duration::try_from(timeout)
            .map_err(|_| Status::invalid_argument("the timeout is negative")),
    }
}

pub(crate) fn history_to_wire(history: &UpgradeHistory) -> wire::ListUpgradesResponse {
    let ended = history.records.iter().map(record_to_wire);
    let current = history.current.iter().map(journal_to_wire);
    wire::ListUpgradesResponse {
        upgrades: ended.chain(current).collect(),
    }
}

fn record_to_wire(record: &UpgradeRecord) -> wire::UpgradeRecord {
    let (step, cause) = match &record.outcome {
        UpgradeOutcome::Done => (wire::UpgradeStep::Done, ""),
        UpgradeOutcome::RolledBack { cause } => (wire::UpgradeStep::RolledBack, cause.as_str()),
        UpgradeOutcome::Failed { cause } => (wire::UpgradeStep::Failed, cause.as_str()),
    };
    wire::UpgradeRecord {
        run: record.run,
        kind: kind_to_wire(record.kind).into(),
        service: record.service.clone(),
        from_version: record.from.clone(),
        to_version: record.to.clone(),
        started_at: Some(to_wire(record.started_at)),
        finished_at: Some(to_wire(record.finished_at)),
        step: step.into(),
        cause: cause.to_owned(),
        resumed: record.resumed,
        starts: record.starts.clone().map(starts_to_wire),
    }
}

fn journal_to_wire(journal: &UpgradeJournal) -> wire::UpgradeRecord {
    let is_own = journal.swap.service == SUPERVISOR;
    let step = match (&journal.back, &journal.stage) {
        (Some(_), _) => wire::UpgradeStep::RollingBack,
        // The link is changed last.
        (None, SwapStage::Restart { .. }) if is_own => wire::UpgradeStep::Installed,
        (None, SwapStage::Activate) if is_own => wire::UpgradeStep::Restarted,
        (None, SwapStage::Drain) => wire::UpgradeStep::Installed,
        (None, SwapStage::Activate) => wire::UpgradeStep::Drained,
        (None, SwapStage::Restart { .. }) => wire::UpgradeStep::Activated,
        (None, SwapStage::Verify) => wire::UpgradeStep::Restarted,
    };
    let cause = journal.given_up.as_ref().or(journal.back.as_ref());
    wire::UpgradeRecord {
        run: journal.run,
        kind: kind_to_wire(journal.kind).into(),
        service: journal.swap.service.clone(),
        from_version: journal.swap.from.clone(),
        to_version: journal.swap.to.clone(),
        started_at: Some(to_wire(journal.started_at)),
        finished_at: None,
        step: step.into(),
        cause: cause.cloned().unwrap_or_default(),
        resumed: journal.resumed,
        starts: None,
    }
}

pub(crate) fn starts_to_wire(starts: StartComparison) -> wire::StartComparison {
    let StartComparison {
        verdict,
        before,
        after,
        slower,
    } = starts;
    wire::StartComparison {
        verdict,
        before,
        after,
        slower,
    }
}

/// A comparison to be recorded; its texts are bounded, as whoever sends it may be any program.
pub(crate) fn starts_from_wire(
    starts: Option<wire::StartComparison>,
) -> Result<StartComparison, Status> {
    let starts = starts.ok_or_else(|| Status::invalid_argument("no comparison"))?;
    let bounded = |text: String| text.chars().take(MAX_TEXT).collect();
    Ok(StartComparison {
        verdict: bounded(starts.verdict),
        before: starts.before,
        after: starts.after,
        slower: starts
            .slower
            .into_iter()
            .take(MAX_SLOWER)
            .map(bounded)
            .collect(),
    })
}

fn kind_to_wire(kind: UpgradeKind) -> wire::UpgradeKind {
    match kind {
        UpgradeKind::Upgrade => wire::UpgradeKind::Upgrade,
        UpgradeKind::Rollback => wire::UpgradeKind::Rollback,
    }
}
