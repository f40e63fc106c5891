//! Carries out the steps of an upgrade, until its end.

use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::report;
use polylet_wire::supervisor::v1::UpgradeStep;
use tokio::time::Instant;
use tonic::Status;

use super::log::UpgradeLog;
use super::observe::UpgradeObserver;
use super::progress::ProgressSender;
use crate::backend::own::OwnHandle;
use crate::backend::programs::{ActiveProgram, ProgramStore, ProgramStoreError};
use crate::backend::{Backend, BackendError};
use crate::core::upgrade::in_step::{StepVerdict, excused_edges, judge};
use crate::core::upgrade::journal::{SwapStage, UpgradeJournal, UpgradeOutcome, obsolete_versions};
use crate::core::upgrade::next::{
    ObservedProcess, SwapAction, SwapObservation, after_restart, first_stage_back, next,
    on_failed_step,
};
use crate::core::upgrade::own;

/// The delay between two observations.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long the service manager may take to replace a process: it has its own deadlines for that.
const RESTART_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay between two attempts of a restart that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// An upgrade under way in this process.
pub(crate) struct UpgradeDriver {
    pub(crate) backend: Backend,
    pub(super) own: OwnHandle,
    pub(crate) store: ProgramStore,
    pub(crate) observer: UpgradeObserver,
    pub(crate) log: UpgradeLog,
    pub(crate) progress: ProgressSender,
    pub(crate) journal: UpgradeJournal,
    stage_started: Instant,
    in_step_since: Option<Instant>,
    /// Automatic restarts of the service before it was replaced.
    restarts: Option<u32>,
}

impl UpgradeDriver {
    pub(crate) fn new(
        backend: Backend,
        own: OwnHandle,
        store: ProgramStore,
        observer: UpgradeObserver,
        log: UpgradeLog,
        progress: ProgressSender,
        journal: UpgradeJournal,
    ) -> UpgradeDriver {
        UpgradeDriver {
            backend,
            own,
            store,
            observer,
            log,
            progress,
            journal,
            stage_started: Instant::now(),
            in_step_since: None,
            restarts: None,
        }
    }

    /// Carries out all swaps.
    pub(crate) async fn run(mut self) {
        while let Some(action) = self.decide().await {
            if !self.carry_out(action).await {
                return;
            }
        }
    }

    /// The next step; none while the supervisor stops: the next one continues.
    async fn decide(&mut self) -> Option<SwapAction> {
        let service = self.journal.swap.service.clone();
        let is_verifying = self.journal.stage == SwapStage::Verify;
        let verdict = if is_verifying {
            self.verdict(&service).await
        } else {
            StepVerdict::Behind(String::new())
        };
        if verdict != StepVerdict::InStep {
            self.in_step_since = None;
        } else if self.in_step_since.is_none() {
            self.in_step_since = Some(Instant::now());
        }
        let active = self.active_version();
        let process = self.observer.process(&service).await;
        if matches!(process, Err(BackendError::Stopping)) {
            return None;
        }
        let process = process.map_err(|error| report(&error));
        if let Err(error) = &process {
            tracing::warn!(error, "process of the service is unknown");
        }
        let own_version = self.own_version();
        let observation = SwapObservation {
            active: active.as_deref(),
            process: match &process {
                Ok(Some(id)) => ObservedProcess::Running(id),
                Ok(None) => ObservedProcess::Absent,
                Err(error) => ObservedProcess::Unknown(error),
            },
            own_version: own_version.as_deref(),
            refusal: self.own.refusal.as_deref(),
            verdict: &verdict,
            stage_age: self.stage_started.elapsed(),
            in_step_for: self.in_step_since.map_or(Duration::ZERO, |at| at.elapsed()),
        };
        Some(if self.is_own() {
            own::next(&self.journal, &observation)
        } else {
            next(&self.journal, &observation)
        })
    }

    /// The version that the link of the service names.
    fn active_version(&self) -> Option<String> {
        match self.store.active(&self.journal.swap.service) {
            Ok(ActiveProgram::Version(version)) => Some(version),
            Ok(ActiveProgram::File) | Err(_) => None,
        }
    }

    async fn verdict(&mut self, service: &str) -> StepVerdict {
        let services = match self.observer.services().await {
            Ok(services) => services,
            Err(error) => return StepVerdict::Behind(report(&error)),
        };
        let own = services.iter().find(|one| one.name == service);
        let present = own.map_or(0, |own| own.restarts);
        let restarts = *self.restarts.get_or_insert(present);
        judge(service, &services, &self.journal.excused, restarts)
    }

    /// Carries out a step; `false` at the end.
    async fn carry_out(&mut self, action: SwapAction) -> bool {
        match action {
            SwapAction::Wait => tokio::time::sleep(POLL_INTERVAL).await,
            SwapAction::Record(stage) => return self.enter(stage).await,
            SwapAction::Drain => return self.drain().await,
            SwapAction::Activate => return self.activate().await,
            SwapAction::Restart if self.is_own() => return self.replace_own().await,
            SwapAction::Restart => return self.restart().await,
            SwapAction::TurnBack(cause) => return self.turn_back(cause).await,
            SwapAction::GiveUp(cause) => return self.give_up(cause).await,
            SwapAction::Finish(outcome) => return self.finish(outcome).await,
        }
        true
    }

    pub(super) fn step(&self, step: UpgradeStep, message: &str) {
        self.progress
            .step(&self.journal.swap.service, step, message);
    }

    /// Records a stage, before its first effect; `false` at the end. Where that fails, as on a full disk, the upgrade
    /// goes on, after a crash from the recorded stage, unless that would have no end ([`own::on_unrecorded`]).
    async fn enter(&mut self, stage: SwapStage) -> bool {
        if self.journal.stage == SwapStage::Verify {
            self.end_deadline();
        }
        self.journal.stage = stage;
        self.stage_started = Instant::now();
        self.in_step_since = None;
        self.restarts = None;
        let Err(error) = self.log.record(&self.journal).await else {
            return true;
        };
        let error = report(&error);
        tracing::warn!(error, "stage of the upgrade is not recorded");
        match own::on_unrecorded(&self.journal, &error) {
            Some(outcome) => self.finish(outcome).await,
            None => true,
        }
    }

    async fn drain(&mut self) -> bool {
        let service = &self.journal.swap.service;
        let unfinished = self.observer.drain(service).await;
        let message = match unfinished.as_slice() {
            [] => "everything that was begun is finished".to_owned(),
            unfinished => format!("unfinished: {}", unfinished.join(", ")),
        };
        self.step(UpgradeStep::Drained, &message);
        self.enter(SwapStage::Activate).await
    }

    async fn activate(&mut self) -> bool {
        let service = self.journal.swap.service.clone();
        let version = self.journal.target().to_owned();
        let store = self.store.clone();
        let activation = {
            let version = version.clone();
            move || store.activate(&service, &version)
        };
        let activated = match tokio::task::spawn_blocking(activation).await {
            Ok(activated) => activated.map_err(|error| report(&error)),
            Err(error) => Err(error.to_string()),
        };
        match activated {
            Ok(()) => {
                let message = format!("{version} is the active version");
                self.step(UpgradeStep::Activated, &message);
                true
            }
            Err(cause) => self.fail(cause).await,
        }
    }

    async fn restart(&mut self) -> bool {
        let service = self.journal.swap.service.clone();
        let before = self.observer.restarts(&service).await;
        let restart = self.backend.restart(&service);
        let replaced = async {
            restart.await?;
            self.wait_for_another_process(&service).await
        };
        let restarted = match tokio::time::timeout(RESTART_TIMEOUT, replaced).await {
            // The next supervisor continues.
            Ok(Err(BackendError::Stopping)) => return false,
            Ok(restarted) => restarted.map_err(|error| report(&error)),
            Err(_) => Err(format!(
                "{service} was not restarted within {RESTART_TIMEOUT:?}"
            )),
        };
        match restarted {
            Ok(()) => self.on_restarted(before).await,
            Err(cause) => self.fail(cause).await,
        }
    }

    /// The process was replaced. `restarts` are the automatic ones before; `false` at the end.
    async fn on_restarted(&mut self, restarts: Option<u32>) -> bool {
        let active = self.active_version();
        let version = active.as_deref().unwrap_or(self.journal.target());
        let message = format!("{version} was started");
        self.step(UpgradeStep::Restarted, &message);
        match after_restart(&self.journal) {
            SwapAction::Finish(outcome) => self.finish(outcome).await,
            _ => {
                let goes_on = self.enter(SwapStage::Verify).await;
                self.restarts = restarts;
                goes_on
            }
        }
    }

    /// Returns when the process from before is gone: systemd only queues the restart.
    async fn wait_for_another_process(&self, service: &str) -> Result<(), BackendError> {
        let SwapStage::Restart {
            process: Some(before),
        } = &self.journal.stage
        else {
            return Ok(());
        };
        loop {
            match self.observer.process(service).await {
                Ok(process) if process.as_ref() != Some(before) => return Ok(()),
                Ok(_) => {}
                Err(BackendError::Stopping) => return Err(BackendError::Stopping),
                // The restart itself did not fail.
                Err(error) => {
                    tracing::warn!(error = report(&error), "process of the service is unknown");
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// What follows from a step that failed; `false` at the end.
    async fn fail(&mut self, cause: String) -> bool {
        tracing::warn!(error = cause, "step of the upgrade failed");
        let active = self.active_version();
        let stage_age = self.stage_started.elapsed();
        match on_failed_step(&self.journal, active.as_deref(), stage_age, cause) {
            SwapAction::Finish(outcome) => self.finish(outcome).await,
            SwapAction::TurnBack(cause) => self.turn_back(cause).await,
            SwapAction::GiveUp(cause) => self.give_up(cause).await,
            _ => {
                tokio::time::sleep(RETRY_DELAY).await;
                true
            }
        }
    }

    /// Records that all that is left is to restart the service, which may be drained; `false` at the end.
    async fn give_up(&mut self, cause: String) -> bool {
        self.journal.given_up = Some(cause);
        self.enter(self.journal.stage.clone()).await
    }

    /// Records that the version before is brought back; `false` at the end.
    async fn turn_back(&mut self, cause: String) -> bool {
        self.step(UpgradeStep::RollingBack, &cause);
        self.journal.back = Some(cause);
        self.enter(first_stage_back(&self.journal)).await
    }

    /// Records the end of the swap and begins the next one; `false` if there is none.
    pub(super) async fn finish(&mut self, outcome: UpgradeOutcome) -> bool {
        self.end_deadline();
        let record = self.journal.record(outcome.clone(), Timestamp::now());
        let next = match &outcome {
            UpgradeOutcome::Done => self.next_swap().await,
            UpgradeOutcome::RolledBack { .. } | UpgradeOutcome::Failed { .. } => None,
        };
        let service = self.journal.swap.service.clone();
        if let Err(error) = self.log.finish(record, next.clone()).await {
            tracing::warn!(error = report(&error), "end of the upgrade is not recorded");
        }
        let left = self.journal.queue.len();
        match outcome {
            UpgradeOutcome::Done => {
                let message = format!("{} is in step with its peers", self.journal.swap.to);
                self.step(UpgradeStep::Done, &message);
                self.remove_obsolete().await;
            }
            UpgradeOutcome::RolledBack { cause } => {
                let message = format!("{} runs again", self.journal.swap.from);
                self.step(UpgradeStep::RolledBack, &message);
                let text = format!("{service} was rolled back: {cause}{}", not_begun(left));
                self.progress.fail(Status::aborted(text));
            }
            UpgradeOutcome::Failed { cause } => {
                self.step(UpgradeStep::Failed, &cause);
                let text = format!("{service} is not in step: {cause}{}", not_begun(left));
                self.progress.fail(Status::aborted(text));
            }
        }
        let Some(next) = next else {
            return false;
        };
        self.journal = next;
        self.stage_started = Instant::now();
        self.in_step_since = None;
        self.restarts = None;
        true
    }

    /// Removes the versions of the service that are not needed any more.
    async fn remove_obsolete(&self) {
        let swap = &self.journal.swap;
        let (store, service, active) = (self.store.clone(), swap.service.clone(), swap.to.clone());
        let history = self.log.history().records;
        let removal = move || {
            let installed = store.versions(&service)?;
            for version in obsolete_versions(&history, &service, &active, &installed) {
                store.remove(&service, &version)?;
            }
            Ok::<_, ProgramStoreError>(())
        };
        // A panic is in the log.
        if let Ok(Err(error)) = tokio::task::spawn_blocking(removal).await {
            let error = report(&error);
            tracing::warn!(error, "obsolete versions could not be removed");
        }
    }

    /// The journal of the next swap of this run.
    async fn next_swap(&self) -> Option<UpgradeJournal> {
        let mut queue = self.journal.queue.clone();
        if queue.is_empty() {
            return None;
        }
        let swap = queue.remove(0);
        let excused = match self.observer.services().await {
            Ok(services) => excused_edges(&services),
            Err(_) => Vec::new(),
        };
        Some(UpgradeJournal {
            swap,
            queue,
            excused,
            started_at: Timestamp::now(),
            stage: SwapStage::Drain,
            back: None,
            given_up: None,
            ..self.journal.clone()
        })
    }
}

fn not_begun(left: usize) -> String {
    match left {
        0 => String::new(),
        left => format!("; {left} more services were not begun"),
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
