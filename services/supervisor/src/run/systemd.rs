//! The event loop of the systemd backend: the services are units, whose states are read when somebody
//! asks; their health is followed.

use std::path::Path;

use polylet_wire::lifecycle::v1::HealthCondition;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;
use tonic::transport::Channel;

use super::input::Input;
use super::own::{OwnEvent, OwnProcess};
use super::readiness::Readiness;
use super::service_manager::ServiceManagerError;
use super::table::ServiceView;
use super::{health, server};
use crate::backend::{self, MonotonicNow, ServiceState};
use crate::core::handover::HandoverState;
use crate::core::order::SERVICES;
use crate::core::unit_state::{UnitExpiry, UnitPhase, UnitState};
use crate::handover::{Handover, signals};
use crate::systemctl::Systemctl;

/// Condition of units whose states systemd does not tell.
const UNKNOWN: &str = "UnitStateUnknown";

/// The health of one service.
struct Followed {
    name: &'static str,
    channel: Channel,
    serving: bool,
}

/// Follows the services until SIGTERM or SIGINT. It starts and stops none.
pub(super) async fn run(
    run_directory: &Path,
    inputs: UnboundedSender<Input>,
    mut incoming: UnboundedReceiver<Input>,
    mut own: OwnProcess,
    handover: Option<&Handover>,
) -> Result<(), ServiceManagerError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServiceManagerError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServiceManagerError::Signals)?;
    // A unit has one process at a time, and a connection waits for the next one in the socket's backlog.
    let instance = 0;
    let mut services = Vec::with_capacity(SERVICES.len());
    for (at, service) in SERVICES.iter().enumerate() {
        let socket = server::service_socket(run_directory, service.name);
        let channel = polylet_kit::channel::unix(&socket);
        tokio::spawn(health::watch(at, instance, channel.clone(), inputs.clone()));
        services.push(Followed {
            name: service.name,
            channel,
            serving: false,
        });
    }
    if let Some(handover) = handover {
        handover.complete();
        signals::unblock();
    }
    let _watchdog = tokio::spawn(polylet_kit::notify::watchdog());
    let mut readiness = Readiness::supervisor_only();
    loop {
        readiness.update(services.iter().map(|one| (one.name, one.serving)));
        tokio::select! {
            Some(input) = incoming.recv() => handle_input(&mut services, input),
            event = own.next() => match event {
                OwnEvent::State(response) => {
                    let _ = response.send(HandoverState::new(Vec::new()));
                }
                OwnEvent::Replace(request) => {
                    own.replace(request, HandoverState::new(Vec::new()), Vec::new())?;
                }
                OwnEvent::Failed(error) => return Err(error.into()),
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    tracing::info!("stopped; the services keep running");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    own.flush_spans().await;
    Ok(())
}

fn handle_input(services: &mut [Followed], input: Input) {
    match input {
        Input::Health { at, serving, .. } => {
            if let Some(service) = services.get_mut(at) {
                service.serving = serving;
            }
        }
        Input::List(response) => {
            let health = services.iter();
            let health: Vec<(bool, Channel)> = health
                .map(|service| (service.serving, service.channel.clone()))
                .collect();
            tokio::spawn(async move {
                let _ = response.send(views(health).await);
            });
        }
        // Of processes that are children.
        Input::Exited { .. }
        | Input::Notified { .. }
        | Input::Stored { .. }
        | Input::RestartDue { .. }
        | Input::StopOverdue { .. }
        | Input::PredecessorOverdue { .. } => {}
    }
}

async fn views(health: Vec<(bool, Channel)>) -> Vec<ServiceView> {
    let begun = Instant::now();
    let units = Systemctl.states(&backend::units()).await;
    tracing::debug!(duration = ?begun.elapsed(), "read the states of units");
    let now = MonotonicNow::read();
    let (units, error) = match units {
        Ok(units) => (units, None),
        Err(error) => (Vec::new(), Some(polylet_kit::report(&error))),
    };
    let each = SERVICES.iter().zip(health);
    let view = |name: &'static str, serving: bool, channel: Channel| {
        let state = backend::service_state(name, &units, &now);
        let unit_name = backend::unit(name);
        let unit = units.iter().find(|unit| unit.unit == unit_name);
        let mut conditions: Vec<_> = unit.and_then(failure).into_iter().collect();
        conditions.extend(
            error
                .as_ref()
                .map(|error| condition(UNKNOWN, error.clone())),
        );
        let is_running = error.is_some() || state.phase == UnitPhase::Running;
        ServiceView {
            name,
            health: health_of(&state, serving, error.is_some()),
            pid: state.pid.unwrap_or_default(),
            restarts: state.restarts,
            started_at: state.started_at.filter(|_| state.pid.is_some()),
            last_exit: state.last_exit,
            conditions,
            channel: is_running.then_some(channel),
        }
    };
    each.map(|(service, (serving, channel))| view(service.name, serving, channel))
        .collect()
}

fn health_of(state: &ServiceState, serving: bool, is_unknown: bool) -> &'static str {
    match (state.phase, serving) {
        (UnitPhase::Running, true) => "SERVING",
        (UnitPhase::Running, false) => "NOT_SERVING",
        (UnitPhase::Starting, _) => "STARTING",
        (UnitPhase::BackOff, _) => "BACKOFF",
        (UnitPhase::Stopped, true) if is_unknown => "SERVING",
        (UnitPhase::Stopped, _) => "STOPPED",
    }
}

/// Why a unit does not run.
fn failure(unit: &UnitState) -> Option<HealthCondition> {
    if unit.phase == UnitPhase::Running || unit.failure.is_empty() {
        return None;
    }
    let reason = match unit.expiry {
        Some(UnitExpiry::Timeout) => "ServiceStartTimeout",
        Some(UnitExpiry::Watchdog) => "ServiceWatchdogExpired",
        None => "ServiceFailing",
    };
    // What the process published last, which is its error.
    let message = match unit.status.as_str() {
        "" => unit.failure.clone(),
        status => format!("{}: {status}", unit.failure),
    };
    Some(condition(reason, message))
}

fn condition(reason: &str, message: String) -> HealthCondition {
    HealthCondition {
        reason: reason.to_owned(),
        message,
        ..HealthCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_fails_is_a_condition() {
        let unit = |phase, failure: &str, expiry| UnitState {
            phase,
            failure: failure.to_owned(),
            expiry,
            status: "building the service".to_owned(),
            ..UnitState::default()
        };
        let found = |unit: &UnitState| failure(unit).map(|found| (found.reason, found.message));
        assert_eq!(found(&unit(UnitPhase::Running, "exit code 70", None)), None);
        assert_eq!(found(&unit(UnitPhase::Stopped, "", None)), None);
        let failing = Some((
            "ServiceFailing".to_owned(),
            "exit code 70: building the service".to_owned(),
        ));
        assert_eq!(
            found(&unit(UnitPhase::BackOff, "exit code 70", None)),
            failing
        );
        let hung = found(&unit(UnitPhase::BackOff, "x", Some(UnitExpiry::Watchdog)));
        assert_eq!(
            hung.map(|(reason, _)| reason).as_deref(),
            Some("ServiceWatchdogExpired")
        );
    }
}
