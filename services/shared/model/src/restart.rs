//! Whether and when an exited container is restarted.
//!
//! # Stateless crash-loop back-off
//!
//! Upstream counts crashes in memory and forgets them when the kubelet restarts. Here each container
//! carries its *step*: the number of starts in a row before it that did not run long. The step is an
//! annotation of the container ([`crate::constants::annotation::BACK_OFF_STEP`]); for a container
//! without one, which another agent has created, the attempt is used instead. The earliest next start
//! follows from the step and the last exit alone:
//!
//! * after step 0 (the first start), the container restarts at once, with step 1;
//! * after step n, it restarts `initial × 2^(n-1)` after the exit, at most `cap`, with step n+1;
//! * after a run of more than ten minutes, or when its name, image or resources have changed, it
//!   restarts at once, with step 1.
//!
//! This is upstream's sequence (0, 10, 20, 40, 80, 160, 300, 300 s) for a kubelet that never restarts.
//!
//! A container that was killed to be replaced, for example by its liveness probe, is started in the
//! same sync as it is killed. Upstream then measures the back-off from the exit of the container
//! before it ([`CrashLoopBackOff::after_kill`]): one that lived longer than the delay restarts at once.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule};

use crate::pod::{ContainerKind, RestartPolicy};

/// A container that ran longer is not crash-looping.
pub const RESET_AFTER: Duration = Duration::from_secs(600);

/// The decision after a container's exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartDecision {
    /// It stays exited.
    NoRestart,
    /// It is restarted.
    Restart,
    /// A rule restarts all containers of the pod.
    RestartAll,
}

/// Whether a container's exit is the end of a start that the runtime undid because its caller was gone,
/// as when the caller was killed: the container never ran, and is to be created again under the same
/// restart count. `exit_reason` and `exit_message` are the runtime's (containerd's wording).
pub fn start_was_cancelled(exit_reason: &str, exit_message: &str) -> bool {
    exit_reason == "StartError" && exit_message.contains("context canceled")
}

/// Decides after a container has exited by itself; for one that a probe has killed, see
/// [`after_kill`]. Rules apply only to containers with a restart policy of their own; the first
/// matching one is used.
pub fn after_exit(
    kind: ContainerKind,
    container: &Container,
    pod_policy: RestartPolicy,
    exit_code: i32,
) -> RestartDecision {
    if kind == ContainerKind::Ephemeral {
        return RestartDecision::NoRestart;
    }
    let own = container.restart_policy.as_deref();
    let action = matching_rule(container, exit_code).map(|rule| rule.action.as_str());
    match action {
        Some("RestartAllContainers") => return RestartDecision::RestartAll,
        // Completed init containers are never restarted.
        _ if kind == ContainerKind::Init && exit_code == 0 => return RestartDecision::NoRestart,
        Some("Restart") => return RestartDecision::Restart,
        _ => {}
    }
    let policy = own.map_or(pod_policy, |own| RestartPolicy::parse(Some(own)));
    policy_decision(policy, exit_code)
}

/// Decides after the container was stopped because of a liveness or startup probe or a changed spec.
pub fn after_kill(
    kind: ContainerKind,
    container: &Container,
    pod_policy: RestartPolicy,
) -> RestartDecision {
    let own = container.restart_policy.as_deref();
    let policy = own.map_or(pod_policy, |own| RestartPolicy::parse(Some(own)));
    match (kind, policy) {
        (ContainerKind::Ephemeral, _) | (_, RestartPolicy::Never) => RestartDecision::NoRestart,
        _ => RestartDecision::Restart,
    }
}

fn policy_decision(policy: RestartPolicy, exit_code: i32) -> RestartDecision {
    match policy {
        RestartPolicy::Always => RestartDecision::Restart,
        RestartPolicy::OnFailure if exit_code != 0 => RestartDecision::Restart,
        RestartPolicy::OnFailure | RestartPolicy::Never => RestartDecision::NoRestart,
    }
}

/// The first rule that matches an exit code.
pub fn matching_rule(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy.as_ref()?;
    container
        .restart_policy_rules
        .iter()
        .flatten()
        .find(|rule| {
            rule.exit_codes.as_ref().is_some_and(|codes| {
                let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
                match codes.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    _ => false,
                }
            })
        })
}

/// The last exit of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerExit {
    /// The attempt that exited.
    pub attempt: u32,
    /// The step that it was created with, if known.
    pub step: Option<u32>,
    /// When it started; `None` if it never ran.
    pub started_at: Option<Timestamp>,
    /// When it exited.
    pub finished_at: Timestamp,
    /// Whether its name, image or resources differ from the manifest.
    pub spec_changed: bool,
}

/// The next start of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextStart {
    /// The step of the new container.
    pub step: u32,
    /// The delay after the exit.
    pub delay: Duration,
    /// The earliest time of the start.
    pub not_before: Timestamp,
}

/// The delays of crash-looping containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashLoopBackOff {
    /// The delay after the second start.
    pub initial: Duration,
    /// The longest delay.
    pub cap: Duration,
}

impl Default for CrashLoopBackOff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            cap: Duration::from_secs(300),
        }
    }
}

impl CrashLoopBackOff {
    /// With `crashLoopBackOff.maxContainerRestartPeriod` as the cap. One below the default initial delay
    /// is the initial delay as well.
    pub fn with_cap(cap: Duration) -> Self {
        Self {
            initial: Self::default().initial.min(cap),
            cap,
        }
    }

    /// The next start after an exit. The module has the rules.
    pub fn after(&self, exit: &ContainerExit) -> NextStart {
        let step = exit.step.unwrap_or(exit.attempt);
        let (delay, next) = if exit.spec_changed || ran_long(exit) {
            (Duration::ZERO, 1)
        } else {
            (self.delay(step), step.saturating_add(1))
        };
        let signed_delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::ZERO);
        let not_before = exit
            .finished_at
            .checked_add(signed_delay)
            .unwrap_or(Timestamp::MAX);
        NextStart {
            step: next,
            delay,
            not_before,
        }
    }

    /// The next start after a container was killed to be replaced; `previous_exit` is the time when the
    /// container before it exited, if there was one.
    pub fn after_kill(&self, exit: &ContainerExit, previous_exit: Option<Timestamp>) -> NextStart {
        let next = self.after(exit);
        // Without a dead container upstream does not count the restart either.
        let is_first = previous_exit.is_none() && exit.attempt == 0 && !exit.spec_changed;
        let since = previous_exit.or(exit.started_at);
        let lived = since.map(|since| exit.finished_at.duration_since(since));
        let delay = SignedDuration::try_from(next.delay).unwrap_or(SignedDuration::MAX);
        if !is_first && lived.is_none_or(|lived| lived < delay) {
            return next;
        }
        NextStart {
            step: if is_first { 0 } else { next.step },
            delay: Duration::ZERO,
            not_before: exit.finished_at,
        }
    }

    /// The delay after a step.
    pub fn delay(&self, step: u32) -> Duration {
        let Some(doublings) = step.checked_sub(1) else {
            return Duration::ZERO;
        };
        // Thirty-one doublings exceed any cap.
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.initial
            .checked_mul(factor)
            .map_or(self.cap, |delay| delay.min(self.cap))
    }
}

fn ran_long(exit: &ContainerExit) -> bool {
    exit.started_at.is_some_and(|started| {
        exit.finished_at.duration_since(started)
            > SignedDuration::from_secs(RESET_AFTER.as_secs() as i64)
    })
}

#[cfg(test)]
mod tests;
