//! When a step that has no result yet counts as delayed, and is named.

use std::time::Duration;

use super::Step;

/// Most steps take a fraction of a second; the runtime and network plugins may take some seconds.
const USUAL_TIME: Duration = Duration::from_secs(20);
/// Pulls and postStart hooks take what the image and the pod's author make of them.
const LONG_TIME: Duration = Duration::from_secs(60);

/// How a delayed step is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayReport {
    /// How long the step may take before.
    pub after: Duration,
    /// Whether it is an event of the pod, beside a health condition. Pulls and hooks have events of
    /// their own.
    pub event: bool,
}

impl Step {
    /// When the step counts as delayed.
    pub fn delay_report(&self) -> DelayReport {
        let (after, event) = match self {
            Step::PullImage { .. } | Step::PostStart { .. } => (LONG_TIME, false),
            Step::PreStop { timeout, .. } => (USUAL_TIME + seconds(*timeout), false),
            Step::StopContainer { grace_period, .. } => (USUAL_TIME + seconds(*grace_period), true),
            _ => (USUAL_TIME, true),
        };
        DelayReport { after, event }
    }
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_is_no_delay() {
        let (id, container) = (String::new(), "a".to_owned());
        let stop = |grace_period| Step::StopContainer {
            id: id.clone(),
            container: container.clone(),
            grace_period,
        };
        let pull = Step::PullImage {
            container: container.clone(),
        };
        for (step, after, event) in [
            (Step::CreateSandbox { attempt: 0 }, 20, true),
            (stop(0), 20, true),
            (stop(600), 620, true),
            (pull, 60, false),
        ] {
            let after = Duration::from_secs(after);
            assert_eq!(step.delay_report(), DelayReport { after, event }, "{step}");
        }
    }
}
