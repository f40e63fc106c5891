use std::path::Path;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::backend::own::OwnRequest;
use crate::backend::{ChildRequest, ServiceState};
use crate::core::unit_state::UnitPhase;
use crate::core::upgrade::next::tests::journal_of;
use crate::upgrade::log::UpgradeHistory;

/// A driver in a directory in which version 1 of a service is active, and the requests to its service manager and
/// to its own process.
fn driver(
    directory: &Path,
    journal: UpgradeJournal,
) -> (
    UpgradeDriver,
    UnboundedReceiver<ChildRequest>,
    UnboundedReceiver<OwnRequest>,
) {
    let store = ProgramStore::new(directory.to_owned());
    let program = directory.join("program");
    std::fs::write(&program, "").unwrap();
    let service = &journal.swap.service;
    store.install(service, "1", &program).unwrap();
    store.activate(service, "1").unwrap();
    let (sender, requests) = unbounded_channel();
    let backend = Backend::Child(sender);
    let (sender, own_requests) = unbounded_channel();
    let own = OwnHandle::new(false, None, sender);
    let observer = UpgradeObserver::new(backend.clone(), own.clone(), directory);
    let log = UpgradeLog::open(directory).unwrap();
    let progress = ProgressSender::log_only();
    let driver = UpgradeDriver::new(backend, own, store, observer, log, progress, journal);
    (driver, requests, own_requests)
}

/// Answers requests with a process that is replaced on request. Returns the journals on disk at these moments.
async fn answer(
    directory: &Path,
    mut requests: UnboundedReceiver<ChildRequest>,
) -> Vec<UpgradeJournal> {
    let (mut pid, mut journals) = (u32::MAX, Vec::new());
    while let Some(request) = requests.recv().await {
        match request {
            ChildRequest::States(response) => {
                let state = ServiceState {
                    service: "pleg",
                    phase: UnitPhase::Starting,
                    pid: Some(pid),
                    started_at: None,
                    restarts: 0,
                    last_exit: String::new(),
                };
                let _ = response.send(vec![state]);
            }
            ChildRequest::Restart { response, .. } => {
                let log = UpgradeLog::open(directory).unwrap();
                journals.extend(log.history().current);
                pid -= 1;
                let _ = response.send(());
            }
        }
    }
    journals
}

#[tokio::test]
async fn a_drained_service_is_restarted_when_no_version_can_be_activated() {
    // Version 2 is not installed, so that it cannot be activated; on the way back nothing has to be.
    for (back, to, given_up, end) in [
        (
            None,
            "2",
            None,
            "does not exist; and after the rollback: pleg",
        ),
        (
            Some("x"),
            "1",
            Some("x; and after the rollback: "),
            "does not exist",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal_of("pleg", SwapStage::Activate);
        journal.swap.one_way = true;
        journal.timeout_ms = 1;
        journal.back = back.map(str::to_owned);
        to.clone_into(&mut journal.swap.to);
        if back.is_some() {
            "0".clone_into(&mut journal.swap.from);
        }
        let (driver, requests, _) = driver(dir.path(), journal);
        let log = driver.log.clone();
        let ((), journals) = tokio::join!(driver.run(), answer(dir.path(), requests));
        let [journal] = journals.as_slice() else {
            panic!("{journals:?}");
        };
        let found = journal.given_up.as_deref();
        assert_eq!(found.is_some(), given_up.is_some(), "{journal:?}");
        assert!(
            found
                .unwrap_or_default()
                .starts_with(given_up.unwrap_or_default())
        );
        let UpgradeHistory { current, records } = log.history();
        assert!(current.is_none());
        let UpgradeOutcome::Failed { cause } = &records[0].outcome else {
            panic!("{records:?}");
        };
        assert!(cause.contains(end), "{cause}");
    }
}

#[tokio::test]
async fn the_supervisor_is_not_replaced_without_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal_of("supervisor", SwapStage::Drain);
    let (driver, _requests, mut own_requests) = driver(dir.path(), journal);
    let log = driver.log.clone();
    // Nothing can replace a directory by a file.
    std::fs::create_dir(dir.path().join("upgrades.json")).unwrap();
    let requested = async {
        let mut requested = 0;
        while own_requests.recv().await.is_some() {
            requested += 1;
        }
        requested
    };
    let ((), requested) = tokio::join!(driver.run(), requested);
    assert_eq!(requested, 0);
    let UpgradeHistory { current, records } = log.history();
    assert!(current.is_none());
    let UpgradeOutcome::RolledBack { cause } = &records[0].outcome else {
        panic!("{records:?}");
    };
    assert!(cause.contains("could not be recorded"), "{cause}");
}
