use std::time::Duration;

use jiff::Timestamp;
use polylet_schedule::TimePoint;

/// Upstream asks every 5 s, and writes a change to the Node within 10 s; here it is written at once.
const HEALTHY_PERIOD: Duration = Duration::from_secs(10);
const UNHEALTHY_PERIOD: Duration = Duration::from_secs(5);

/// The runtime's answer to `Version` and `Status`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HealthCheck {
    pub name: String,
    pub version: String,
    /// The reason while `RuntimeReady` is not true.
    pub not_ready: Option<String>,
    /// The reason while `NetworkReady` is not true.
    pub network_not_ready: Option<String>,
    pub handlers: Vec<RuntimeHandler>,
    pub supplemental_groups_policy: bool,
}

/// A runtime handler and its features.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeHandler {
    /// Empty for the default handler.
    pub name: String,
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

/// The published status of the runtime.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeStatus {
    pub ready: bool,
    /// Why `ready` is false.
    pub reason: String,
    pub last_relist_at: Option<Timestamp>,
    pub network_ready: bool,
    /// Why `network_ready` is false.
    pub network_reason: String,
    pub runtime_name: String,
    pub runtime_version: String,
    /// Whether the event stream is active.
    pub events: bool,
    pub handlers: Vec<RuntimeHandler>,
    pub supplemental_groups_policy: bool,
}

/// The runtime's health, from health checks and the results of other calls.
#[derive(Debug)]
pub struct RuntimeHealth {
    status: RuntimeStatus,
    last_check: Option<Result<HealthCheck, String>>,
    list_error: Option<String>,
    checking: bool,
    due: Timestamp,
}

impl RuntimeHealth {
    /// Not ready; the first check is due `now`.
    pub fn new(now: Timestamp) -> Self {
        let status = RuntimeStatus {
            reason: "the runtime has not answered yet".to_owned(),
            network_reason: "the runtime has not answered yet".to_owned(),
            ..Default::default()
        };
        Self {
            status,
            last_check: None,
            list_error: None,
            checking: false,
            due: now,
        }
    }

    /// The status to publish.
    pub fn status(&self) -> &RuntimeStatus {
        &self.status
    }

    /// When the next check is due; `None` while one is in flight.
    pub fn next_due(&self) -> Option<Timestamp> {
        (!self.checking).then_some(self.due)
    }

    /// A check was started.
    pub fn on_check_started(&mut self) {
        self.checking = true;
    }

    /// A check has ended. True when the runtime answers again, or for the first time.
    pub fn on_check(&mut self, result: Result<HealthCheck, String>, now: Timestamp) -> bool {
        let was_up = matches!(self.last_check, Some(Ok(_)));
        let up = result.is_ok();
        self.checking = false;
        self.last_check = Some(result);
        self.update_status();
        let period = if self.status.ready && self.status.network_ready {
            HEALTHY_PERIOD
        } else {
            UNHEALTHY_PERIOD
        };
        self.due = now.plus(period);
        up && !was_up
    }

    /// A list has ended. The first failure, and the first success after one, bring the next check
    /// forward.
    pub fn on_list(&mut self, error: Option<String>, now: Timestamp) {
        if error.is_some() != self.list_error.is_some() || (error.is_none() && self.is_down()) {
            self.due = self.due.min(now);
        }
        if error.is_none() {
            self.status.last_relist_at = Some(now);
        }
        self.list_error = error;
        self.update_status();
    }

    /// Another call has failed, or the event stream has ended.
    pub fn on_failure(&mut self, now: Timestamp) {
        if !self.is_down() {
            self.due = self.due.min(now);
        }
    }

    /// The event stream has started or ended.
    pub fn set_events(&mut self, active: bool) {
        self.status.events = active;
    }

    fn is_down(&self) -> bool {
        matches!(self.last_check, Some(Err(_)))
    }

    fn update_status(&mut self) {
        let (not_ready, network) = match &self.last_check {
            None => return,
            Some(Err(error)) => (Some(error.clone()), Some(error.clone())),
            Some(Ok(check)) => {
                self.status.runtime_name.clone_from(&check.name);
                self.status.runtime_version.clone_from(&check.version);
                self.status.handlers.clone_from(&check.handlers);
                self.status.supplemental_groups_policy = check.supplemental_groups_policy;
                (
                    check.not_ready.clone().or_else(|| self.list_error.clone()),
                    check.network_not_ready.clone(),
                )
            }
        };
        self.status.ready = not_ready.is_none();
        self.status.reason = not_ready.unwrap_or_default();
        self.status.network_ready = network.is_none();
        self.status.network_reason = network.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn check(
        health: &mut RuntimeHealth,
        result: Result<HealthCheck, String>,
        now: Timestamp,
    ) -> bool {
        assert!(health.next_due().is_some_and(|due| due <= now), "not due");
        health.on_check_started();
        assert_eq!(health.next_due(), None, "two checks at once");
        health.on_check(result, now)
    }

    #[test]
    fn checks_are_frequent_while_down_and_rare_while_up() {
        let mut health = RuntimeHealth::new(at(0));
        assert!(!health.status().ready);
        assert!(!check(&mut health, Err("gone".to_owned()), at(0)));
        assert_eq!(health.next_due(), Some(at(5)));
        assert_eq!(health.status().reason, "gone");
        health.on_failure(at(1));
        assert_eq!(health.next_due(), Some(at(5)), "known to be down");
        health.on_list(None, at(2));
        let up = || Ok(HealthCheck::default());
        assert!(check(&mut health, up(), at(2)), "is back");
        assert!(health.status().ready && health.status().network_ready);
        assert_eq!(health.next_due(), Some(at(12)), "the network may be lost");
        health.on_failure(at(3));
        assert!(!check(&mut health, up(), at(3)));
    }

    #[test]
    fn a_failed_list_makes_an_answering_runtime_not_ready() {
        let mut health = RuntimeHealth::new(at(0));
        check(&mut health, Ok(HealthCheck::default()), at(0));
        health.on_list(Some("list timed out".to_owned()), at(1));
        assert!(!health.status().ready);
        assert_eq!(health.status().reason, "list timed out");
        assert_eq!(health.next_due(), Some(at(1)));
        health.on_list(None, at(2));
        assert!(health.status().ready);
    }

    #[test]
    fn network_readiness_is_reported_separately() {
        let mut health = RuntimeHealth::new(at(0));
        let result = HealthCheck {
            network_not_ready: Some("cni config uninitialized".to_owned()),
            ..Default::default()
        };
        check(&mut health, Ok(result), at(0));
        assert!(health.status().ready && !health.status().network_ready);
        assert_eq!(health.next_due(), Some(at(5)));
    }
}
