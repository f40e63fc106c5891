//! The service manager behind `polylet run`: this process, whose children the services are, or systemd,
//! which owns their sockets and processes as units, or another one, which is not known. An upgrade needs the same of both: their states, and
//! the restart of one service with the program that its link names.

pub(crate) mod own;
pub(crate) mod programs;

use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::core::order::SERVICES;
use crate::core::unit_state::{UnitPhase, UnitState};
use crate::handover::ReplaceError;
use crate::systemctl::{Systemctl, SystemctlError};

/// Which backend runs the services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum BackendKind {
    /// The services are children of this process.
    #[default]
    Child,
    /// The services are units of systemd.
    Systemd,
    /// Something else runs the services, such as a container engine: they are followed, and nothing more.
    External,
}

/// Why the service manager did not do something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    #[error("unknown service {service}")]
    Unknown { service: String },
    #[error("the supervisor is stopping")]
    Stopping,
    #[error(
        "another service manager runs the services and replaces their programs; in containers: set another image for \
         the service and run `docker compose up -d --no-deps SERVICE`"
    )]
    External,
    #[error(transparent)]
    Systemctl(#[from] SystemctlError),
    #[error("replacing the program of the supervisor")]
    Replace(#[source] ReplaceError),
}

/// A service as its manager sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceState {
    pub(crate) service: &'static str,
    pub(crate) phase: UnitPhase,
    pub(crate) pid: Option<u32>,
    pub(crate) started_at: Option<Timestamp>,
    /// Automatic restarts.
    pub(crate) restarts: u32,
    pub(crate) last_exit: String,
}

/// A request to the event loop that owns the child processes.
pub(crate) enum ChildRequest {
    /// For the states of all services, callees first.
    States(oneshot::Sender<Vec<ServiceState>>),
    /// To restart a service, by its index; answered when the new process has been started.
    Restart {
        at: usize,
        response: oneshot::Sender<()>,
    },
}

/// The service manager. Clones refer to the same one.
#[derive(Clone)]
pub(crate) enum Backend {
    /// The event loop of this process.
    Child(UnboundedSender<ChildRequest>),
    /// The units of systemd.
    Systemd(Systemctl),
    /// A service manager that is not known.
    External,
}

impl Backend {
    /// The states of all services, callees first.
    pub(crate) async fn states(&self) -> Result<Vec<ServiceState>, BackendError> {
        match self {
            Backend::Child(requests) => {
                let (response, states) = oneshot::channel();
                let sent = requests.send(ChildRequest::States(response));
                sent.map_err(|_| BackendError::Stopping)?;
                states.await.map_err(|_| BackendError::Stopping)
            }
            Backend::Systemd(systemctl) => {
                let units = systemctl.states(&units()).await?;
                let now = MonotonicNow::read();
                let state = |name| service_state(name, &units, &now);
                Ok(SERVICES.iter().map(|service| state(service.name)).collect())
            }
            Backend::External => Err(BackendError::External),
        }
    }

    /// Restarts a service with the program that its link names: the old process drains and ends, and the
    /// new one is started. Whether that is ready is for the caller to see. The socket stays open.
    pub(crate) async fn restart(&self, service: &str) -> Result<(), BackendError> {
        let known = SERVICES.iter().position(|known| known.name == service);
        let Some(at) = known else {
            let service = service.to_owned();
            return Err(BackendError::Unknown { service });
        };
        match self {
            Backend::Child(requests) => {
                let (response, done) = oneshot::channel();
                let sent = requests.send(ChildRequest::Restart { at, response });
                sent.map_err(|_| BackendError::Stopping)?;
                done.await.map_err(|_| BackendError::Stopping)
            }
            Backend::Systemd(systemctl) => {
                let unit = unit(service);
                // Without waiting for readiness, which a service that is not compatible never reaches.
                Ok(systemctl.restart(&unit).await?)
            }
            Backend::External => Err(BackendError::External),
        }
    }
}

/// The unit of a service.
pub(crate) fn unit(service: &str) -> String {
    format!("polylet-{service}.service")
}

/// The units of all services, callees first.
pub(crate) fn units() -> Vec<String> {
    SERVICES.iter().map(|service| unit(service.name)).collect()
}

/// The monotonic clock beside the wall clock, to date what systemd counts from boot.
pub(crate) struct MonotonicNow {
    micros: u64,
    at: Timestamp,
}

impl MonotonicNow {
    pub(crate) fn read() -> MonotonicNow {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        MonotonicNow {
            micros: seconds
                .saturating_mul(1_000_000)
                .saturating_add(nanos / 1000),
            at: Timestamp::now(),
        }
    }

    fn date(&self, micros: u64) -> Option<Timestamp> {
        let ago = i64::try_from(self.micros.saturating_sub(micros)).ok()?;
        self.at
            .checked_sub(jiff::SignedDuration::from_micros(ago))
            .ok()
    }
}

/// The state of a service out of its unit's.
pub(crate) fn service_state(
    service: &'static str,
    units: &[UnitState],
    now: &MonotonicNow,
) -> ServiceState {
    let name = unit(service);
    let found = units.iter().find(|unit| unit.unit == name);
    let found = found.cloned().unwrap_or_default();
    ServiceState {
        service,
        phase: found.phase,
        pid: found.pid,
        started_at: found.started_at.and_then(|micros| now.date(micros)),
        restarts: found.restarts,
        last_exit: found.failure,
    }
}
