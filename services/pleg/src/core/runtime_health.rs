use std::time::Duration;

use jiff::Timestamp;
use polylet_schedule::TimePoint;

/// Upstream asks every 5 s, and writes a change to the Node within 10 s; here it is written at once.
const HEALTHY_PERIOD: Duration = Duration::from_secs(10);
const UNHEALTHY_PERIOD: Duration = Duration::from_secs(5);
/// A runtime that has not answered a check for this long is down, which is upstream's
/// `maxWaitForContainerRuntime`.
const DOWN_AFTER: Duration = Duration::from_secs(30);
/// Lists that fail for this long make the runtime not ready, which is upstream's threshold of PLEG.
/// Counted from the first failure, as lists are rare at rest. Before the first list that succeeds, a
/// failure counts at once.
const UNLISTED_AFTER: Duration = Duration::from_secs(180);

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
///
/// What the runtime reports counts at once. That it reports nothing counts only after a while, as
/// upstream: a restart of the runtime is no reason to move pods away.
#[derive(Debug)]
pub struct RuntimeHealth {
    status: RuntimeStatus,
    /// The last check that the runtime answered, and when it is down without another answer.
    last_answer: Option<(HealthCheck, Timestamp)>,
    /// The error of the last check.
    check_error: Option<String>,
    /// The error of the last list, and when the first in a row failed.
    list_failure: Option<(String, Timestamp)>,
    checking: bool,
    check_due: Timestamp,
    /// When the status changes without an input.
    status_due: Option<Timestamp>,
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
            last_answer: None,
            check_error: None,
            list_failure: None,
            checking: false,
            check_due: now,
            status_due: None,
        }
    }

    /// The status to publish.
    pub fn status(&self) -> &RuntimeStatus {
        &self.status
    }

    /// When a check or a change of the status is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        let check = (!self.checking).then_some(self.check_due);
        check.into_iter().chain(self.status_due).min()
    }

    /// Updates the status to `now`. True when a check is due, which counts as started.
    pub fn start_due_check(&mut self, now: Timestamp) -> bool {
        self.bound_by_clock(now);
        let is_due = !self.checking && self.check_due <= now;
        if is_due {
            self.checking = true;
            // That it starts late, after a suspension or a forward step of the clock, does not mean that
            // the runtime was silent.
            let answer = self.last_answer.as_mut();
            if let Some((_, down_at)) = answer.filter(|_| self.check_error.is_none()) {
                let rest = DOWN_AFTER.saturating_sub(HEALTHY_PERIOD);
                *down_at = (*down_at).max(now.plus(rest));
            }
        }
        if is_due || self.status_due.is_some_and(|due| due <= now) {
            self.update_status(now);
        }
        is_due
    }

    /// A check has ended. True when the runtime answers again, or for the first time.
    pub fn on_check(&mut self, result: Result<HealthCheck, String>, now: Timestamp) -> bool {
        let was_up = self.last_answer.is_some() && !self.is_down();
        self.checking = false;
        match result {
            Ok(check) => {
                self.last_answer = Some((check, now.plus(DOWN_AFTER)));
                self.check_error = None;
            }
            Err(error) => self.check_error = Some(error),
        }
        self.update_status(now);
        let is_up = !self.is_down();
        let period = if is_up && self.status.ready && self.status.network_ready {
            HEALTHY_PERIOD
        } else {
            UNHEALTHY_PERIOD
        };
        self.check_due = now.plus(period);
        is_up && !was_up
    }

    /// A list has ended. The first failure, and the first success after one, bring the next check
    /// forward.
    pub fn on_list(&mut self, error: Option<String>, now: Timestamp) {
        if error.is_some() != self.list_fails() || (error.is_none() && self.is_down()) {
            self.check_due = self.check_due.min(now);
        }
        if error.is_none() {
            self.status.last_relist_at = Some(now);
        }
        let since = self.list_failure.take().map_or(now, |(_, since)| since);
        self.list_failure = error.map(|error| (error, since));
        self.update_status(now);
    }

    /// Another call has failed, or the event stream has ended.
    pub fn on_failure(&mut self, now: Timestamp) {
        if !self.is_down() {
            self.check_due = self.check_due.min(now);
        }
    }

    /// The event stream has started or ended.
    pub fn set_events(&mut self, active: bool) {
        self.status.events = active;
    }

    /// Whether a check has ended.
    pub fn is_checked(&self) -> bool {
        self.last_answer.is_some() || self.check_error.is_some()
    }

    /// Whether the last check failed.
    pub fn is_down(&self) -> bool {
        self.check_error.is_some()
    }

    /// Whether the last list failed.
    pub fn list_fails(&self) -> bool {
        self.list_failure.is_some()
    }

    /// A clock that was set back delays nothing.
    fn bound_by_clock(&mut self, now: Timestamp) {
        self.check_due = self.check_due.min(now.plus(HEALTHY_PERIOD));
        if let Some((_, down_at)) = &mut self.last_answer {
            *down_at = (*down_at).min(now.plus(DOWN_AFTER));
        }
        if let Some((_, since)) = &mut self.list_failure {
            *since = (*since).min(now);
        }
    }

    fn update_status(&mut self, now: Timestamp) {
        self.status_due = None;
        let Some((check, down_at)) = &self.last_answer else {
            if let Some(error) = &self.check_error {
                self.status.reason.clone_from(error);
                self.status.network_reason.clone_from(error);
            }
            return;
        };
        let is_silent = self.checking || self.check_error.is_some();
        let down_at = is_silent.then_some(*down_at);
        let list_failure = self.list_failure.as_ref();
        let unlisted_at = list_failure.map(|(_, since)| match self.status.last_relist_at {
            Some(_) => since.plus(UNLISTED_AFTER),
            None => *since,
        });
        let is_reached = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let not_ready = if is_reached(down_at) {
            let error = self.check_error.as_deref();
            Some(error.unwrap_or("no answer to a health check").to_owned())
        } else {
            let list_error = list_failure.filter(|_| is_reached(unlisted_at));
            let list_error = list_error.map(|(error, _)| error.clone());
            check.not_ready.clone().or(list_error)
        };
        let due = [down_at, unlisted_at].into_iter().flatten();
        self.status_due = due.filter(|at| *at > now).min();
        let status = &mut self.status;
        status.runtime_name.clone_from(&check.name);
        status.runtime_version.clone_from(&check.version);
        status.handlers.clone_from(&check.handlers);
        status.supplemental_groups_policy = check.supplemental_groups_policy;
        status.ready = not_ready.is_none();
        status.reason = not_ready.unwrap_or_default();
        // Unknown while the runtime is down: what it reported last.
        status.network_ready = check.network_not_ready.is_none();
        status.network_reason = check.network_not_ready.clone().unwrap_or_default();
    }
}

#[cfg(test)]
#[path = "runtime_health_tests.rs"]
mod tests;
