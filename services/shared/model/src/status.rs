//! Computes the status of a pod.
//!
//! The same inputs always give the same status: each timestamp is that of a fact (a container's start,
//! a probe's result, a decision) or comes from the previous status. A reporter that restarts, even
//! without its state, publishes the same status again.

use core::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::constants::phase;
use crate::pod::Manifest;
use crate::qos;

mod condition_state;
mod conditions;
mod containers;
mod devices;
mod inputs;
mod lookup;
mod phases;
mod readiness;
mod replacement;
mod resources;
mod restart_all;
mod state;
mod termination;
mod transition_times;
mod volume_mounts;

pub use inputs::{
    ContainerPhase, ContainerProbeResult, DeviceStatus, PendingResize, PodWorkerState,
    ResizeInProgress, RuntimeContainer, RuntimeSandbox, StatusInputs, TerminalDecision, WaitReason,
};
pub use resources::ActualResources;

/// Computes the status.
pub fn compute(facts: &StatusInputs<'_>) -> PodStatus {
    if let Some(rejected) = termination::rejected(facts) {
        return rejected;
    }
    let observed = containers::compute(facts);
    let mut statuses = observed.clone();
    if facts.worker_state == PodWorkerState::Terminated {
        termination::finalize(facts, &mut statuses);
    }
    let ran_before = phases::regular_container_ran(facts);
    let mut phase = phases::phase(facts, &statuses, ran_before);
    let undecided = facts.worker_state == PodWorkerState::Syncing && facts.terminal.is_none();
    if facts.defer_terminal_phase && undecided && is_terminal(&phase) {
        phase = if ran_before {
            phase::RUNNING
        } else {
            phase::PENDING
        }
        .to_owned();
    }
    let mut reason_and_message = (None, None);
    if let Some(previous) = facts.previous {
        if let Some(known) = previous.phase.as_ref().filter(|known| is_terminal(known)) {
            // Terminal phases never change.
            phase.clone_from(known);
        }
        if previous.phase.as_ref() == Some(&phase) {
            reason_and_message = (previous.reason.clone(), previous.message.clone());
        }
    }
    if let Some(terminal) = facts.terminal {
        let is_terminal_already = facts
            .previous
            .and_then(|p| p.phase.as_deref())
            .is_some_and(is_terminal);
        if !is_terminal_already {
            phase = if terminal.phase == phase::SUCCEEDED {
                phase::SUCCEEDED
            } else {
                phase::FAILED
            }
            .to_owned();
        }
        reason_and_message = (
            non_empty(&terminal.reason).or(reason_and_message.0),
            non_empty(&terminal.message).or(reason_and_message.1),
        );
    }
    let conditions = if termination::has_unreported_exits(facts, &observed) {
        let observed_phase = phases::phase(facts, &observed, ran_before);
        let conditions = termination::final_conditions(facts, &observed, &observed_phase, &phase);
        phase = termination::final_phase(facts, phase);
        conditions
    } else {
        if facts.worker_state == PodWorkerState::Terminated {
            phase = termination::final_phase(facts, phase);
        }
        conditions::compute(facts, &statuses, &phase)
    };
    let pod_ips = pod_ips(facts);
    let host_ips = host_ips(facts);
    let spec = facts.manifest.spec();
    let reported = facts.pod_level_resources;
    let reported = reported.then(|| crate::resources::pod_status_resources(spec));
    let (resources, allocated) = reported.unzip();
    let start_time = facts.acknowledged_at.map(whole_second);
    PodStatus {
        phase: Some(phase),
        reason: reason_and_message.0,
        message: reason_and_message.1,
        conditions: Some(conditions),
        container_statuses: non_empty_list(statuses.regular),
        init_container_statuses: non_empty_list(statuses.init),
        ephemeral_container_statuses: non_empty_list(statuses.ephemeral),
        host_ip: host_ips.first().cloned(),
        host_ips: non_empty_list(host_ips.into_iter().map(|ip| HostIP { ip }).collect()),
        pod_ip: pod_ips.first().cloned(),
        pod_ips: non_empty_list(pod_ips.into_iter().map(|ip| PodIP { ip }).collect()),
        qos_class: Some(qos::class(spec).as_str().to_owned()),
        start_time: start_time.or_else(|| {
            facts
                .previous
                .and_then(|previous| previous.start_time.clone())
        }),
        observed_generation: facts.manifest.generation(),
        resources: resources.filter(|it| it.requests.is_some() || it.limits.is_some()),
        allocated_resources: allocated.filter(|list| !list.is_empty()),
        ..PodStatus::default()
    }
}

/// Whether a status has the condition `Ready`.
pub fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|c| c.type_ == crate::constants::condition::READY && c.status == "True")
}

/// Whether a phase is terminal.
pub fn is_terminal(phase: &str) -> bool {
    phase == phase::SUCCEEDED || phase == phase::FAILED
}

/// Whether the pod needs a new sandbox: there is none, more than one is ready, the newest is not ready,
/// is on the wrong network, or has no IP.
pub fn needs_sandbox(manifest: &Manifest, sandboxes: &[RuntimeSandbox]) -> bool {
    let Some(newest) = sandboxes.first() else {
        return true;
    };
    sandboxes.iter().filter(|sandbox| sandbox.ready).count() > 1
        || !newest.ready
        || newest.host_network != manifest.host_network()
        || (!newest.host_network && newest.ips.is_empty())
}

/// The API stores whole seconds.
fn whole_second(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn non_empty_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn host_ips(facts: &StatusInputs<'_>) -> Vec<String> {
    if !facts.host_ips.is_empty() {
        return facts.host_ips.iter().take(2).cloned().collect();
    }
    let previous = facts
        .previous
        .and_then(|previous| previous.host_ips.as_ref());
    previous
        .into_iter()
        .flatten()
        .map(|host| host.ip.clone())
        .collect()
}

/// The first IP of the node's primary family, then the first one of the other family. Addresses of the
/// runtime may be in any notation.
pub fn sorted_pod_ips(ips: &[String], host_ips: &[String]) -> Vec<String> {
    let parse = |ip: &String| ip.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let ipv6_first = host_ips
        .first()
        .and_then(parse)
        .is_some_and(|ip| ip.is_ipv6());
    let first = |ipv6: bool| ips.iter().filter_map(parse).find(|ip| ip.is_ipv6() == ipv6);
    let sorted = [first(ipv6_first), first(!ipv6_first)];
    sorted
        .into_iter()
        .flatten()
        .map(|ip| ip.to_string())
        .collect()
}

fn pod_ips(facts: &StatusInputs<'_>) -> Vec<String> {
    let sandbox_ips = match facts.sandboxes.first() {
        Some(newest) if newest.ready || facts.worker_state != PodWorkerState::Syncing => {
            newest.ips.as_slice()
        }
        _ => &[],
    };
    let mut ips = sorted_pod_ips(sandbox_ips, facts.host_ips);
    if ips.is_empty() && facts.manifest.host_network() {
        ips = host_ips(facts);
    }
    let has_ready_sandbox = facts.sandboxes.iter().any(|sandbox| sandbox.ready);
    if ips.is_empty() && (facts.worker_state != PodWorkerState::Syncing || !has_ready_sandbox) {
        // A terminating pod keeps its IPs to the end, and others theirs until the next sandbox is
        // ready: the loss of a sandbox may be observed before its reason.
        let previous = facts
            .previous
            .and_then(|previous| previous.pod_ips.as_ref());
        ips = previous
            .into_iter()
            .flatten()
            .map(|pod| pod.ip.clone())
            .collect();
    }
    ips
}

#[cfg(test)]
mod tests;
