use std::time::Duration;

use jiff::Timestamp;
use polylet_wire::pleg::v1::{RuntimeHandler, WatchRuntimeResponse};
use polylet_wire::time;

use super::later;

const WHILE_UP: Duration = Duration::from_secs(30);
const WHILE_DOWN: Duration = Duration::from_secs(5);

/// An answer of the runtime about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Polled {
    pub name: String,
    pub version: String,
    /// Why not, when it is not.
    pub not_ready: Option<String>,
    pub network_not_ready: Option<String>,
    pub handlers: Vec<RuntimeHandler>,
    pub supplemental_groups_policy: bool,
}

/// Whether the runtime is well, from what its calls say.
#[derive(Debug)]
pub struct Health {
    report: WatchRuntimeResponse,
    polled: Option<Result<Polled, String>>,
    list_error: Option<String>,
    polling: bool,
    due: Timestamp,
}

impl Health {
    pub fn new(now: Timestamp) -> Self {
        let report = WatchRuntimeResponse {
            reason: "the runtime has not answered yet".to_owned(),
            network_reason: "the runtime has not answered yet".to_owned(),
            ..Default::default()
        };
        Self {
            report,
            polled: None,
            list_error: None,
            polling: false,
            due: now,
        }
    }

    pub fn report(&self) -> &WatchRuntimeResponse {
        &self.report
    }

    /// When the runtime has to be asked; never while it is being asked.
    pub fn due(&self) -> Option<Timestamp> {
        (!self.polling).then_some(self.due)
    }

    /// The runtime is being asked.
    pub fn polling(&mut self) {
        self.polling = true;
    }

    /// It answered, or did not. Says whether it came back with this.
    pub fn polled(&mut self, answer: Result<Polled, String>, now: Timestamp) -> bool {
        let was_up = matches!(self.polled, Some(Ok(_)));
        let up = answer.is_ok();
        self.polling = false;
        self.polled = Some(answer);
        self.tell();
        let wait = if self.report.ready && self.report.network_ready {
            WHILE_UP
        } else {
            WHILE_DOWN
        };
        self.due = later(now, wait);
        up && !was_up
    }

    /// A list ended. The first failure, and the first success after one, are worth a question.
    pub fn listed(&mut self, error: Option<String>, now: Timestamp) {
        if error.is_some() != self.list_error.is_some() || (error.is_none() && self.is_down()) {
            self.due = self.due.min(now);
        }
        if error.is_none() {
            self.report.last_relist_at = Some(time::to_wire(now));
        }
        self.list_error = error;
        self.tell();
    }

    /// Some call failed, or the event stream ended.
    pub fn failed(&mut self, now: Timestamp) {
        if !self.is_down() {
            self.due = self.due.min(now);
        }
    }

    pub fn events(&mut self, flow: bool) {
        self.report.events = flow;
    }

    fn is_down(&self) -> bool {
        matches!(self.polled, Some(Err(_)))
    }

    fn tell(&mut self) {
        let (not_ready, network) = match &self.polled {
            None => return,
            Some(Err(error)) => (Some(error.clone()), Some(error.clone())),
            Some(Ok(answer)) => {
                self.report.runtime_name.clone_from(&answer.name);
                self.report.runtime_version.clone_from(&answer.version);
                self.report.handlers.clone_from(&answer.handlers);
                self.report.supplemental_groups_policy = answer.supplemental_groups_policy;
                (
                    answer.not_ready.clone().or_else(|| self.list_error.clone()),
                    answer.network_not_ready.clone(),
                )
            }
        };
        self.report.ready = not_ready.is_none();
        self.report.reason = not_ready.unwrap_or_default();
        self.report.network_ready = network.is_none();
        self.report.network_reason = network.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn ask(health: &mut Health, answer: Result<Polled, String>, now: Timestamp) -> bool {
        assert!(health.due().is_some_and(|due| due <= now), "not due");
        health.polling();
        assert_eq!(health.due(), None, "asked twice at once");
        health.polled(answer, now)
    }

    #[test]
    fn asked_often_while_down_and_seldom_while_up() {
        let mut health = Health::new(at(0));
        assert!(!health.report().ready);
        assert!(!ask(&mut health, Err("gone".to_owned()), at(0)));
        assert_eq!(health.due(), Some(at(5)));
        assert_eq!(health.report().reason, "gone");
        health.failed(at(1));
        assert_eq!(health.due(), Some(at(5)), "known to be down");
        health.listed(None, at(2));
        assert!(ask(&mut health, Ok(Polled::default()), at(2)), "came back");
        assert!(health.report().ready && health.report().network_ready);
        assert_eq!(health.due(), Some(at(32)));
        health.failed(at(3));
        assert!(!ask(&mut health, Ok(Polled::default()), at(3)));
    }

    #[test]
    fn lists_that_fail_make_it_unready_though_it_answers() {
        let mut health = Health::new(at(0));
        ask(&mut health, Ok(Polled::default()), at(0));
        health.listed(Some("list timed out".to_owned()), at(1));
        assert!(!health.report().ready);
        assert_eq!(health.report().reason, "list timed out");
        assert_eq!(health.due(), Some(at(1)));
        health.listed(None, at(2));
        assert!(health.report().ready);
    }

    #[test]
    fn a_missing_network_is_told_apart() {
        let mut health = Health::new(at(0));
        let answer = Polled {
            network_not_ready: Some("cni config uninitialized".to_owned()),
            ..Default::default()
        };
        ask(&mut health, Ok(answer), at(0));
        assert!(health.report().ready && !health.report().network_ready);
        assert_eq!(health.due(), Some(at(5)));
    }
}
