//! A pod's sandboxes and containers in the container runtime.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::ResizableResources;
use polylet_model::hook::Hook;

/// The CRI's state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Created and not started.
    Created,
    /// Started and not exited.
    Running,
    /// Exited, or failed to start.
    Exited,
    /// Unknown to the runtime.
    Unknown,
}

/// A pod sandbox in the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxRecord {
    /// The runtime's id.
    pub id: String,
    /// Number of sandboxes that the pod had before this one.
    pub attempt: u32,
    /// Whether its state is `SANDBOX_READY`.
    pub ready: bool,
    /// The pod's addresses.
    pub ips: Vec<String>,
    /// Whether it shares the node's network namespace.
    pub host_network: bool,
    /// Time of creation.
    pub created_at: Option<Timestamp>,
}

/// A container in the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerRecord {
    /// The runtime's id.
    pub id: String,
    /// The id of its sandbox.
    pub sandbox_id: String,
    /// Its name in the pod.
    pub name: String,
    /// The restart count it was created with.
    pub attempt: u32,
    /// Its state.
    pub state: ContainerState,
    /// Exit code, once it has exited.
    pub exit_code: i32,
    /// The runtime's reason for the exit.
    pub reason: String,
    /// It never ran: the runtime cancelled its start because the caller was gone.
    pub aborted: bool,
    /// Hash of the spec it was created from; empty without the annotation.
    pub hash: String,
    /// Number of crashes in a row before it.
    pub backoff_step: u32,
    /// The CPU and memory it was created with, from its annotation.
    pub created_resources: Option<ResizableResources>,
    /// The pod's grace period in seconds, from its annotation.
    pub grace_period: Option<u32>,
    /// The preStop hook, from its annotation.
    pub pre_stop: Option<Arc<Hook>>,
    /// Time of creation.
    pub created_at: Option<Timestamp>,
    /// Time of its start.
    pub started_at: Option<Timestamp>,
    /// Time of its exit.
    pub finished_at: Option<Timestamp>,
}

impl ContainerRecord {
    /// Whether it is running or may be running.
    pub fn may_run(&self) -> bool {
        matches!(
            self.state,
            ContainerState::Running | ContainerState::Unknown
        )
    }

    /// Whether it exited with code zero.
    pub fn succeeded(&self) -> bool {
        self.state == ContainerState::Exited && self.exit_code == 0
    }
}

/// Everything of one pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRuntimeState {
    /// Newest first.
    pub sandboxes: Vec<SandboxRecord>,
    /// Newest first within one name.
    pub containers: Vec<ContainerRecord>,
    /// Time of the inspection; `None` while pleg has never reported the pod.
    pub observed_at: Option<Timestamp>,
    /// Why the inspection failed: the rest may be outdated or incomplete. Empty after a complete one.
    pub inspect_error: String,
}

impl PodRuntimeState {
    /// Whether the last inspection was incomplete.
    pub fn is_partial(&self) -> bool {
        !self.inspect_error.is_empty()
    }

    /// Whether both differ in the time of their inspection at most.
    pub fn has_same_content(&self, other: &PodRuntimeState) -> bool {
        let PodRuntimeState {
            sandboxes,
            containers,
            observed_at: _,
            inspect_error,
        } = self;
        *sandboxes == other.sandboxes
            && *containers == other.containers
            && *inspect_error == other.inspect_error
    }

    /// The newest container of a name, in any sandbox.
    pub fn newest_container(&self, name: &str) -> Option<&ContainerRecord> {
        self.containers
            .iter()
            .filter(|c| c.name == name)
            .max_by_key(|c| (c.attempt, c.created_at))
    }

    /// The newest container of a name in one sandbox.
    pub fn newest_container_in(&self, name: &str, sandbox_id: &str) -> Option<&ContainerRecord> {
        self.containers
            .iter()
            .filter(|c| c.name == name && c.sandbox_id == sandbox_id)
            .max_by_key(|c| (c.attempt, c.created_at))
    }

    /// A container by id.
    pub fn container(&self, id: &str) -> Option<&ContainerRecord> {
        self.containers.iter().find(|c| c.id == id)
    }

    /// A sandbox by id.
    pub fn sandbox(&self, id: &str) -> Option<&SandboxRecord> {
        self.sandboxes.iter().find(|s| s.id == id)
    }

    /// The sandbox that was created last.
    pub fn newest_sandbox(&self) -> Option<&SandboxRecord> {
        self.sandboxes
            .iter()
            .max_by_key(|s| (s.attempt, s.created_at))
    }

    /// Whether the runtime has neither sandboxes nor containers of the pod.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Applies the effect of a completed step.
    pub fn apply(&mut self, effect: &PendingEffect) {
        match effect {
            PendingEffect::SandboxCreated(sandbox) => {
                if self.sandbox(&sandbox.id).is_none() {
                    self.sandboxes.insert(0, sandbox.clone());
                }
            }
            PendingEffect::ContainerCreated(container) => {
                if self.container(&container.id).is_none() {
                    self.containers.insert(0, container.clone());
                }
            }
            PendingEffect::ContainerStarted(id, at) => {
                let container = self.containers.iter_mut().find(|c| c.id == *id);
                if let Some(container) = container.filter(|c| c.state == ContainerState::Created) {
                    container.state = ContainerState::Running;
                    container.started_at = Some(*at);
                }
            }
            PendingEffect::ContainerRemoved(id) => self.containers.retain(|c| c.id != *id),
            PendingEffect::SandboxStopped(id) => {
                for sandbox in self.sandboxes.iter_mut().filter(|s| s.id == *id) {
                    sandbox.ready = false;
                }
            }
            PendingEffect::SandboxRemoved(id) => self.sandboxes.retain(|s| s.id != *id),
        }
    }
}

/// The effect of a completed step, until an inspection that started after it.
#[derive(Clone, Debug, PartialEq)]
pub enum PendingEffect {
    /// A sandbox is ready.
    SandboxCreated(SandboxRecord),
    /// A container was created.
    ContainerCreated(ContainerRecord),
    /// A container was started.
    ContainerStarted(String, Timestamp),
    /// A container was removed.
    ContainerRemoved(String),
    /// A sandbox was stopped.
    SandboxStopped(String),
    /// A sandbox was removed.
    SandboxRemoved(String),
}
