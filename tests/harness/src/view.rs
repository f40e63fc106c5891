use polylet_wire::status::v1::PodStatus;
use polylet_wire::supervisor::v1::ServiceStatus;
use serde_json::Value;

use crate::error::HarnessError;

/// A pod as the node reports it.
#[derive(Debug, Clone)]
pub struct PodView {
    /// Its uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The whole `v1.PodStatus`.
    pub status: Value,
    /// The `v1.Pod` it was made from.
    pub manifest: Value,
    /// What it waits for.
    pub waiting_for: Vec<String>,
    /// Which facts come from a peer that is away.
    pub stale: Vec<String>,
}

/// A container's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    /// Its name.
    pub name: String,
    /// The runtime's id, with its scheme.
    pub id: String,
    /// How often it was restarted.
    pub restarts: u64,
    /// Whether it is ready.
    pub ready: bool,
    /// `waiting`, `running` or `terminated`; empty when the status has no state.
    pub state: String,
    /// Of the state: `CrashLoopBackOff`, `Completed` …
    pub reason: String,
    /// Of the state.
    pub message: String,
    /// Of a terminated state.
    pub exit_code: Option<i64>,
}

impl PodView {
    /// Reads what the status reporter serves.
    ///
    /// # Errors
    /// When the status or the manifest is not JSON.
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

    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub fn phase(&self) -> &str {
        text(&self.status, "phase")
    }

    /// Why the pod as a whole is as it is: `Evicted` …
    pub fn reason(&self) -> &str {
        text(&self.status, "reason")
    }

    /// The same for people.
    pub fn message(&self) -> &str {
        text(&self.status, "message")
    }

    /// Its address.
    pub fn ip(&self) -> &str {
        text(&self.status, "podIP")
    }

    /// Whether the condition `Ready` holds.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready")
            .is_some_and(|condition| text(condition, "status") == "True")
    }

    /// A condition as it stands in the status.
    pub fn condition(&self, kind: &str) -> Option<&Value> {
        let all = self.status.get("conditions")?.as_array()?;
        all.iter().find(|condition| text(condition, "type") == kind)
    }

    /// Containers, init containers first.
    pub fn containers(&self) -> Vec<ContainerView> {
        let lists = ["initContainerStatuses", "containerStatuses"];
        let all = lists
            .iter()
            .filter_map(|list| self.status.get(list)?.as_array());
        all.flatten().map(container).collect()
    }

    /// The container of that name.
    pub fn container(&self, name: &str) -> Option<ContainerView> {
        self.containers()
            .into_iter()
            .find(|container| container.name == name)
    }

    /// What must not change when nothing of the pod changes: ids and restart counts.
    pub fn identity(&self) -> Vec<(String, String, u64)> {
        let all = self.containers().into_iter();
        all.map(|container| (container.name, container.id, container.restarts))
            .collect()
    }

    /// One line for people and for errors.
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

/// A service as the supervisor reports it.
#[derive(Debug, Clone)]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// `SERVING`, `STARTING`, `BACKOFF` …
    pub health: String,
    /// Its process; zero when it has none.
    pub pid: u32,
    /// How often it was started again.
    pub restarts: u32,
    /// Peers that it has not heard to the end yet.
    pub behind: Vec<String>,
}

impl ServiceView {
    /// Reads what the supervisor serves.
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

    /// It answers and has heard all its peers.
    pub fn in_step(&self) -> bool {
        self.health == "SERVING" && self.behind.is_empty()
    }
}
