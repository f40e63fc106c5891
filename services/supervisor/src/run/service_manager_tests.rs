use std::os::unix::fs::PermissionsExt;

use polylet_kit::listener;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::oneshot;

use super::*;
use crate::core::liveness::{EXIT_TIMEOUT, START_TIMEOUT};
use crate::core::restart::MIN_CLEAN_UPTIME;

/// A manager of one service, whose program is a shell script.
struct Fixture {
    dir: tempfile::TempDir,
    incoming: UnboundedReceiver<Input>,
    inputs: UnboundedSender<Input>,
}

impl Fixture {
    fn new() -> Fixture {
        let (inputs, incoming) = mpsc::unbounded_channel();
        let dir = tempfile::tempdir().unwrap();
        Fixture {
            dir,
            incoming,
            inputs,
        }
    }

    fn manager<'a>(&self, directory: &'a Path, script: &str) -> ServiceManager<'a> {
        let program = self.dir.path().join("polylet-pleg");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        let socket = ServiceSocket {
            listener: listener::bind(&directory.join("pleg.sock")).unwrap(),
            locked: None,
        };
        let config = Path::new("/nonexistent/config.yaml");
        let mut manager = ServiceManager::new(config, directory, self.inputs.clone(), None);
        manager.add("pleg", program, socket, directory).unwrap();
        manager.start_all();
        manager
    }

    /// Handles the next input.
    async fn step(&mut self, manager: &mut ServiceManager<'_>) {
        let input = self.incoming.recv().await.unwrap();
        manager.handle_input(input);
    }
}

fn pid(manager: &mut ServiceManager<'_>) -> Option<u32> {
    manager.entries[0]
        .running()
        .map(|running| running.child.pid)
}

fn conditions(manager: &ServiceManager<'_>) -> Vec<(String, String)> {
    let conditions = manager.entries[0].view().conditions.into_iter();
    conditions.map(|one| (one.reason, one.message)).collect()
}

#[tokio::test]
async fn a_service_that_never_gets_ready_is_killed_and_restarted() {
    let mut fixture = Fixture::new();
    let directory = fixture.dir.path().to_owned();
    let mut manager = fixture.manager(&directory, "exec sleep 600");
    let first = pid(&mut manager).unwrap();
    assert_eq!(conditions(&manager), []);
    let now = Instant::now();
    let left = deadlines::process_deadline(&manager)
        .unwrap()
        .duration_since(now);
    assert!(left <= START_TIMEOUT && left > START_TIMEOUT / 2);

    // As if the deadline had come, on time.
    let running = manager.entries[0].running().unwrap();
    running.liveness = Liveness::started(now.into_std() - START_TIMEOUT);
    deadlines::kill_unresponsive(&mut manager);
    while pid(&mut manager).is_none_or(|pid| pid == first) {
        fixture.step(&mut manager).await;
    }
    let expected = ("ServiceStartTimeout", "not ready within 90s");
    let expected = (expected.0.to_owned(), expected.1.to_owned());
    assert_eq!(conditions(&manager), [expected]);
    let view = manager.entries[0].view();
    assert_eq!((view.health, view.restarts), ("STARTING", 1));
    manager.kill_all(&mut fixture.incoming).await;
}

#[tokio::test]
async fn a_failing_service_is_named_with_its_own_error() {
    let mut fixture = Fixture::new();
    let directory = fixture.dir.path().to_owned();
    let mut manager = fixture.manager(&directory, "exit 70");
    while manager.entries[0].restarts.total() < 2 {
        fixture.step(&mut manager).await;
    }
    let message = NotifyMessage::Error("writing /x: no space left on device".to_owned());
    manager.handle_notify(0, message, None);
    let (reason, message) = conditions(&manager).remove(0);
    assert_eq!(reason, "ServiceFailing");
    let expected = "exit code 70: writing /x: no space left on device";
    assert_eq!(message, expected);
}

#[tokio::test]
async fn a_service_that_outlives_its_kill_is_named() {
    let mut fixture = Fixture::new();
    let directory = fixture.dir.path().to_owned();
    let mut manager = fixture.manager(&directory, "exec sleep 600");
    let running = manager.entries[0].running().unwrap();
    // The kill was a while ago, and the process is still there.
    let killed = std::time::Instant::now() - EXIT_TIMEOUT;
    running.liveness = Liveness::started(killed - START_TIMEOUT);
    running.liveness.expire(killed);
    deadlines::kill_unresponsive(&mut manager);
    let (reason, message) = conditions(&manager).remove(0);
    assert_eq!(reason, "ServiceNotExiting");
    assert!(
        message.contains("was killed but waits in the kernel"),
        "{message}"
    );
    assert_eq!(
        deadlines::process_deadline(&manager),
        None,
        "nothing is left to be done"
    );
    manager.kill_all(&mut fixture.incoming).await;
}

#[tokio::test]
async fn requested_restart_is_no_failure_and_starts_the_present_program() {
    let mut fixture = Fixture::new();
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'exit 0' TERM; while :; do sleep 0.01; done";
    let mut manager = fixture.manager(directory.path(), script);
    let before = pid(&mut manager).unwrap();
    let (response, mut started) = oneshot::channel();
    manager.handle_request(ChildRequest::Restart { at: 0, response });
    while started.try_recv().is_err() {
        fixture.step(&mut manager).await;
    }
    let after = pid(&mut manager).unwrap();
    assert_ne!(before, after);
    let view = manager.entries[0].view();
    assert_eq!((view.restarts, view.conditions.len()), (0, 0));
    // One that waits for its restart starts at once.
    manager.entries[0].phase = ServicePhase::BackOff {
        due: Instant::now(),
    };
    let (response, mut started) = oneshot::channel();
    manager.handle_request(ChildRequest::Restart { at: 0, response });
    assert!(started.try_recv().is_ok());
    manager.kill_all(&mut fixture.incoming).await;
}

#[tokio::test]
async fn the_next_process_starts_while_a_drained_one_ends() {
    let mut fixture = Fixture::new();
    let directory = fixture.dir.path().to_owned();
    let mut manager = fixture.manager(&directory, "exec sleep 600");
    let first = pid(&mut manager).unwrap();
    let notified = |message, pid| Input::Notified {
        at: 0,
        message,
        pid: Some(pid),
    };
    let drained = || notified(NotifyMessage::Drained(Duration::from_secs(600)), first);
    manager.handle_input(drained());
    let present = pid(&mut manager).unwrap();
    assert_eq!(present, first, "it has hardly run: it may do so again");

    let running = manager.entries[0].running().unwrap();
    running.since = running.since.checked_sub(MIN_CLEAN_UPTIME).unwrap();
    manager.handle_input(drained());
    let second = pid(&mut manager).unwrap();
    assert_ne!(second, first);
    assert_eq!(manager.entries[0].view().restarts, 1);
    let handed_over = handover::state(&manager);
    let left = &handed_over.services[0].predecessors;
    assert_eq!(left[0].pid, first);
    assert!(left[0].killed_in_ms > 500_000, "{left:?}");

    // What the old process says is not said by the new one.
    manager.handle_input(notified(NotifyMessage::Ready, first));
    assert_eq!(manager.entries[0].view().health, "STARTING");
    manager.handle_input(notified(NotifyMessage::Ready, second));
    assert_ne!(manager.entries[0].view().health, "STARTING");

    manager.handle_input(Input::PredecessorOverdue { at: 0, instance: 1 });
    while !manager.entries[0].predecessors.is_empty() {
        fixture.step(&mut manager).await;
    }
    assert_eq!(pid(&mut manager), Some(second));
    assert_eq!(manager.entries[0].view().restarts, 1);
    manager.kill_all(&mut fixture.incoming).await;
}

#[tokio::test]
async fn a_requested_restart_starts_the_next_process_when_the_present_one_has_drained() {
    let mut fixture = Fixture::new();
    let directory = fixture.dir.path().to_owned();
    let mut manager = fixture.manager(&directory, "trap '' TERM; exec sleep 600");
    let first = pid(&mut manager).unwrap();
    let (response, mut started) = oneshot::channel();
    manager.handle_request(ChildRequest::Restart { at: 0, response });
    assert!(started.try_recv().is_err());
    manager.handle_input(Input::Notified {
        at: 0,
        message: NotifyMessage::Drained(Duration::from_secs(600)),
        pid: Some(first),
    });
    assert!(started.try_recv().is_ok());
    assert_ne!(pid(&mut manager), Some(first));
    let view = manager.entries[0].view();
    assert_eq!((view.restarts, view.conditions.len()), (0, 0));
    // Both end with the supervisor.
    // Otherwise the killed one is restarted.
    manager.stopping = true;
    manager.kill_all(&mut fixture.incoming).await;
    // The kernel may take longer than the supervisor waits.
    while !manager.entries[0].has_ended() {
        fixture.step(&mut manager).await;
    }
}

#[tokio::test]
async fn a_drained_process_goes_on_only_beside_a_next_one() {
    for stopping in [true, false] {
        let mut fixture = Fixture::new();
        let directory = fixture.dir.path().to_owned();
        let mut manager = fixture.manager(&directory, "exec sleep 600");
        manager.stopping = stopping;
        let first = pid(&mut manager);
        manager.handle_input(Input::Notified {
            at: 0,
            message: NotifyMessage::Drained(Duration::from_secs(600)),
            pid: first,
        });
        // Nobody waits for it: it is asked to end.
        while pid(&mut manager) == first {
            fixture.step(&mut manager).await;
        }
        assert_eq!(manager.entries[0].predecessors.len(), 0);
        manager.kill_all(&mut fixture.incoming).await;
    }
}
