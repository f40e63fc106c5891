//! What systemd is told about all services together: readiness, and the line that `systemctl status` shows.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;

/// How long to wait for all services before this process counts as ready without some: their sockets are
/// open and the others serve, and a start that is not ready in time would be killed as a whole.
pub(super) const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Readiness, and the line that was published last.
pub(super) struct Readiness {
    started: Instant,
    ready: bool,
    published: String,
}

impl Readiness {
    pub(super) fn new() -> Readiness {
        Readiness {
            started: Instant::now(),
            ready: false,
            published: String::new(),
        }
    }

    /// Of a process that is ready at once, as it does not start the services.
    pub(super) fn supervisor_only() -> Readiness {
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        Readiness {
            ready: true,
            ..Readiness::new()
        }
    }

    /// When this process counts as ready without all services; `None` once it is ready.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.ready).then(|| self.started + READY_TIMEOUT)
    }

    /// Publishes what has changed. `services` has the names of all and whether they serve.
    pub(super) fn update<'a>(&mut self, services: impl Iterator<Item = (&'a str, bool)>) {
        let services: Vec<(&str, bool)> = services.collect();
        let is_complete = services.iter().all(|(_, serving)| *serving);
        let is_due = self.deadline().is_some_and(|at| at <= Instant::now());
        if !self.ready && (is_complete || is_due) {
            self.ready = true;
            let (count, duration) = (services.len(), self.started.elapsed());
            if is_complete {
                tracing::info!(count, ?duration, "all services are serving");
            } else {
                let line = line(&services);
                tracing::warn!(state = line, ?duration, "ready without all services");
            }
            let _ = sd_notify::notify(&[NotifyState::Ready]);
        }
        let line = line(&services);
        if line != self.published {
            let _ = sd_notify::notify(&[NotifyState::Status(&line)]);
            self.published = line;
        }
    }
}

fn line(services: &[(&str, bool)]) -> String {
    let all = services.len();
    let missing = services.iter().filter(|(_, serving)| !serving);
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    match missing.as_slice() {
        [] => format!("{all} services are serving"),
        missing => {
            let serving = all - missing.len();
            format!(
                "{serving} of {all} services are serving, not {}",
                missing.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_services_that_do_not_serve() {
        assert_eq!(line(&[("a", true), ("b", true)]), "2 services are serving");
        assert_eq!(
            line(&[("a", false), ("b", true), ("c", false)]),
            "1 of 3 services are serving, not a, c"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn one_service_does_not_hold_up_readiness_for_ever() {
        let mut readiness = Readiness::new();
        readiness.update([("a", true), ("b", false)].into_iter());
        assert!(!readiness.ready);
        tokio::time::advance(READY_TIMEOUT).await;
        readiness.update([("a", true), ("b", false)].into_iter());
        assert!(readiness.ready && readiness.deadline().is_none());
    }
}
