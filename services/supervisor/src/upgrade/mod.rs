//! Upgrades and rollbacks of the services' programs, one at a time.
//!
//! A program is checked (`prepare`), installed beside the one that runs, and swapped for it (`driver`): the
//! process drains, the link is changed, the process is replaced, and has to become healthy and in step with
//! its peers, or the version before is brought back. Each stage is on disk (`log`) before its first effect,
//! so that another supervisor continues after a crash; what comes next is decided in `core::upgrade`.
//! The supervisor's own program is replaced in its process (`own`); the new one continues the upgrade.

mod convert;
mod describe;
mod driver;
mod error;
pub(crate) mod log;
mod observe;
mod own;
mod prepare;
mod progress;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use jiff::Timestamp;
use polylet_kit::state_file::StateFileError;
use polylet_wire::supervisor::v1::UpgradeProgress;
use tokio::sync::OwnedMutexGuard;
use tonic::Status;

pub(crate) use convert::{
    history_to_wire, rollback_options, starts_from_wire, starts_to_wire, upgrade_options,
};
pub(crate) use error::UpgradeError;

use self::driver::UpgradeDriver;
use self::log::{UpgradeHistory, UpgradeLog};
use self::observe::UpgradeObserver;
use self::prepare::known_service;
use self::progress::ProgressSender;
use crate::backend::own::OwnHandle;
use crate::backend::programs::ProgramStore;
use crate::backend::{Backend, BackendError};
use crate::core::order::SUPERVISOR;
use crate::core::upgrade::in_step::excused_edges;
use crate::core::upgrade::journal::{
    ProgramSwap, StartComparison, SwapStage, UpgradeJournal, UpgradeKind,
};
use crate::handover::set_alarm;

/// How long a new process may take to be in step, unless the caller says.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The bounds of that time.
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

/// The steps of an upgrade as they happen.
pub(crate) type UpgradeSteps = UnboundedReceiver<Result<UpgradeProgress, Status>>;

/// What an upgrade or a rollback is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpgradeOptions {
    /// Check only.
    pub(crate) dry_run: bool,
    /// How long each new process may take to be in step.
    pub(crate) timeout: Duration,
    /// Accept that there is no way back.
    pub(crate) one_way: bool,
}

/// Upgrades of this node. Clones share one place: a second upgrade is refused while one is under way.
#[derive(Clone)]
pub(crate) struct Upgrades {
    backend: Backend,
    own: OwnHandle,
    store: ProgramStore,
    run_directory: PathBuf,
    log: Result<UpgradeLog, Arc<StateFileError>>,
    running: Arc<tokio::sync::Mutex<()>>,
}

impl Upgrades {
    /// Reads the history below `state_directory`. Blocks.
    pub(crate) fn open(
        backend: Backend,
        own: OwnHandle,
        programs: PathBuf,
        run_directory: &Path,
        state_directory: &Path,
    ) -> Upgrades {
        let log = UpgradeLog::open(&state_directory.join("supervisor")).map_err(Arc::new);
        if let Err(error) = &log {
            let error = polylet_kit::report(error);
            tracing::error!(
                error,
                "history of upgrades cannot be read; none is accepted"
            );
        }
        Upgrades {
            backend,
            own,
            store: ProgramStore::new(programs),
            run_directory: run_directory.to_owned(),
            log,
            running: Arc::default(),
        }
    }

    /// Continues an upgrade that the end of another supervisor interrupted. Needs the tokio runtime.
    pub(crate) fn resume(&self) {
        let Ok(log) = &self.log else { return };
        let current = log.history().current;
        let is_own = |journal: &UpgradeJournal| journal.swap.service == SUPERVISOR;
        if self.own.continued && !current.as_ref().is_some_and(is_own) {
            // Nothing is left to be shown by this program.
            set_alarm(Duration::ZERO);
        }
        let Some(mut journal) = current else {
            return;
        };
        let Ok(place) = self.running.clone().try_lock_owned() else {
            return;
        };
        tracing::info!(
            service = journal.swap.service,
            stage = ?journal.stage,
            back = journal.back,
            "continuing an upgrade"
        );
        // The program of the supervisor was replaced as intended.
        journal.resumed |= !self.own.continued;
        self.drive(place, log.clone(), ProgressSender::log_only(), journal);
    }

    /// The journal and the records.
    pub(crate) fn history(&self) -> Result<UpgradeHistory, UpgradeError> {
        Ok(self.log()?.history())
    }

    /// Adds to the history how pods have started since a run.
    pub(crate) async fn record_starts(
        &self,
        run: u64,
        starts: StartComparison,
    ) -> Result<(), UpgradeError> {
        let recorded = self.log()?.record_starts(run, starts).await;
        match recorded.map_err(|source| UpgradeError::RecordStarts { run, source })? {
            true => Ok(()),
            false => Err(UpgradeError::NoRun { run }),
        }
    }

    /// Upgrades services to programs in files, callees first.
    pub(crate) fn upgrade(
        &self,
        programs: Vec<(String, PathBuf)>,
        options: UpgradeOptions,
    ) -> UpgradeSteps {
        self.start(move |upgrades, progress| async move {
            let mut requested = Vec::with_capacity(programs.len());
            for (service, path) in programs {
                if !path.is_absolute() {
                    return Err(UpgradeError::RelativePath { path });
                }
                requested.push((known_service(&service)?, path));
            }
            if requested.is_empty() {
                return Err(UpgradeError::NoService);
            }
            let place = upgrades.claim(&options)?;
            let store = &upgrades.store;
            let programs =
                prepare::check_upgrade(store, &upgrades.own, requested, options.one_way, &progress)
                    .await?;
            if options.dry_run {
                return Ok(());
            }
            let (store, sender) = (store.clone(), progress.clone());
            let history = upgrades.log()?.history().records;
            let install = move || prepare::install_all(&store, &programs, &history, &sender);
            let swaps = tokio::task::spawn_blocking(install).await;
            let swaps = swaps.map_err(UpgradeError::Task)??;
            upgrades
                .begin(place, UpgradeKind::Upgrade, swaps, options, progress)
                .await
        })
    }

    /// Brings back the programs from before the last upgrades, callers first; without services, of all that
    /// were upgraded.
    pub(crate) fn roll_back(&self, services: Vec<String>, options: UpgradeOptions) -> UpgradeSteps {
        self.start(move |upgrades, progress| async move {
            let requested: Result<Vec<_>, _> = services
                .iter()
                .map(|service| known_service(service))
                .collect();
            let place = upgrades.claim(&options)?;
            let history = upgrades.log()?.history().records;
            let (store, own) = (&upgrades.store, &upgrades.own);
            let swaps =
                prepare::check_rollback(store, own, &history, &requested?, &progress).await?;
            if options.dry_run {
                return Ok(());
            }
            upgrades
                .begin(place, UpgradeKind::Rollback, swaps, options, progress)
                .await
        })
    }

    /// Runs to its end, also without the caller.
    fn start<F>(&self, upgrade: impl FnOnce(Upgrades, ProgressSender) -> F) -> UpgradeSteps
    where
        F: Future<Output = Result<(), UpgradeError>> + Send + 'static,
    {
        let (sender, steps) = unbounded();
        let progress = ProgressSender::new(sender);
        let upgrade = upgrade(self.clone(), progress.clone());
        tokio::spawn(async move {
            if let Err(error) = upgrade.await {
                progress.fail(error.into());
            }
        });
        steps
    }

    fn log(&self) -> Result<&UpgradeLog, UpgradeError> {
        let log = self.log.as_ref();
        log.map_err(|error| UpgradeError::History(error.clone()))
    }

    /// The place of the one upgrade at a time.
    fn claim(&self, options: &UpgradeOptions) -> Result<OwnedMutexGuard<()>, UpgradeError> {
        if matches!(self.backend, Backend::External) {
            return Err(UpgradeError::NotManaged(BackendError::External));
        }
        if !TIMEOUTS.contains(&options.timeout) {
            return Err(UpgradeError::Timeout);
        }
        let place = self.running.clone().try_lock_owned();
        place.map_err(|_| UpgradeError::InProgress)
    }

    /// Records the beginning and starts the first swap.
    async fn begin(
        &self,
        place: OwnedMutexGuard<()>,
        kind: UpgradeKind,
        mut swaps: Vec<ProgramSwap>,
        options: UpgradeOptions,
        progress: ProgressSender,
    ) -> Result<(), UpgradeError> {
        if swaps.is_empty() {
            return Ok(());
        }
        let log = self.log()?;
        let last = log.history().records.last().map_or(0, |record| record.run);
        let observer = self.observer();
        let journal = UpgradeJournal {
            run: last + 1,
            kind,
            timeout_ms: u64::try_from(options.timeout.as_millis()).unwrap_or(u64::MAX),
            swap: swaps.remove(0),
            queue: swaps,
            started_at: Timestamp::now(),
            stage: SwapStage::Drain,
            back: None,
            given_up: None,
            excused: excused_edges(&observer.services().await?),
            resumed: false,
        };
        log.begin(&journal).await.map_err(UpgradeError::Record)?;
        self.drive(place, log.clone(), progress, journal);
        Ok(())
    }

    fn observer(&self) -> UpgradeObserver {
        UpgradeObserver::new(self.backend.clone(), self.own.clone(), &self.run_directory)
    }

    fn drive(
        &self,
        place: OwnedMutexGuard<()>,
        log: UpgradeLog,
        progress: ProgressSender,
        journal: UpgradeJournal,
    ) {
        let observer = self.observer();
        let (backend, own, store) = (self.backend.clone(), self.own.clone(), self.store.clone());
        let driver = UpgradeDriver::new(backend, own, store, observer, log, progress, journal);
        tokio::spawn(async move {
            driver.run().await;
            drop(place);
        });
    }
}
