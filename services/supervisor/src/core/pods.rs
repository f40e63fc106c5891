//! A pod in one line, its STATUS computed as `kubectl` computes it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};

use super::text;

/// What one line tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Containers that are ready.
    pub ready: usize,
    /// Containers that should be.
    pub total: usize,
    /// Phase or reason.
    pub status: String,
    /// Restarts of all containers.
    pub restarts: i32,
    /// When the last of them was.
    pub last_restart: Option<Timestamp>,
}

impl Line {
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

/// Computes the line of a pod that carries its status.
pub fn line(pod: &Pod) -> Line {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let spec = pod.spec.as_ref();
    let inits: &[Container] = spec
        .and_then(|s| s.init_containers.as_deref())
        .unwrap_or(&[]);
    let mains = spec.map_or(0, |spec| spec.containers.len());
    let mut line = Line {
        ready: 0,
        total: mains
            + inits
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
    if line.status.is_empty() {
        line.status = "Unknown".to_owned();
    }
    let sidecars = init_containers(&mut line, status, inits);
    let initialized = condition(status, "Initialized");
    if sidecars.initializing && !initialized {
        return terminating(line, pod, status);
    }
    line.restarts = sidecars.restarts;
    line.last_restart = sidecars.last_restart;
    main_containers(&mut line, status);
    terminating(line, pod, status)
}

struct Sidecars {
    initializing: bool,
    restarts: i32,
    last_restart: Option<Timestamp>,
}

/// Counts init containers in; while one of them is not done, the status is its state.
fn init_containers(line: &mut Line, status: &PodStatus, inits: &[Container]) -> Sidecars {
    let mut sidecars = Sidecars {
        initializing: false,
        restarts: 0,
        last_restart: None,
    };
    let statuses = status.init_container_statuses.as_deref().unwrap_or(&[]);
    for (at, container) in statuses.iter().enumerate() {
        let sidecar = inits
            .iter()
            .any(|init| init.name == container.name && is_sidecar(init));
        line.restarts += container.restart_count;
        line.last_restart = line.last_restart.max(last_end(container));
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
            line.ready += usize::from(container.ready);
            continue;
        }
        line.status = if state.terminated.is_some() {
            format!("Init:{}", ended_as(container))
        } else {
            let waiting = state
                .waiting
                .and_then(|waiting| waiting.reason)
                .unwrap_or_default();
            if waiting.is_empty() || waiting == "PodInitializing" {
                format!("Init:{at}/{}", inits.len())
            } else {
                format!("Init:{waiting}")
            }
        };
        sidecars.initializing = true;
        break;
    }
    sidecars
}

fn main_containers(line: &mut Line, status: &PodStatus) {
    let mut running = false;
    let statuses = status.container_statuses.as_deref().unwrap_or(&[]);
    for container in statuses.iter().rev() {
        line.restarts += container.restart_count;
        line.last_restart = line.last_restart.max(last_end(container));
        let state = container.state.clone().unwrap_or_default();
        let waiting = state
            .waiting
            .and_then(|waiting| waiting.reason)
            .unwrap_or_default();
        if !waiting.is_empty() {
            line.status = waiting;
        } else if state.terminated.is_some() {
            line.status = ended_as(container);
        } else if container.ready && state.running.is_some() {
            running = true;
            line.ready += 1;
        }
    }
    if line.status == "Completed" && running {
        let ready = condition(status, "Ready");
        line.status = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}

fn terminating(mut line: Line, pod: &Pod, status: &PodStatus) -> Line {
    let phase = status.phase.as_deref().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() && phase != "Succeeded" && phase != "Failed" {
        line.status = "Terminating".to_owned();
    }
    line
}

fn ended_as(container: &ContainerStatus) -> String {
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

/// Whether `query` names this pod: uid, name, or namespace/name.
pub fn is_named(query: &str, uid: &str, namespace: &str, name: &str) -> bool {
    query == uid || query == name || query.split_once('/') == Some((namespace, name))
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
