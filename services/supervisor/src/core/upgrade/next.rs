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
    /// Its process. Of the supervisor: the program in its process.
    pub process: ObservedProcess<'a>,
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

/// What is observed of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedProcess<'a> {
    /// Its manager could not be asked, and why.
    Unknown(&'a str),
    /// None runs.
    Absent,
    /// Identifies the one that runs.
    Running(&'a str),
}

impl<'a> ObservedProcess<'a> {
    /// Identifies the one that is known to run.
    pub fn id(self) -> Option<&'a str> {
        match self {
            ObservedProcess::Running(id) => Some(id),
            ObservedProcess::Unknown(_) | ObservedProcess::Absent => None,
        }
    }
}

/// How long a service has to be in step until it counts.
pub const STABLE_FOR: Duration = Duration::from_secs(1);
/// How long the restart of a service whose swap was given up is tried again.
pub const LAST_RESTART_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// Record, in the present stage, that neither version can be brought in step, and why.
    GiveUp(String),
    /// Record the end.
    Finish(UpgradeOutcome),
}

/// Decides the next step of a service; of the supervisor itself: `own`.
pub fn next(journal: &UpgradeJournal, seen: &SwapObservation<'_>) -> SwapAction {
    match &journal.stage {
        SwapStage::Drain => SwapAction::Drain,
        SwapStage::Activate
            if journal.given_up.is_some() || seen.active == Some(journal.target()) =>
        {
            match seen.process {
                ObservedProcess::Unknown(error) => on_unknown_process(journal, seen, error),
                process => SwapAction::Record(SwapStage::Restart {
                    process: process.id().map(str::to_owned),
                }),
            }
        }
        SwapStage::Activate => SwapAction::Activate,
        SwapStage::Restart { process } => match seen.process {
            ObservedProcess::Unknown(error) => on_unknown_process(journal, seen, error),
            ObservedProcess::Running(present) if Some(present) != process.as_deref() => {
                after_restart(journal)
            }
            _ => SwapAction::Restart,
        },
        SwapStage::Verify => match seen.verdict {
            StepVerdict::InStep if seen.in_step_for >= STABLE_FOR => finish(journal),
            _ => on_verdict(journal, seen),
        },
    }
}

/// What follows when the process has been replaced.
pub fn after_restart(journal: &UpgradeJournal) -> SwapAction {
    match &journal.given_up {
        None => SwapAction::Record(SwapStage::Verify),
        Some(cause) => SwapAction::Finish(UpgradeOutcome::Failed {
            cause: cause.clone(),
        }),
    }
}

/// Without the process from before, the next one cannot be told from it: the question is repeated.
fn on_unknown_process(
    journal: &UpgradeJournal,
    seen: &SwapObservation<'_>,
    error: &str,
) -> SwapAction {
    if journal.given_up.is_none() && !is_overdue(journal, seen) {
        return SwapAction::Wait;
    }
    let cause = format!("its process is unknown: {error}");
    on_failed_step(journal, seen.active, seen.stage_age, cause)
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

/// What follows when the activation or the restart failed. The process may be drained, and nobody else restarts it:
/// the swap does not end before it has been replaced. `active` is the version that the link names.
pub fn on_failed_step(
    journal: &UpgradeJournal,
    active: Option<&str>,
    stage_age: Duration,
    cause: String,
) -> SwapAction {
    match &journal.given_up {
        Some(_) if stage_age < LAST_RESTART_TIMEOUT => return SwapAction::Wait,
        Some(first) => {
            return SwapAction::Finish(UpgradeOutcome::Failed {
                cause: format!("{first}; it is drained and could not be restarted: {cause}"),
            });
        }
        None => {}
    }
    // The supervisor is not drained, and its link is changed last.
    if journal.swap.service == SUPERVISOR {
        return on_failure(journal, cause);
    }
    if has_never_run(journal, active) {
        return SwapAction::TurnBack(cause);
    }
    match on_failure(journal, cause) {
        SwapAction::Finish(UpgradeOutcome::Failed { cause }) => SwapAction::GiveUp(cause),
        action => action,
    }
}

/// Whether the new program has written nothing yet, so that the one before can be brought back in any case.
fn has_never_run(journal: &UpgradeJournal, active: Option<&str>) -> bool {
    journal.back.is_none()
        && journal.stage == SwapStage::Activate
        && active == Some(journal.swap.from.as_str())
}

/// What follows from a program that does not work.
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
pub(crate) mod tests;

#[cfg(test)]
#[path = "next_crash_tests.rs"]
mod crash_tests;
