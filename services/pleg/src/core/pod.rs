use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use polylet_wire::pleg::v1::{Container, ContainerPhase, PodState, Sandbox};
use polylet_wire::time;

use super::later;
use super::view::{ContainerView, PodView, SandboxView};

/// A killed container may be told to have been out of memory only after it was told dead.
const OOM_NEWS: Duration = Duration::from_secs(2);

/// One look at a pod: what the lists said, and what was asked about what had changed.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub view: PodView,
    pub fresh: Fresh,
}

/// Answers about single sandboxes and containers, or why there is none.
#[derive(Debug, Clone, Default)]
pub struct Fresh {
    pub sandboxes: BTreeMap<String, Result<Sandbox, String>>,
    pub containers: BTreeMap<String, Result<Container, String>>,
}

/// What is known well enough not to be asked about again while the lists say the same.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    sandboxes: BTreeMap<String, bool>,
    containers: BTreeMap<String, ContainerPhase>,
}

/// What has to be asked about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Missing {
    pub sandboxes: Vec<String>,
    pub containers: Vec<String>,
}

pub(super) fn known(state: &PodState, now: Timestamp) -> Known {
    // After a failed look nothing says which of the parts is the last known only.
    if !state.inspect_error.is_empty() {
        return Known::default();
    }
    let settled = |s: &&Sandbox| !s.ready || s.host_network || !s.ips.is_empty();
    Known {
        sandboxes: state
            .sandboxes
            .iter()
            .filter(settled)
            .map(|s| (s.id.clone(), s.ready))
            .collect(),
        containers: state
            .containers
            .iter()
            .filter(|c| unsettled_until(c).is_none_or(|until| until <= now))
            .map(|c| (c.id.clone(), c.phase()))
            .collect(),
    }
}

/// What of `view` is not known. A container never goes back to an earlier phase, so what was told
/// of a phase stays true in it.
pub fn missing(view: &PodView, known: &Known) -> Missing {
    Missing {
        sandboxes: view
            .sandboxes
            .iter()
            .filter(|(id, listed)| known.sandboxes.get(*id) != Some(&listed.ready))
            .map(|(id, _)| id.clone())
            .collect(),
        containers: view
            .containers
            .iter()
            .filter(|(id, listed)| known.containers.get(*id) != Some(&listed.phase))
            .map(|(id, _)| id.clone())
            .collect(),
    }
}

/// The pod after a look: fresh answers over what was known before, for exactly what is listed.
/// Time and cause are left to the caller.
pub(super) fn merge(before: Option<&PodState>, seen: Seen) -> PodState {
    let Seen { view, mut fresh } = seen;
    let mut errors = Vec::new();
    let mut state = PodState {
        r#ref: Some(view.pod),
        ..Default::default()
    };
    for (id, listed) in &view.sandboxes {
        let old = before.and_then(|b| b.sandboxes.iter().find(|s| s.id == *id));
        let new = fresh.sandboxes.remove(id);
        let or_old = || old.cloned().unwrap_or_else(|| bare_sandbox(id, listed));
        state.sandboxes.push(settle(new, &mut errors, or_old));
    }
    for (id, listed) in &view.containers {
        let old = before.and_then(|b| b.containers.iter().find(|c| c.id == *id));
        let new = fresh.containers.remove(id);
        let or_old = || old.cloned().unwrap_or_else(|| bare_container(id, listed));
        state.containers.push(settle(new, &mut errors, or_old));
    }
    order(&mut state);
    state.inspect_error = errors.join("; ");
    state
}

fn settle<T>(
    new: Option<Result<T, String>>,
    errors: &mut Vec<String>,
    or_old: impl FnOnce() -> T,
) -> T {
    match new {
        Some(Ok(new)) => new,
        Some(Err(error)) => {
            errors.push(error);
            or_old()
        }
        None => or_old(),
    }
}

fn bare_sandbox(id: &str, listed: &SandboxView) -> Sandbox {
    Sandbox {
        id: id.to_owned(),
        attempt: listed.attempt,
        ready: listed.ready,
        created_at: time::from_nanos(listed.created_at).map(time::to_wire),
        ..Default::default()
    }
}

fn bare_container(id: &str, listed: &ContainerView) -> Container {
    Container {
        id: id.to_owned(),
        sandbox_id: listed.sandbox_id.clone(),
        name: listed.name.clone(),
        attempt: listed.attempt,
        phase: listed.phase.into(),
        created_at: time::from_nanos(listed.created_at).map(time::to_wire),
        ..Default::default()
    }
}

// Newest first, and the same order whatever order the runtime listed them in.
fn order(state: &mut PodState) {
    let at = |t: &Option<prost_types::Timestamp>| t.map_or((0, 0), |t| (t.seconds, t.nanos));
    state
        .sandboxes
        .sort_by_cached_key(|s| Reverse((at(&s.created_at), s.attempt, s.id.clone())));
    state.containers.sort_by_cached_key(|c| {
        let age = Reverse((at(&c.created_at), c.attempt, c.id.clone()));
        (c.name.clone(), age)
    });
}

/// When the pod has to be looked at again though nothing told of a change.
pub(super) fn look_again_at(state: &PodState, now: Timestamp) -> Option<Timestamp> {
    state
        .containers
        .iter()
        .filter_map(unsettled_until)
        .filter(|until| *until > now)
        .min()
}

fn unsettled_until(container: &Container) -> Option<Timestamp> {
    let killed = container.phase() == ContainerPhase::Exited
        && container.exit_code == 137
        && container.reason == "Error";
    let finished = time::from_wire_opt(container.finished_at.as_ref())?;
    killed.then(|| later(finished, OOM_NEWS))
}

/// Whether two states tell the same; when and why they were seen is not part of it.
pub(super) fn same(a: &PodState, b: &PodState) -> bool {
    a.sandboxes == b.sandboxes
        && a.containers == b.containers
        && a.inspect_error == b.inspect_error
        && a.r#ref == b.r#ref
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
