use polylet_wire::status::v1::PodStatus;
use polylet_wire::supervisor::v1::ServiceStatus;
use serde_json::Value;

use crate::error::HarnessError;

/// A pod as reported by the node.
#[derive(Debug, Clone)]
pub struct PodView {
    /// Pod UID.
    pub uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// The `v1.PodStatus`.
    pub status: Value,
    /// The `v1.Pod` of this status.
    pub manifest: Value,
    /// Wait reasons of the pod.
    pub waiting_for: Vec<String>,
    /// Fields with data from an unavailable peer.
    pub stale: Vec<String>,
}

/// A container's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    /// Container name.
    pub name: String,
    /// Container id with its runtime scheme.
    pub id: String,
    /// Number of restarts.
    pub restarts: u64,
    /// Value of `ready`.
    pub ready: bool,
    /// `waiting`, `running` or `terminated`; empty when the status has no state.
    pub state: String,
    /// Reason of the state: `CrashLoopBackOff`, `Completed` …
    pub reason: String,
    /// Message of the state.
    pub message: String,
    /// Exit code of a terminated container.
    pub exit_code: Option<i64>,
}

impl PodView {
    /// Parses a response of the status reporter.
    ///
    /// # Errors
    /// Fails if the status or the manifest is not JSON.
    pub fn from_wire(pod: &PodStatus) -> Result<Self, HarnessError> {
        let reference = pod.r#ref.clone().unwrap_or_default();
        let json = |what, bytes: &[u8]| {
            if bytes.is_empty() {
                return Ok(Value::Null);
            }
            let from = format!("{}/{}", reference.namespace, reference.name);
            serde_json::from_slice(bytes).map_err(|source| HarnessError::Json {
                what,
                from,
                source,
            })
        };
        Ok(Self {
            status: json("status", &pod.status)?,
            manifest: json("manifest", &pod.manifest)?,
            uid: reference.uid.clone(),
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
            waiting_for: pod.waiting_for.clone(),
            stale: pod.stale.clone(),
        })
    }

    /// Pod phase: `Pending`, `Running`, `Succeeded`, `Failed`.
    pub fn phase(&self) -> &str {
        text(&self.status, "phase")
    }

    /// Reason of the pod status: `Evicted` …
    pub fn reason(&self) -> &str {
        text(&self.status, "reason")
    }

    /// Human-readable message of the pod status.
    pub fn message(&self) -> &str {
        text(&self.status, "message")
    }

    /// Pod IP address.
    pub fn ip(&self) -> &str {
        text(&self.status, "podIP")
    }

    /// Whether the condition `Ready` is `True`.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready")
            .is_some_and(|condition| text(condition, "status") == "True")
    }

    /// A condition of the status.
    pub fn condition(&self, kind: &str) -> Option<&Value> {
        let all = self.status.get("conditions")?.as_array()?;
        all.iter().find(|condition| text(condition, "type") == kind)
    }

    /// Container statuses, init containers first.
    pub fn containers(&self) -> Vec<ContainerView> {
        let lists = ["initContainerStatuses", "containerStatuses"];
        let all = lists
            .iter()
            .filter_map(|list| self.status.get(list)?.as_array());
        all.flatten().map(container).collect()
    }

    /// Status of the container with this name.
    pub fn container(&self, name: &str) -> Option<ContainerView> {
        self.containers()
            .into_iter()
            .find(|container| container.name == name)
    }

    /// Container ids and restart counts, which identify an undisturbed pod.
    pub fn identity(&self) -> Vec<(String, String, u64)> {
        let all = self.containers().into_iter();
        all.map(|container| (container.name, container.id, container.restarts))
            .collect()
    }

    /// A one-line summary for output and errors.
    pub fn line(&self) -> String {
        let mut line = format!("{}/{} {}", self.namespace, self.name, self.phase());
        if self.is_ready() {
            line.push_str(" Ready");
        }
        for part in [self.reason(), self.message()] {
            if !part.is_empty() {
                line.push_str(&format!(" {part}"));
            }
        }
        for container in self.containers() {
            line.push_str(&format!("; {}: {}", container.name, container.state));
            for part in [&container.reason, &container.message] {
                if !part.is_empty() {
                    line.push_str(&format!(" {part}"));
                }
            }
        }
        if !self.waiting_for.is_empty() {
            line.push_str(&format!("; waits for {}", self.waiting_for.join(", ")));
        }
        line
    }
}

fn container(value: &Value) -> ContainerView {
    let states = value.get("state").and_then(Value::as_object);
    let state = states.and_then(|states| states.iter().find(|(_, state)| !state.is_null()));
    let (kind, state) = state.map_or(("", &Value::Null), |(kind, state)| (kind.as_str(), state));
    ContainerView {
        name: text(value, "name").to_owned(),
        id: text(value, "containerID").to_owned(),
        restarts: value
            .get("restartCount")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
        ready: value
            .get("ready")
            .and_then(Value::as_bool)
            .unwrap_or_default(),
        state: kind.to_owned(),
        reason: text(state, "reason").to_owned(),
        message: text(state, "message").to_owned(),
        exit_code: state.get("exitCode").and_then(Value::as_i64),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A service as reported by the supervisor.
#[derive(Debug, Clone)]
pub struct SupervisedService {
    /// Service name.
    pub name: String,
    /// State: `SERVING`, `STARTING`, `BACKOFF` …
    pub health: String,
    /// Process id; zero without a process.
    pub pid: u32,
    /// Number of restarts.
    pub restarts: u32,
    /// Peers without a completed initial sync.
    pub behind: Vec<String>,
}

impl SupervisedService {
    /// Parses a response of the supervisor.
    pub fn from_wire(service: ServiceStatus) -> Self {
        let behind = service.peers.into_iter().filter(|peer| !peer.synced);
        Self {
            name: service.service,
            health: service.health,
            pid: service.pid,
            restarts: service.restarts,
            behind: behind.map(|peer| peer.service).collect(),
        }
    }

    /// Whether it is serving and has synced with all its peers.
    pub fn has_synced(&self) -> bool {
        self.health == "SERVING" && self.behind.is_empty()
    }
}
