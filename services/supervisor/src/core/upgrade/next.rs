//! The next step of an upgrade, from its journal and what is observed. After a crash it is decided anew from
//! the same facts, so every step may be repeated.

use std::time::Duration;

use super::in_step::StepVerdict;
use super::journal::{SwapStage, UpgradeJournal, UpgradeOutcome};
use crate::core::order::SUPERVISOR;

/// What is observed of the service whose program is swapped.
#[derive(Debug, Clone)]
pub struct SwapObservation<'a> {
    /// The version that its link names.
    pub active: Option<&'a str>,
    /// Identifies its process; `None` if none runs. Of the supervisor: the program in its process.
    pub process: Option<&'a str>,
    /// The version of the supervisor that observes; `None` if its file is none.
    pub own_version: Option<&'a str>,
    /// Why another program of the supervisor has returned to this one.
    pub refusal: Option<&'a str>,
    /// Whether it is in step.
    pub verdict: &'a StepVerdict,
    /// How long the present stage lasts, in this process of the supervisor.
    pub stage_age: Duration,
    /// How long it has been in step without interruption.
    pub in_step_for: Duration,
}

/// How long a service has to be in step until it counts.
pub const STABLE_FOR: Duration = Duration::from_secs(1);

/// A step. Whoever executes it writes the journal before the effect of the next stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwapAction {
    /// Drain the process, then record [`SwapStage::Activate`].
    Drain,
    /// Change the link to the target version.
    Activate,
    /// Replace the process, then record [`SwapStage::Verify`].
    Restart,
    /// Record a stage.
    Record(SwapStage),
    /// Look again later.
    Wait,
    /// Record that the version before is brought back, and why, with [`first_stage_back`].
    TurnBack(String),
    /// Record the end.
    Finish(UpgradeOutcome),
}

/// Decides the next step of a service; of the supervisor itself: `own`.
pub fn next(journal: &UpgradeJournal, seen: &SwapObservation<'_>) -> SwapAction {
    match &journal.stage {
        SwapStage::Drain => SwapAction::Drain,
        SwapStage::Activate if seen.active == Some(journal.target()) => {
            SwapAction::Record(SwapStage::Restart {
                process: seen.process.map(str::to_owned),
            })
        }
        SwapStage::Activate => SwapAction::Activate,
        SwapStage::Restart { process } => match seen.process {
            Some(present) if Some(present) != process.as_deref() => {
                SwapAction::Record(SwapStage::Verify)
            }
            _ => SwapAction::Restart,
        },
        SwapStage::Verify => match seen.verdict {
            StepVerdict::InStep if seen.in_step_for >= STABLE_FOR => finish(journal),
            _ => on_verdict(journal, seen),
        },
    }
}

/// The end of a swap whose target is in step.
pub(super) fn finish(journal: &UpgradeJournal) -> SwapAction {
    SwapAction::Finish(match &journal.back {
        None => UpgradeOutcome::Done,
        Some(cause) => UpgradeOutcome::RolledBack {
            cause: cause.clone(),
        },
    })
}

/// What follows from a verdict other than that it is in step for long enough.
pub(super) fn on_verdict(journal: &UpgradeJournal, seen: &SwapObservation<'_>) -> SwapAction {
    match seen.verdict {
        StepVerdict::Failing(cause) => on_failure(journal, cause.clone()),
        StepVerdict::Behind(what) if is_overdue(journal, seen) => {
            let timeout = Duration::from_millis(journal.timeout_ms);
            on_failure(journal, format!("{what} (within {timeout:?})"))
        }
        StepVerdict::InStep | StepVerdict::Behind(_) => SwapAction::Wait,
    }
}

fn is_overdue(journal: &UpgradeJournal, seen: &SwapObservation<'_>) -> bool {
    seen.stage_age >= Duration::from_millis(journal.timeout_ms)
}

/// The stage at which a version is brought back.
pub fn first_stage_back(journal: &UpgradeJournal) -> SwapStage {
    if journal.swap.service == SUPERVISOR {
        SwapStage::Drain
    } else {
        SwapStage::Activate
    }
}

/// What follows from a step that failed, or a program that does not work.
pub fn on_failure(journal: &UpgradeJournal, cause: String) -> SwapAction {
    match &journal.back {
        None if journal.swap.one_way => SwapAction::Finish(UpgradeOutcome::Failed {
            cause: format!("{cause}; there is no way back"),
        }),
        None => SwapAction::TurnBack(cause),
        Some(first) => SwapAction::Finish(UpgradeOutcome::Failed {
            cause: format!("{first}; and after the rollback: {cause}"),
        }),
    }
}

#[cfg(test)]
#[path = "next_tests.rs"]
pub(super) mod tests;
