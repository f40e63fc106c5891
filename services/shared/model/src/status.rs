//! The status of a pod, computed from facts.
//!
//! The same facts always give the same status: no clock is read, and each time
//! stamp comes from a fact (a container's start, a verdict, a decision) or from
//! the status that stood before. So a reporter that was restarted, and even one
//! that lost what it had kept, says the same again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    HostIP, LinuxContainerUser, PodIP, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::constants::phase;
use crate::ids::{ContainerId, SandboxId};
use crate::pod::Manifest;
use crate::probe::ProbeKind;
use crate::qos;

mod conditions;
mod containers;
mod end;
mod phases;
mod resources;
mod restarting;
mod state;

pub use resources::Actual;

/// What the runtime says of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerPhase {
    /// Made and not started.
    Created,
    /// Started and not ended.
    Running,
    /// Ended.
    Exited,
    /// The runtime itself does not know.
    Unknown,
}

/// One container in the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// The runtime's id.
    pub id: ContainerId,
    /// The sandbox that it lives in.
    pub sandbox_id: SandboxId,
    /// Its name in the pod.
    pub name: String,
    /// The restart count it was made with.
    pub attempt: u32,
    /// The image by the name it was asked for.
    pub image: String,
    /// The image as the runtime names it.
    pub image_id: String,
    /// What the runtime says of it.
    pub phase: ContainerPhase,
    /// What it has, where the runtime says so.
    pub actual: Option<Actual>,
    /// Whom its first process runs as, where the runtime says so.
    pub user: Option<LinuxContainerUser>,
    /// Once it ended.
    pub exit_code: i32,
    /// Once it ended: `Completed`, `Error`, `OOMKilled`…
    pub reason: String,
    /// Its last words.
    pub message: String,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// One sandbox in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: SandboxId,
    /// How many there were before it.
    pub attempt: u32,
    /// Whether it can hold containers.
    pub ready: bool,
    /// The pod's addresses; none on the host's network.
    pub ips: Vec<String>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Whether it is on the host's network.
    pub host_network: bool,
    /// What the runtime runs it with; empty for its default.
    pub runtime_handler: String,
}

/// What a probe has found of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The container; another id has other verdicts.
    pub container_id: ContainerId,
    /// Which probe.
    pub kind: ProbeKind,
    /// True for success, false for failure and for not known.
    pub success: bool,
    /// Since when it stands.
    pub since: Option<Timestamp>,
}

/// Why a container does not run though it should.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The container's name.
    pub container: String,
    /// `ErrImagePull`, `CrashLoopBackOff`…; empty when there is nothing to say.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Restarts so far, for a container that the runtime no longer holds.
    pub restarts: u32,
}

/// The decision that a pod never runs again here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// `Failed` or `Succeeded`.
    pub phase: String,
    /// `Evicted`, `DeadlineExceeded`…; empty when the pod ended by itself.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When it was decided.
    pub decided_at: Option<Timestamp>,
    /// The node ended the pod and not the pod itself.
    pub disruption_target: bool,
}

/// A change of a pod's resources that is not allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingResize {
    /// `Deferred` or `Infeasible`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// A change of a pod's resources that is allocated, and on its way to running containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resizing {
    /// Why the last try failed; empty before it does.
    pub error: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// The manifest's generation then.
    pub generation: i64,
    /// What running containers have meanwhile, by name.
    pub actual: BTreeMap<String, ResourceRequirements>,
}

/// How far a pod has come on its way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It is kept running.
    #[default]
    Syncing,
    /// It is being stopped.
    Terminating,
    /// All of its containers are stopped for good.
    Terminated,
}

/// Everything that a status follows from.
#[derive(Clone, Debug)]
pub struct StatusFacts<'a> {
    /// What should run.
    pub manifest: &'a Manifest,
    /// Newest first.
    pub sandboxes: &'a [Sandbox],
    /// Newest first within one name.
    pub containers: &'a [Container],
    /// Of this pod's containers.
    pub verdicts: &'a [Verdict],
    /// At most one for each container.
    pub notes: &'a [Note],
    /// A change of its resources that is not allocated.
    pub resize: Option<&'a PendingResize>,
    /// A change of its resources that is under way.
    pub resizing: Option<&'a Resizing>,
    /// How far the pod has come.
    pub stage: Stage,
    /// Why it never runs again, once that is decided.
    pub terminal: Option<&'a Terminal>,
    /// Whoever runs the pod decides that it has come to its end, and says so by `terminal`: an exit
    /// that looks like the end may be a start that was lost, or a stop on the way to a restart.
    pub ends_are_decided: bool,
    /// When this node took the pod up.
    pub acknowledged_at: Option<Timestamp>,
    /// The node's addresses, primary first.
    pub host_ips: &'a [String],
    /// The first part of container ids: `containerd`.
    pub runtime: &'a str,
    /// The pod's runtime handler can make read-only what is mounted below a read-only mount.
    pub recursive_read_only: bool,
    /// The status that stood before.
    pub previous: Option<&'a PodStatus>,
}

/// Computes the status.
pub fn compute(facts: &StatusFacts<'_>) -> PodStatus {
    if let Some(refused) = end::refused(facts) {
        return refused;
    }
    let open = containers::statuses(facts);
    let mut lists = open.clone();
    if facts.stage == Stage::Terminated {
        end::seal(facts, &mut lists);
    }
    let ran_before = phases::regular_container_ran(facts);
    let mut phase = phases::phase(facts, &lists, ran_before);
    let undecided = facts.stage == Stage::Syncing && facts.terminal.is_none();
    if facts.ends_are_decided && undecided && is_terminal(&phase) {
        phase = if ran_before {
            phase::RUNNING
        } else {
            phase::PENDING
        }
        .to_owned();
    }
    let mut words = (None, None);
    if let Some(previous) = facts.previous {
        if let Some(known) = previous.phase.as_ref().filter(|known| is_terminal(known)) {
            // What has ended never comes back, and its end is not told differently.
            phase.clone_from(known);
        }
        if previous.phase.as_ref() == Some(&phase) {
            words = (previous.reason.clone(), previous.message.clone());
        }
    }
    if let Some(terminal) = facts.terminal {
        let sticky = facts
            .previous
            .and_then(|p| p.phase.as_deref())
            .is_some_and(is_terminal);
        if !sticky {
            phase = if terminal.phase == phase::SUCCEEDED {
                phase::SUCCEEDED
            } else {
                phase::FAILED
            }
            .to_owned();
        }
        words = (
            given(&terminal.reason).or(words.0),
            given(&terminal.message).or(words.1),
        );
    }
    let conditions = if end::leaves_gaps(facts, &open) {
        let unsealed = phases::phase(facts, &open, ran_before);
        let conditions = end::conditions(facts, &open, &unsealed, &phase);
        phase = end::last_phase(facts, phase);
        conditions
    } else {
        if facts.stage == Stage::Terminated {
            phase = end::last_phase(facts, phase);
        }
        conditions::all(facts, &lists, &phase)
    };
    let pod_ips = pod_ips(facts);
    let host_ips = host_ips(facts);
    let spec = facts.manifest.spec();
    let (whole, allocated) = crate::resources::pod_status_resources(spec);
    let start = facts.acknowledged_at.map(second);
    PodStatus {
        phase: Some(phase),
        reason: words.0,
        message: words.1,
        conditions: Some(conditions),
        container_statuses: some(lists.regular),
        init_container_statuses: some(lists.init),
        ephemeral_container_statuses: some(lists.ephemeral),
        host_ip: host_ips.first().cloned(),
        host_ips: some(host_ips.into_iter().map(|ip| HostIP { ip }).collect()),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: some(pod_ips.into_iter().map(|ip| PodIP { ip }).collect()),
        qos_class: Some(qos::class(spec).as_str().to_owned()),
        start_time: start.or_else(|| {
            facts
                .previous
                .and_then(|previous| previous.start_time.clone())
        }),
        observed_generation: facts.manifest.generation(),
        resources: Some(whole).filter(|whole| whole.requests.is_some() || whole.limits.is_some()),
        allocated_resources: Some(allocated).filter(|list| !list.is_empty()),
        ..PodStatus::default()
    }
}

/// Whether the status says that the pod is ready.
pub fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|c| c.type_ == crate::constants::condition::READY && c.status == "True")
}

/// Whether a phase is an end.
pub fn is_terminal(phase: &str) -> bool {
    phase == phase::SUCCEEDED || phase == phase::FAILED
}

/// Whether the pod needs a sandbox made, by what the runtime holds: there is
/// none, more than one, none that is ready, one on the wrong network, or one
/// without an address.
pub fn needs_sandbox(manifest: &Manifest, sandboxes: &[Sandbox]) -> bool {
    let Some(newest) = sandboxes.first() else {
        return true;
    };
    sandboxes.iter().filter(|sandbox| sandbox.ready).count() > 1
        || !newest.ready
        || newest.host_network != manifest.host_network()
        || (!newest.host_network && newest.ips.is_empty())
}

/// The API keeps whole seconds.
fn second(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn host_ips(facts: &StatusFacts<'_>) -> Vec<String> {
    if !facts.host_ips.is_empty() {
        return facts.host_ips.iter().take(2).cloned().collect();
    }
    let known = facts
        .previous
        .and_then(|previous| previous.host_ips.as_ref());
    known
        .into_iter()
        .flatten()
        .map(|host| host.ip.clone())
        .collect()
}

/// One address of the node's own family first, then one of the other.
fn pod_ips(facts: &StatusFacts<'_>) -> Vec<String> {
    let found = match facts.sandboxes.first() {
        Some(newest) if newest.ready || facts.stage != Stage::Syncing => newest.ips.as_slice(),
        _ => &[],
    };
    let six_first = facts.host_ips.first().is_some_and(|ip| ip.contains(':'));
    let one = |six: bool| found.iter().find(|ip| ip.contains(':') == six).cloned();
    let mut ips: Vec<String> = [one(six_first), one(!six_first)]
        .into_iter()
        .flatten()
        .collect();
    if ips.is_empty() && facts.manifest.host_network() {
        ips = host_ips(facts);
    }
    let stands = facts.sandboxes.iter().any(|sandbox| sandbox.ready);
    if ips.is_empty() && (facts.stage != Stage::Syncing || !stands) {
        // The address of a pod that is leaving is told to the end, and so is that of a sandbox that
        // no longer stands until another does. That it went may be heard before why it went.
        let known = facts
            .previous
            .and_then(|previous| previous.pod_ips.as_ref());
        ips = known
            .into_iter()
            .flatten()
            .map(|pod| pod.ip.clone())
            .collect();
    }
    ips
}

#[cfg(test)]
mod tests;
