//! A pod in one line of a table, its STATUS computed as `kubectl` does.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};

use super::text;

/// The summary of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSummary {
    /// Ready containers.
    pub ready: usize,
    /// Containers and sidecars.
    pub total: usize,
    /// Phase or reason, as kubectl.
    pub status: String,
    /// Restarts of all containers.
    pub restarts: i32,
    /// When the last container restarted.
    pub last_restart: Option<Timestamp>,
}

impl PodSummary {
    /// Restarts with the time since the last one.
    pub fn restarts(&self, now: Timestamp) -> String {
        match self.last_restart {
            Some(last) if self.restarts > 0 => {
                format!(
                    "{} ({} ago)",
                    self.restarts,
                    text::age(seconds_since(last, now))
                )
            }
            _ => self.restarts.to_string(),
        }
    }
}

/// Whole seconds from `then` to `now`.
pub fn seconds_since(then: Timestamp, now: Timestamp) -> i64 {
    now.as_second() - then.as_second()
}

/// Summarizes a pod object with its status.
pub fn summarize(pod: &Pod) -> PodSummary {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let spec = pod.spec.as_ref();
    let init_containers: &[Container] = spec
        .and_then(|s| s.init_containers.as_deref())
        .unwrap_or(&[]);
    let main_count = spec.map_or(0, |spec| spec.containers.len());
    let mut summary = PodSummary {
        ready: 0,
        total: main_count
            + init_containers
                .iter()
                .filter(|container| is_sidecar(container))
                .count(),
        status: status
            .reason
            .clone()
            .or_else(|| status.phase.clone())
            .unwrap_or_default(),
        restarts: 0,
        last_restart: None,
    };
    if summary.status.is_empty() {
        summary.status = "Unknown".to_owned();
    }
    let sidecars = summarize_init_containers(&mut summary, status, init_containers);
    let initialized = condition(status, "Initialized");
    if sidecars.initializing && !initialized {
        return with_termination(summary, pod, status);
    }
    summary.restarts = sidecars.restarts;
    summary.last_restart = sidecars.last_restart;
    summarize_containers(&mut summary, status);
    with_termination(summary, pod, status)
}

struct Sidecars {
    initializing: bool,
    restarts: i32,
    last_restart: Option<Timestamp>,
}

/// Adds the init containers; while one of them has not completed, it determines the status.
fn summarize_init_containers(
    summary: &mut PodSummary,
    status: &PodStatus,
    init_containers: &[Container],
) -> Sidecars {
    let mut sidecars = Sidecars {
        initializing: false,
        restarts: 0,
        last_restart: None,
    };
    let statuses = status.init_container_statuses.as_deref().unwrap_or(&[]);
    for (at, container) in statuses.iter().enumerate() {
        let sidecar = init_containers
            .iter()
            .any(|init| init.name == container.name && is_sidecar(init));
        summary.restarts += container.restart_count;
        summary.last_restart = summary.last_restart.max(last_end(container));
        if sidecar {
            sidecars.restarts += container.restart_count;
            sidecars.last_restart = sidecars.last_restart.max(last_end(container));
        }
        let state = container.state.clone().unwrap_or_default();
        if state
            .terminated
            .as_ref()
            .is_some_and(|ended| ended.exit_code == 0)
        {
            continue;
        }
        if sidecar && container.started == Some(true) {
            summary.ready += usize::from(container.ready);
            continue;
        }
        summary.status = if state.terminated.is_some() {
            format!("Init:{}", termination_reason(container))
        } else {
            let waiting = state
                .waiting
                .and_then(|waiting| waiting.reason)
                .unwrap_or_default();
            if waiting.is_empty() || waiting == "PodInitializing" {
                format!("Init:{at}/{}", init_containers.len())
            } else {
                format!("Init:{waiting}")
            }
        };
        sidecars.initializing = true;
        break;
    }
    sidecars
}

fn summarize_containers(summary: &mut PodSummary, status: &PodStatus) {
    let mut running = false;
    let statuses = status.container_statuses.as_deref().unwrap_or(&[]);
    for container in statuses.iter().rev() {
        summary.restarts += container.restart_count;
        summary.last_restart = summary.last_restart.max(last_end(container));
        let state = container.state.clone().unwrap_or_default();
        let waiting = state
            .waiting
            .and_then(|waiting| waiting.reason)
            .unwrap_or_default();
        if !waiting.is_empty() {
            summary.status = waiting;
        } else if state.terminated.is_some() {
            summary.status = termination_reason(container);
        } else if container.ready && state.running.is_some() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.status == "Completed" && running {
        let ready = condition(status, "Ready");
        summary.status = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}

fn with_termination(mut summary: PodSummary, pod: &Pod, status: &PodStatus) -> PodSummary {
    let phase = status.phase.as_deref().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() && phase != "Succeeded" && phase != "Failed" {
        summary.status = "Terminating".to_owned();
    }
    summary
}

fn termination_reason(container: &ContainerStatus) -> String {
    let ended = container
        .state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let Some(ended) = ended else {
        return String::new();
    };
    match (
        ended.reason.as_deref().unwrap_or_default(),
        ended.signal.unwrap_or(0),
    ) {
        ("", 0) => format!("ExitCode:{}", ended.exit_code),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn last_end(container: &ContainerStatus) -> Option<Timestamp> {
    let ended = container.last_state.as_ref()?.terminated.as_ref()?;
    ended.finished_at.as_ref().map(|time| time.0)
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn condition(status: &PodStatus, kind: &str) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or(&[]);
    conditions
        .iter()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
