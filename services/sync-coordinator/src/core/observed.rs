//! What the runtime holds of one pod.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::Amounts;
use polylet_model::hook::Hook;

/// Where a container stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Made, and not started.
    Created,
    /// Runs.
    Running,
    /// Has ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// A sandbox in the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenSandbox {
    /// The runtime's id.
    pub id: String,
    /// Which sandbox of the pod it is, from zero.
    pub attempt: u32,
    /// Whether it stands.
    pub ready: bool,
    /// The pod's addresses in it.
    pub ips: Vec<String>,
    /// Whether it shares the node's network.
    pub host_network: bool,
    /// When it was made.
    pub created_at: Option<Timestamp>,
}

/// A container in the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenContainer {
    /// The runtime's id.
    pub id: String,
    /// The sandbox it is in.
    pub sandbox_id: String,
    /// Its name in the pod.
    pub name: String,
    /// The restart count it was made with.
    pub attempt: u32,
    /// Where it stands.
    pub phase: Phase,
    /// How it ended.
    pub exit_code: i32,
    /// The runtime's word for its end.
    pub reason: String,
    /// It never ran: the call that should have started it was lost with its caller.
    pub aborted: bool,
    /// Hash of the manifest it was made from; empty when nothing says.
    pub hash: String,
    /// How many crashes in a row it follows.
    pub back_off_step: u32,
    /// The CPU and memory that it was made with, as written on it.
    pub made_with: Option<Amounts>,
    /// The pod's grace period as written on it.
    pub grace: Option<u32>,
    /// The preStop hook as written on it.
    pub pre_stop: Option<Arc<Hook>>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl SeenContainer {
    /// Whether it runs, or may for all we know.
    pub fn may_run(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Unknown)
    }

    /// Ended with exit code zero.
    pub fn succeeded(&self) -> bool {
        self.phase == Phase::Exited && self.exit_code == 0
    }
}

/// Everything that the runtime holds of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Newest first.
    pub sandboxes: Vec<SeenSandbox>,
    /// Newest first within one name.
    pub containers: Vec<SeenContainer>,
    /// When the runtime was asked; `None` when nothing was ever told of the pod.
    pub at: Option<Timestamp>,
    /// Why not all of it could be asked for: it may be what was known last, or bare. Empty when all
    /// of it could.
    pub doubt: String,
}

impl Observed {
    /// Whether it is not all that there is.
    pub fn is_doubtful(&self) -> bool {
        !self.doubt.is_empty()
    }

    /// The newest container of a name, in any sandbox.
    pub fn newest(&self, name: &str) -> Option<&SeenContainer> {
        self.containers
            .iter()
            .filter(|c| c.name == name)
            .max_by_key(|c| (c.attempt, c.created_at))
    }

    /// The newest container of a name in one sandbox.
    pub fn newest_in(&self, name: &str, sandbox_id: &str) -> Option<&SeenContainer> {
        self.containers
            .iter()
            .filter(|c| c.name == name && c.sandbox_id == sandbox_id)
            .max_by_key(|c| (c.attempt, c.created_at))
    }

    /// A container by id.
    pub fn container(&self, id: &str) -> Option<&SeenContainer> {
        self.containers.iter().find(|c| c.id == id)
    }

    /// A sandbox by id.
    pub fn sandbox(&self, id: &str) -> Option<&SeenSandbox> {
        self.sandboxes.iter().find(|s| s.id == id)
    }

    /// The sandbox made last.
    pub fn newest_sandbox(&self) -> Option<&SeenSandbox> {
        self.sandboxes
            .iter()
            .max_by_key(|s| (s.attempt, s.created_at))
    }

    /// Whether the runtime holds nothing of the pod.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}

/// What one of our own acts did, until the runtime's next full answer says it too.
#[derive(Clone, Debug, PartialEq)]
pub enum Overlay {
    /// A sandbox stands.
    Sandbox(SeenSandbox),
    /// A container was made.
    Created(SeenContainer),
    /// A container was started.
    Started(String, Timestamp),
    /// A container's record was removed.
    ContainerGone(String),
    /// A sandbox no longer stands.
    SandboxStopped(String),
    /// A sandbox's record was removed.
    SandboxGone(String),
}

impl Observed {
    /// Adds what an act of ours is known to have done.
    pub fn overlay(&mut self, act: &Overlay) {
        match act {
            Overlay::Sandbox(sandbox) => {
                if self.sandbox(&sandbox.id).is_none() {
                    self.sandboxes.insert(0, sandbox.clone());
                }
            }
            Overlay::Created(container) => {
                if self.container(&container.id).is_none() {
                    self.containers.insert(0, container.clone());
                }
            }
            Overlay::Started(id, at) => {
                let made = self.containers.iter_mut().find(|c| c.id == *id);
                if let Some(container) = made.filter(|c| c.phase == Phase::Created) {
                    container.phase = Phase::Running;
                    container.started_at = Some(*at);
                }
            }
            Overlay::ContainerGone(id) => self.containers.retain(|c| c.id != *id),
            Overlay::SandboxStopped(id) => {
                for sandbox in self.sandboxes.iter_mut().filter(|s| s.id == *id) {
                    sandbox.ready = false;
                }
            }
            Overlay::SandboxGone(id) => self.sandboxes.retain(|s| s.id != *id),
        }
    }
}
