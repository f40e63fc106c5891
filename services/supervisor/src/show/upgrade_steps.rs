//! The steps of an upgrade in words.

use std::time::Duration;

use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::UpgradeStep;
use serde_json::json;

use crate::args::OutputFormat;

/// How long the steps of one service may take beside the time until it is in step.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// Prints a step.
pub(super) fn print(progress: &wire::UpgradeProgress, output: OutputFormat) {
    let word = word(progress.step());
    let wire::UpgradeProgress {
        service, message, ..
    } = progress;
    if output == OutputFormat::Json {
        let line = json!({
            "service": service,
            "step": word,
            "message": message,
        });
        super::print(&format!("{line}\n"));
        return;
    }
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
