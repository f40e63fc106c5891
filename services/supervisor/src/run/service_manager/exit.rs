//! What follows when a service's process exits, or is to be restarted.

use std::process::ExitStatus;
use std::time::Duration;

use polylet_kit::Exit;
use rustix::process::Signal;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{LOCKED, STOP_TIMEOUT, ServiceManager};
use crate::run::child;
use crate::run::input::Input;
use crate::run::table::ServicePhase;

/// Condition of a service that exits.
const FAILING: &str = "ServiceFailing";

/// Stops a service for its restart, which follows its exit. One that waits to be restarted starts now.
pub(super) fn restart(manager: &mut ServiceManager<'_>, at: usize, response: oneshot::Sender<()>) {
    let inputs = manager.inputs.clone();
    let Some(entry) = manager.entries.get_mut(at).filter(|_| !manager.stopping) else {
        return;
    };
    let instance = entry.instance;
    let is_running = entry.is_running();
    entry.restart_requests.push(response);
    if !is_running {
        manager.start(at);
        return;
    }
    if let Some(running) = manager.running(at) {
        running.child.signal(Signal::TERM);
    }
    tokio::spawn(async move {
        tokio::time::sleep(STOP_TIMEOUT).await;
        let _ = inputs.send(Input::StopOverdue { at, instance });
    });
}

pub(super) fn handle_exit(
    manager: &mut ServiceManager<'_>,
    at: usize,
    status: std::io::Result<ExitStatus>,
) {
    let stopping = manager.stopping;
    let Some(entry) = manager.entries.get_mut(at) else {
        return;
    };
    let mut uptime = Duration::ZERO;
    let mut pid = 0;
    let mut expiry = None;
    if let ServicePhase::Running(running) =
        std::mem::replace(&mut entry.phase, ServicePhase::Stopped)
    {
        running.tasks.iter().for_each(|task| task.abort());
        // One that never became ready does not end a series of failures, however long it took.
        if running.liveness.has_been_ready() {
            uptime = running.since.elapsed();
        }
        pid = running.child.pid;
        expiry = running.expiry;
    }
    let locked = matches!(&status, Ok(status) if status.code() == Some(Exit::Locked as i32));
    let clean = status.as_ref().is_ok_and(ExitStatus::success);
    let reason = match status {
        Ok(status) => child::describe_exit(status),
        Err(error) => format!("failed to start: {error}"),
    };
    entry.last_exit.clone_from(&reason);
    if stopping {
        tracing::info!(service = entry.name, pid, reason, "service exited");
        return;
    }
    entry.forget_failure(uptime);
    if !entry.restart_requests.is_empty() {
        tracing::info!(
            service = entry.name,
            pid,
            reason,
            "service exited; restarting it as requested"
        );
        manager.start(at);
        return;
    }
    match expiry {
        Some(expiry) => entry.fail(expiry.condition(), expiry.describe()),
        None if locked => entry.fail(LOCKED, "another process holds its lock".to_owned()),
        None => entry.fail(FAILING, reason.clone()),
    }
    let delay = entry.restarts.next_delay(uptime, clean);
    entry.phase = ServicePhase::BackOff {
        due: Instant::now() + delay,
    };
    tracing::warn!(
        service = entry.name,
        pid,
        reason,
        retry_in = ?delay,
        "service exited; restarting"
    );
    restart_after(manager, at, delay);
}

/// Restarts a service that waits for it.
pub(super) fn restart_after(manager: &ServiceManager<'_>, at: usize, delay: Duration) {
    let Some(entry) = manager.entries.get(at) else {
        return;
    };
    let (instance, inputs) = (entry.instance, manager.inputs.clone());
    if delay.is_zero() {
        let _ = inputs.send(Input::RestartDue { at, instance });
        return;
    }
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        let _ = inputs.send(Input::RestartDue { at, instance });
    });
}
