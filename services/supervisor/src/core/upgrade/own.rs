//! The next step where the supervisor itself is upgraded. The new program continues in its process, so that the
//! services, which are its children, keep running. The link names the version before until the new one has
//! shown that it works: whoever starts the supervisor after a crash starts a program that does, and that one
//! finds in the journal that the other did not.

use super::in_step::StepVerdict;
use super::journal::{SwapStage, UpgradeJournal, UpgradeOutcome};
use super::next::{STABLE_FOR, SwapAction, SwapObservation, finish, on_failure, on_verdict};
use crate::core::order::SUPERVISOR;

/// Decides the next step.
pub fn next(journal: &UpgradeJournal, seen: &SwapObservation<'_>) -> SwapAction {
    let runs_target = seen.own_version == Some(journal.target());
    match &journal.stage {
        // It was never left, or was started without a record, as by earlier builds.
        SwapStage::Drain if runs_target => SwapAction::Record(SwapStage::Verify),
        SwapStage::Drain => SwapAction::Record(SwapStage::Restart {
            process: seen.process.id().map(str::to_owned),
        }),
        SwapStage::Restart { process } if seen.process.id() == process.as_deref() => {
            // It has never left the program that it goes back to.
            if journal.back.is_some() && runs_target {
                SwapAction::Record(SwapStage::Verify)
            } else {
                SwapAction::Restart
            }
        }
        SwapStage::Activate if seen.active == Some(journal.target()) => finish(journal),
        _ if !runs_target => ended(journal, seen),
        SwapStage::Restart { .. } => SwapAction::Record(SwapStage::Verify),
        SwapStage::Activate => SwapAction::Activate,
        SwapStage::Verify => match seen.verdict {
            StepVerdict::InStep if seen.in_step_for >= STABLE_FOR => {
                SwapAction::Record(SwapStage::Activate)
            }
            _ => match on_verdict(journal, seen) {
                // What it has written cannot be read by the one before.
                SwapAction::Finish(UpgradeOutcome::Failed { .. })
                    if seen.active != Some(journal.target()) =>
                {
                    SwapAction::Activate
                }
                action => action,
            },
        },
    }
}

/// The target ended, or refused to continue, and this program was started instead.
fn ended(journal: &UpgradeJournal, seen: &SwapObservation<'_>) -> SwapAction {
    let target = journal.target();
    let cause = match (&journal.back, seen.refusal) {
        (Some(cause), _) => cause.clone(),
        (None, Some(refusal)) => refusal.to_owned(),
        (None, None) => format!("the supervisor ended before {target} was in step"),
    };
    SwapAction::Finish(UpgradeOutcome::RolledBack { cause })
}

/// What follows when the process could not be replaced.
pub fn on_refusal(journal: &UpgradeJournal, cause: String) -> SwapAction {
    match &journal.back {
        // Nothing has changed.
        None => SwapAction::Finish(UpgradeOutcome::RolledBack { cause }),
        Some(_) => on_failure(journal, cause),
    }
}

/// The end of the swap if its present stage could not be recorded; `None`: it goes on, and is continued after a
/// crash from the stage that is recorded.
///
/// The new program is not started without a record of [`SwapStage::Restart`]: if it ended or refused, the one
/// before would find the stage before that, and start it again, without end. Other services do not choose their
/// program.
pub fn on_unrecorded(journal: &UpgradeJournal, cause: &str) -> Option<UpgradeOutcome> {
    match (&journal.stage, &journal.back) {
        // Nothing has changed.
        (SwapStage::Restart { .. }, None) if journal.swap.service == SUPERVISOR => {
            Some(UpgradeOutcome::RolledBack {
                cause: format!("the replacement of the supervisor could not be recorded: {cause}"),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "own_tests.rs"]
mod tests;
