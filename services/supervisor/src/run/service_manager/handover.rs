//! The services of the program before in this process, and for the next one.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use super::{ServiceManager, exit, predecessor};
use crate::core::handover::{FailureHandover, HandoverState, ProcessHandover, ServiceHandover};
use crate::core::liveness::Liveness;
use crate::handover::descriptors::{NamedDescriptors, escaped, notify_of, socket_of, stored_of};
use crate::run::child;
use crate::run::table::{RunningService, ServiceEntry, ServiceFailure, ServicePhase};

/// The state of all services.
pub(in crate::run) fn state(manager: &ServiceManager<'_>) -> HandoverState {
    let now = Instant::now();
    HandoverState::new(
        manager
            .entries
            .iter()
            .map(|entry| saved(entry, now))
            .collect(),
    )
}

/// The sockets of all services, and what they have stored.
pub(in crate::run) fn descriptors<'b>(manager: &'b ServiceManager<'_>) -> NamedDescriptors<'b> {
    let mut all: NamedDescriptors<'b> = Vec::new();
    for entry in &manager.entries {
        all.push((socket_of(entry.name), entry.socket.as_fd()));
        all.push((notify_of(entry.name), entry.notify_socket.as_fd()));
        let prefix = stored_of(entry.name);
        for (name, descriptor) in entry.stored.iter() {
            all.push((format!("{prefix}{}", escaped(name)), descriptor));
        }
    }
    all
}

/// Takes over what the program before in this process has left.
pub(in crate::run) fn adopt_all(manager: &mut ServiceManager<'_>) {
    let Some(handover) = manager.handover.take() else {
        return;
    };
    for at in 0..manager.entries.len() {
        let Some(entry) = manager.entries.get_mut(at) else {
            continue;
        };
        for (name, descriptor) in handover.with_prefix(&stored_of(entry.name)) {
            entry.stored.store(name, descriptor);
        }
        if let Some(saved) = handover.state.service(entry.name) {
            adopt(manager, at, saved);
        }
    }
    for service in &handover.state.services {
        if !manager
            .entries
            .iter()
            .any(|entry| entry.name == service.name)
        {
            stop_unknown(service);
        }
    }
}

fn adopt(manager: &mut ServiceManager<'_>, at: usize, saved: &ServiceHandover) {
    let now = Instant::now();
    for left in &saved.predecessors {
        predecessor::adopt(manager, at, left);
    }
    let Some(entry) = manager.entries.get_mut(at) else {
        return;
    };
    entry.instance += 1;
    entry.restarts = saved.restarts.clone();
    entry.last_exit.clone_from(&saved.last_exit);
    entry.reported_error.clone_from(&saved.reported_error);
    entry.failure = saved.failure.clone().map(|failure| ServiceFailure {
        reason: failure.reason.into(),
        message: failure.message,
        detail: failure.detail,
        since: failure.since,
    });
    if let Some(process) = &saved.process {
        adopt_process(manager, at, process, now);
    } else if let Some(delay) = saved.restart_in_ms {
        let delay = Duration::from_millis(delay);
        entry.phase = ServicePhase::BackOff { due: now + delay };
        exit::restart_after(manager, at, delay);
    }
}

/// A process that is no child any more leaves the service to be started.
fn adopt_process(
    manager: &mut ServiceManager<'_>,
    at: usize,
    process: &ProcessHandover,
    now: Instant,
) {
    let service = manager.entries.get(at).map_or("", |entry| entry.name);
    let pid = process.pid;
    let (child, exit) = match child::adopt(pid) {
        Ok(adopted) => adopted,
        Err(error) => {
            tracing::warn!(service, pid, %error, "process is not there; starting another one");
            return;
        }
    };
    tracing::info!(service, pid, "service continues to run");
    let uptime = Duration::from_millis(process.uptime_ms);
    manager.supervise(at, exit, |channel, tasks| RunningService {
        child,
        since: now.checked_sub(uptime).unwrap_or(now),
        started_at: process.started_at,
        serving: process.serving,
        channel,
        tasks,
        liveness: Liveness::continued(process.liveness, now.into_std()),
        expiry: process.expiry,
    });
}
fn saved(entry: &ServiceEntry, now: Instant) -> ServiceHandover {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut service = ServiceHandover {
        name: entry.name.to_owned(),
        restarts: entry.restarts.clone(),
        last_exit: entry.last_exit.clone(),
        reported_error: entry.reported_error.clone(),
        predecessors: predecessor::saved(entry, now),
        ..ServiceHandover::default()
    };
    service.failure = entry.failure.as_ref().map(|failure| FailureHandover {
        reason: failure.reason.to_string(),
        message: failure.message.clone(),
        detail: failure.detail.clone(),
        since: failure.since,
    });
    match &entry.phase {
        ServicePhase::Running(running) => {
            service.process = Some(ProcessHandover {
                pid: running.child.pid,
                uptime_ms: millis(now.saturating_duration_since(running.since)),
                started_at: running.started_at,
                liveness: running.liveness.save(),
                serving: running.serving,
                expiry: running.expiry,
            });
        }
        ServicePhase::BackOff { due } => {
            service.restart_in_ms = Some(millis(due.saturating_duration_since(now)));
        }
        ServicePhase::Stopped => {}
    }
    service
}

/// Stops a service that this program does not know.
fn stop_unknown(service: &ServiceHandover) {
    let Some(process) = &service.process else {
        return;
    };
    if let Ok((child, exit)) = child::adopt(process.pid) {
        tracing::warn!(
            service = service.name,
            pid = child.pid,
            "unknown service; stopping it"
        );
        child.signal(Signal::TERM);
        tokio::spawn(async move {
            let _ = exit.wait().await;
        });
    }
}
