//! Processes that end while the next ones of their services have been started.
//!
//! A process that has drained does nothing but close its connections and exit, or carry streams of clients to
//! their end. The next one is started meanwhile, and waits for the service's lock: calls wait for the end of the
//! one and for the lock, not for the start of a program.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use super::ServiceManager;
use crate::core::handover::PredecessorHandover;
use crate::core::restart::MIN_CLEAN_UPTIME;
use crate::run::child::{self, ChildHandle};
use crate::run::input::Input;
use crate::run::table::{Predecessor, ServiceEntry, ServicePhase};

/// How many may end at once; the oldest is killed for one more.
const MAX_PREDECESSORS: usize = 4;
/// How long one may take at most, whatever it says.
const LONGEST_END: Duration = Duration::from_secs(24 * 60 * 60);

/// Starts the next process of a service whose present one has drained and ends within `ends_within`. One that
/// has hardly run is restarted after its exit, with the delay of those that fail.
pub(super) fn replace_drained(manager: &mut ServiceManager<'_>, at: usize, ends_within: Duration) {
    let stopping = manager.stopping;
    let Some(entry) = manager.entries.get_mut(at) else {
        return;
    };
    let is_requested = !entry.restart_requests.is_empty();
    let Some(running) = entry.running() else {
        return;
    };
    let uptime = running.since.elapsed();
    if stopping || (!is_requested && uptime < MIN_CLEAN_UPTIME) {
        // What it would still finish beside a next process ends now.
        running.child.signal(Signal::TERM);
        return;
    }
    let ServicePhase::Running(running) = std::mem::replace(&mut entry.phase, ServicePhase::Stopped)
    else {
        return;
    };
    let [_waits_for_exit, health] = running.tasks;
    health.abort();
    let (service, pid) = (entry.name, running.child.pid);
    tracing::info!(service, pid, "service drained; starting its next process");
    entry.forget_failure(uptime);
    if !is_requested {
        entry.restarts.next_delay(uptime, true);
    }
    let instance = entry.instance;
    add(manager, at, running.child, instance, ends_within);
    manager.start(at);
}

fn add(
    manager: &mut ServiceManager<'_>,
    at: usize,
    child: ChildHandle,
    instance: u64,
    ends_within: Duration,
) {
    let inputs = manager.inputs.clone();
    let Some(entry) = manager.entries.get_mut(at) else {
        return;
    };
    if entry.predecessors.len() >= MAX_PREDECESSORS
        && let Some(oldest) = entry.predecessors.first()
    {
        kill(entry.name, oldest);
    }
    let due = Instant::now() + ends_within.min(LONGEST_END);
    entry.predecessors.push(Predecessor {
        child,
        instance,
        due,
    });
    tokio::spawn(async move {
        tokio::time::sleep_until(due).await;
        let _ = inputs.send(Input::PredecessorOverdue { at, instance });
    });
}

/// Those of a service, for the next program.
pub(super) fn saved(entry: &ServiceEntry, now: Instant) -> Vec<PredecessorHandover> {
    let each = entry.predecessors.iter().map(|one| {
        let left = one.due.saturating_duration_since(now).as_millis();
        PredecessorHandover {
            pid: one.child.pid,
            killed_in_ms: u64::try_from(left).unwrap_or(u64::MAX),
        }
    });
    each.collect()
}

/// Waits for one of the program before.
pub(super) fn adopt(manager: &mut ServiceManager<'_>, at: usize, left: &PredecessorHandover) {
    let inputs = manager.inputs.clone();
    let Some(entry) = manager.entries.get_mut(at) else {
        return;
    };
    let Ok((child, exit)) = child::adopt(left.pid) else {
        return;
    };
    entry.instance += 1;
    let instance = entry.instance;
    let ends_within = Duration::from_millis(left.killed_in_ms);
    add(manager, at, child, instance, ends_within);
    tokio::spawn(async move {
        let status = exit.wait().await;
        let _ = inputs.send(Input::Exited {
            at,
            instance,
            status,
        });
    });
}

/// Forgets one that has exited.
pub(super) fn handle_exit(entry: &mut ServiceEntry, instance: u64, status: &str) {
    let predecessors = &mut entry.predecessors;
    let Some(found) = predecessors.iter().position(|one| one.instance == instance) else {
        return;
    };
    let pid = predecessors.remove(found).child.pid;
    entry.last_exit = status.to_owned();
    tracing::info!(
        service = entry.name,
        pid,
        reason = status,
        "drained process exited"
    );
}

/// Kills one that has had its time.
pub(super) fn kill_overdue(entry: &ServiceEntry, instance: u64) {
    let mut predecessors = entry.predecessors.iter();
    if let Some(overdue) = predecessors.find(|one| one.instance == instance) {
        kill(entry.name, overdue);
    }
}

fn kill(service: &str, predecessor: &Predecessor) {
    let pid = predecessor.child.pid;
    tracing::warn!(service, pid, "drained process has not exited; killing it");
    predecessor.child.signal(Signal::KILL);
}
