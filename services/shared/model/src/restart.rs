//! When an ended container is started again.
//!
//! # Back-off without memory
//!
//! Upstream counts crashes in memory and forgets them with each restart of the
//! agent. Here each container carries its *step*: how many starts in a row it
//! follows that did not run long. The step is written beside the container at
//! its creation ([`crate::constants::annotation::BACK_OFF_STEP`]); of a
//! container without one (another agent made it) the attempt stands in. From
//! the step and the times of the last exit alone follows when the next attempt
//! may start:
//!
//! * step 0 (the first start) is followed at once; its follower has step 1;
//! * step n is followed `initial × 2^(n-1)` after the exit, at most `cap`;
//!   its follower has step n+1;
//! * a container that ran more than ten minutes is followed at once, and so is
//!   one whose name, image or resources have changed since; the follower has
//!   step 1: the count starts again.
//!
//! That is the same sequence as upstream's (0, 10, 20, 40, 80, 160, 300, 300 s)
//! for an agent that never restarts.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule};

use crate::pod::{ContainerKind, RestartPolicy};

/// A container that ran longer than this is not crashing.
pub const RESET_AFTER: Duration = Duration::from_secs(600);

/// What follows on a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stays ended.
    Stay,
    /// It is started again.
    Restart,
    /// A rule restarts the pod's containers all together.
    RestartAll,
}

/// Decides on an exit by itself (not on a kill by a probe: see [`after_kill`]).
/// Rules count only on containers with a policy of their own; the first that
/// matches wins.
pub fn after_exit(
    kind: ContainerKind,
    container: &Container,
    pod_policy: RestartPolicy,
    exit_code: i32,
) -> Decision {
    if kind == ContainerKind::Ephemeral {
        return Decision::Stay;
    }
    let own = container.restart_policy.as_deref();
    let action = rule(container, exit_code).map(|rule| rule.action.as_str());
    match action {
        Some("RestartAllContainers") => return Decision::RestartAll,
        // An init container that is done is done, whatever its policy.
        _ if kind == ContainerKind::Init && exit_code == 0 => return Decision::Stay,
        Some("Restart") => return Decision::Restart,
        _ => {}
    }
    let policy = own.map_or(pod_policy, |own| RestartPolicy::parse(Some(own)));
    by_policy(policy, exit_code)
}

/// Decides after a liveness or startup probe, or a changed spec, had the
/// container stopped: it stays only where nothing is ever restarted.
pub fn after_kill(
    kind: ContainerKind,
    container: &Container,
    pod_policy: RestartPolicy,
) -> Decision {
    let own = container.restart_policy.as_deref();
    let policy = own.map_or(pod_policy, |own| RestartPolicy::parse(Some(own)));
    match (kind, policy) {
        (ContainerKind::Ephemeral, _) | (_, RestartPolicy::Never) => Decision::Stay,
        _ => Decision::Restart,
    }
}

fn by_policy(policy: RestartPolicy, exit_code: i32) -> Decision {
    match policy {
        RestartPolicy::Always => Decision::Restart,
        RestartPolicy::OnFailure if exit_code != 0 => Decision::Restart,
        RestartPolicy::OnFailure | RestartPolicy::Never => Decision::Stay,
    }
}

/// The first rule that speaks of this exit code.
pub fn rule(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy.as_ref()?;
    container
        .restart_policy_rules
        .iter()
        .flatten()
        .find(|rule| {
            rule.exit_codes.as_ref().is_some_and(|codes| {
                let named = codes.values.iter().flatten().any(|code| *code == exit_code);
                match codes.operator.as_str() {
                    "In" => named,
                    "NotIn" => !named,
                    _ => false,
                }
            })
        })
}

/// The last end of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The attempt that ended.
    pub attempt: u32,
    /// The step it was created with, if that is known.
    pub step: Option<u32>,
    /// Absent when it never ran.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Timestamp,
    /// Its name, image or resources are no longer what the manifest says.
    pub spec_changed: bool,
}

/// The attempt that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// To be written beside the new container.
    pub step: u32,
    /// Measured from the exit.
    pub delay: Duration,
    /// The exit's time and the delay.
    pub not_before: Timestamp,
}

/// How fast crashing containers are started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// After the second start.
    pub initial: Duration,
    /// Never longer than this.
    pub cap: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            cap: Duration::from_secs(300),
        }
    }
}

impl BackOff {
    /// With `crashLoopBackOff.maxContainerRestartPeriod`: a cap below the usual
    /// ten seconds is the initial delay as well.
    pub fn with_cap(cap: Duration) -> Self {
        Self {
            initial: Self::default().initial.min(cap),
            cap,
        }
    }

    /// What follows on an exit. See the module's rule.
    pub fn after(&self, exit: &Exit) -> Next {
        let step = exit.step.unwrap_or(exit.attempt);
        let (delay, next) = if exit.spec_changed || ran_long(exit) {
            (Duration::ZERO, 1)
        } else {
            (self.delay(step), step.saturating_add(1))
        };
        let wait = SignedDuration::try_from(delay).unwrap_or(SignedDuration::ZERO);
        let not_before = exit.finished_at.checked_add(wait).unwrap_or(Timestamp::MAX);
        Next {
            step: next,
            delay,
            not_before,
        }
    }

    /// How long the follower of a step waits.
    pub fn delay(&self, step: u32) -> Duration {
        let Some(doublings) = step.checked_sub(1) else {
            return Duration::ZERO;
        };
        // Thirty-one doublings are past any cap already.
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.initial
            .checked_mul(factor)
            .map_or(self.cap, |delay| delay.min(self.cap))
    }
}

fn ran_long(exit: &Exit) -> bool {
    exit.started_at.is_some_and(|started| {
        exit.finished_at.duration_since(started)
            > SignedDuration::from_secs(RESET_AFTER.as_secs() as i64)
    })
}

#[cfg(test)]
mod tests;
