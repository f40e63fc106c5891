use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::status::ContainerPhase;
use polylet_schedule::TimePoint;

use super::listing::{ListedContainer, ListedPod, ListedSandbox};
use super::status::{ContainerStatus, PodStatus, SandboxStatus};

/// A runtime may report a killed container as out of memory only after it has reported it as exited.
const OOM_REASON_DELAY: Duration = Duration::from_secs(2);

/// Killed containers whose status was requested before the runtime was sure to know that they were
/// out of memory, and when to request it again.
pub(super) type OomChecks = BTreeMap<String, Timestamp>;

/// The result of one inspection: the pod's list entries, and the statuses requested for the changed
/// ones.
#[derive(Debug, Clone, Default)]
pub struct Inspected {
    pub listed: ListedPod,
    pub fresh: FreshStatuses,
}

/// Statuses of single sandboxes and containers, or why the runtime returned none.
#[derive(Debug, Clone, Default)]
pub struct FreshStatuses {
    pub sandboxes: BTreeMap<String, Result<SandboxStatus, String>>,
    pub containers: BTreeMap<String, Result<ContainerStatus, String>>,
}

/// The list entries whose cached status is final: it is not requested again while the entry is
/// unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CachedStatuses {
    sandboxes: BTreeMap<String, bool>,
    containers: BTreeMap<String, ContainerPhase>,
}

/// The ids whose status must be requested.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InspectTargets {
    pub sandboxes: Vec<String>,
    pub containers: Vec<String>,
}

/// The entries of a status that need not be requested again.
pub(super) fn cached_statuses(status: &PodStatus, oom_checks: &OomChecks) -> CachedStatuses {
    // An incomplete inspection does not say which entries are outdated.
    if !status.inspect_error.is_empty() {
        return CachedStatuses::default();
    }
    CachedStatuses {
        sandboxes: status
            .sandboxes
            .iter()
            .filter(|s| is_final(s))
            .map(|s| (s.id.clone(), s.ready))
            .collect(),
        containers: status
            .containers
            .iter()
            .filter(|c| !oom_checks.contains_key(&c.id))
            .map(|c| (c.id.clone(), c.phase))
            .collect(),
    }
}

/// Whether a sandbox's status holds as long as it is ready: its addresses are known.
pub(super) fn is_final(sandbox: &SandboxStatus) -> bool {
    !sandbox.ready || sandbox.host_network || !sandbox.ips.is_empty()
}

impl CachedStatuses {
    /// The statuses of all entries of a list.
    pub(super) fn from(listed: &ListedPod) -> Self {
        let sandboxes = listed.sandboxes.iter();
        let containers = listed.containers.iter();
        CachedStatuses {
            sandboxes: sandboxes.map(|(id, s)| (id.clone(), s.ready)).collect(),
            containers: containers.map(|(id, c)| (id.clone(), c.phase)).collect(),
        }
    }

    /// Has the status of an id requested.
    pub(super) fn remove(&mut self, id: &str) {
        self.sandboxes.remove(id);
        self.containers.remove(id);
    }
}

impl FreshStatuses {
    /// Whether the runtime has returned no status for an id.
    pub(super) fn has_errors(&self) -> bool {
        self.sandboxes.values().any(Result::is_err) || self.containers.values().any(Result::is_err)
    }
}

/// The listed ids without a cached status. A container never returns to an earlier phase, so its
/// status holds as long as its phase does.
pub fn inspect_targets(listed: &ListedPod, cached: &CachedStatuses) -> InspectTargets {
    InspectTargets {
        sandboxes: listed
            .sandboxes
            .iter()
            .filter(|(id, listed)| cached.sandboxes.get(*id) != Some(&listed.ready))
            .map(|(id, _)| id.clone())
            .collect(),
        containers: listed
            .containers
            .iter()
            .filter(|(id, listed)| cached.containers.get(*id) != Some(&listed.phase))
            .map(|(id, _)| id.clone())
            .collect(),
    }
}

/// The pod's status after an inspection: fresh statuses, else the previous ones, for exactly the
/// listed ids.
pub(super) fn merge(previous: Option<&PodStatus>, inspected: Inspected) -> PodStatus {
    let Inspected { listed, mut fresh } = inspected;
    let mut errors = Vec::new();
    let mut status = PodStatus {
        pod: listed.pod,
        // Kept as long as the pod: a vector that grows has room for four.
        sandboxes: Vec::with_capacity(listed.sandboxes.len()),
        containers: Vec::with_capacity(listed.containers.len()),
        ..Default::default()
    };
    for (id, listed) in &listed.sandboxes {
        let old = previous.and_then(|p| p.sandboxes.iter().find(|s| s.id == *id));
        let or_old = || {
            old.cloned()
                .unwrap_or_else(|| sandbox_from_list(id, listed))
        };
        let new = fresh.sandboxes.remove(id);
        status.sandboxes.push(choose(new, &mut errors, or_old));
    }
    for (id, listed) in &listed.containers {
        let old = previous.and_then(|p| p.containers.iter().find(|c| c.id == *id));
        let or_old = || {
            old.cloned()
                .unwrap_or_else(|| container_from_list(id, listed))
        };
        let new = fresh.containers.remove(id);
        status.containers.push(choose(new, &mut errors, or_old));
    }
    sort(&mut status);
    status.inspect_error = errors.join("; ");
    status
}

fn choose<T>(
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

fn sandbox_from_list(id: &str, listed: &ListedSandbox) -> SandboxStatus {
    SandboxStatus {
        id: id.to_owned(),
        attempt: listed.attempt,
        ready: listed.ready,
        created_at: listed.created_at,
        ..Default::default()
    }
}

fn container_from_list(id: &str, listed: &ListedContainer) -> ContainerStatus {
    ContainerStatus {
        sandbox_id: listed.sandbox_id.clone(),
        name: listed.name.clone(),
        attempt: listed.attempt,
        created_at: listed.created_at,
        ..ContainerStatus::new(id, listed.phase)
    }
}

// Newest first, independent of the order in which the runtime lists.
fn sort(status: &mut PodStatus) {
    status
        .sandboxes
        .sort_by_cached_key(|s| Reverse((s.created_at, s.attempt, s.id.clone())));
    status.containers.sort_by_cached_key(|c| {
        let age = Reverse((c.created_at, c.attempt, c.id.clone()));
        (c.name.clone(), age)
    });
}

/// The checks that are left after an inspection that requested statuses `at`: one that it requested
/// in time is done, one that it did not request or that failed is not.
pub(super) fn oom_checks(
    mut previous: OomChecks,
    inspected: &Inspected,
    at: Timestamp,
) -> OomChecks {
    previous.retain(|id, _| inspected.listed.containers.contains_key(id));
    for (id, status) in &inspected.fresh.containers {
        let Ok(status) = status else { continue };
        match oom_reason_until(status).filter(|until| at < *until) {
            Some(until) => drop(previous.insert(id.clone(), until)),
            None => drop(previous.remove(id)),
        }
    }
    previous
}

/// When the runtime is sure to know whether a killed container was out of memory.
fn oom_reason_until(container: &ContainerStatus) -> Option<Timestamp> {
    let killed = container.phase == ContainerPhase::Exited
        && container.exit_code == 137
        && container.reason == "Error";
    let finished = container.finished_at?;
    killed.then(|| finished.plus(OOM_REASON_DELAY))
}

#[cfg(test)]
#[path = "inspection_tests.rs"]
mod tests;
