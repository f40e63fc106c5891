//! Deadlines of the services' processes, and of readiness.

use std::time::Duration;

use tokio::time::Instant;

use super::ServiceManager;
use crate::run::table::{ServiceEntry, ServicePhase};

/// A watchdog timer that fires this late shows that the supervisor itself was not running.
const MAX_TIMER_DELAY: Duration = Duration::from_secs(1);

/// When [`ServiceManager::handle_deadlines`] has something to do.
pub(in crate::run) fn deadline(manager: &ServiceManager<'_>) -> Option<Instant> {
    let both = [process_deadline(manager), manager.readiness.deadline()];
    both.into_iter().flatten().min()
}

/// Kills the services that have missed their deadline, and stops waiting for those that are not ready.
pub(in crate::run) fn handle_deadlines(manager: &mut ServiceManager<'_>) {
    let now = Instant::now();
    if process_deadline(manager).is_some_and(|at| at <= now) {
        kill_unresponsive(manager);
    }
    manager.update_readiness();
}

/// The earliest deadline of a service's process.
pub(super) fn process_deadline(manager: &ServiceManager<'_>) -> Option<Instant> {
    let deadline = |entry: &ServiceEntry| match &entry.phase {
        ServicePhase::Running(running) => running.liveness.deadline(),
        _ => None,
    };
    let earliest = manager.entries.iter().filter_map(deadline).min();
    earliest.map(Instant::from_std)
}

/// Kills the services that have missed their deadline.
pub(super) fn kill_unresponsive(manager: &mut ServiceManager<'_>) {
    let now = Instant::now();
    if process_deadline(manager).is_some_and(|at| now.duration_since(at) > MAX_TIMER_DELAY) {
        // The supervisor itself was delayed: messages of the services are still unread.
        for running in manager.entries.iter_mut().filter_map(ServiceEntry::running) {
            running.liveness.postpone(now.into_std());
        }
        return;
    }
    for entry in &mut manager.entries {
        entry.kill_if_expired(now);
    }
}
