//! A container runtime that guarantees what the CRI guarantees and nothing else: names are reserved
//! from the call on, calls may complete late or without a response, containers may exit at any time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use polylet_model::status::ContainerPhase;
use polylet_pleg::core::{
    ContainerStatus, ListedContainer, ListedPod, ListedSandbox, PodIdentity, PodListing,
    SandboxStatus,
};
use polylet_wire::common::v1::PodRef;

/// A sandbox.
#[derive(Clone, Debug)]
pub struct SimSandbox {
    /// The runtime's id.
    pub id: String,
    /// The pod.
    pub pod: PodRef,
    /// The attempt.
    pub attempt: u32,
    /// Whether the sandbox is ready.
    pub ready: bool,
    /// Whether it uses the host's network.
    pub host_network: bool,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A container.
#[derive(Clone, Debug)]
pub struct SimContainer {
    /// The runtime's id.
    pub id: String,
    /// The pod.
    pub pod: PodRef,
    /// The id of its sandbox.
    pub sandbox_id: String,
    /// The container's name.
    pub name: String,
    /// The attempt.
    pub attempt: u32,
    /// The state.
    pub phase: ContainerPhase,
    /// The exit code.
    pub exit_code: i32,
    /// The reason of the exit.
    pub reason: String,
    /// The message of the exit.
    pub message: String,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// The id of the image.
    pub image_id: String,
    /// Ids of its devices.
    pub devices: BTreeSet<String>,
    /// Whether it mounts volumes.
    pub mounts: bool,
    /// The result of its probes.
    pub healthy: bool,
    /// Whether a probe has failed before.
    pub was_unhealthy: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When it exited.
    pub finished_at: Option<Timestamp>,
    /// When it is killed after a stop.
    pub kill_at: Option<Timestamp>,
}

/// An error of the runtime.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeError {
    /// The name is reserved by another call.
    NameReserved,
    /// The image does not exist.
    ImageNotFound,
    /// Another error.
    Other(&'static str),
}

/// The state of the runtime.
#[derive(Debug, Default)]
pub struct Runtime {
    /// Whether the runtime is available.
    pub up: bool,
    /// Sandboxes by id.
    pub sandboxes: BTreeMap<String, SimSandbox>,
    /// Containers by id.
    pub containers: BTreeMap<String, SimContainer>,
    /// Image names by id.
    pub images: BTreeMap<String, String>,
    /// Pods with an event that may end their readiness.
    pub disturbed: BTreeSet<String>,
    sandbox_names: BTreeSet<(String, u32)>,
    container_names: BTreeSet<(String, String, u32)>,
    ids: u32,
}

impl Runtime {
    fn id(&mut self, kind: &str) -> String {
        self.ids += 1;
        format!("{kind}{:03}", self.ids)
    }

    /// Reserves the name of a sandbox.
    pub fn reserve_sandbox(&mut self, pod: &PodRef, attempt: u32) -> Result<(), RuntimeError> {
        let free = self.sandbox_names.insert((pod.uid.clone(), attempt));
        if free {
            Ok(())
        } else {
            Err(RuntimeError::NameReserved)
        }
    }

    /// Completes the creation of a sandbox, or releases its name.
    pub fn finish_sandbox(
        &mut self,
        pod: &PodRef,
        attempt: u32,
        host_network: bool,
        good: bool,
        now: Timestamp,
    ) -> Option<SimSandbox> {
        if !good {
            self.sandbox_names.remove(&(pod.uid.clone(), attempt));
            return None;
        }
        let made = SimSandbox {
            id: self.id("s"),
            pod: pod.clone(),
            attempt,
            ready: true,
            host_network,
            created_at: now,
        };
        self.sandboxes.insert(made.id.clone(), made.clone());
        Some(made)
    }

    /// The id of an image, if it exists.
    pub fn image(&self, name: &str) -> Option<String> {
        let found = self.images.iter().find(|(_, known)| *known == name);
        found.map(|(id, _)| id.clone())
    }

    /// Adds an image and returns its id.
    pub fn add_image(&mut self, name: &str) -> String {
        let id = format!("sha256:{}", name.replace(['/', ':', '.'], "-"));
        self.images.insert(id.clone(), name.to_owned());
        id
    }

    /// Creates a container.
    pub fn create(&mut self, mut made: SimContainer) -> Result<String, RuntimeError> {
        if !self
            .sandboxes
            .get(&made.sandbox_id)
            .is_some_and(|s| s.ready)
        {
            return Err(RuntimeError::Other("sandbox container is not running"));
        }
        let name = (made.pod.uid.clone(), made.name.clone(), made.attempt);
        if self.container_names.contains(&name) {
            return Err(RuntimeError::NameReserved);
        }
        if !self.images.contains_key(&made.image_id) {
            return Err(RuntimeError::ImageNotFound);
        }
        self.container_names.insert(name);
        made.id = self.id("c");
        let id = made.id.clone();
        self.containers.insert(id.clone(), made);
        Ok(id)
    }

    /// Starts a container.
    pub fn start(&mut self, id: &str, now: Timestamp) -> Result<(), RuntimeError> {
        let is_ready = |sandboxes: &BTreeMap<String, SimSandbox>, c: &SimContainer| {
            sandboxes.get(&c.sandbox_id).is_some_and(|s| s.ready)
        };
        let Some(container) = self.containers.get_mut(id) else {
            return Err(RuntimeError::Other("no such container"));
        };
        match container.phase {
            // The client treats the error "is in CONTAINER_RUNNING state" as a success.
            ContainerPhase::Running => Ok(()),
            ContainerPhase::Created if is_ready(&self.sandboxes, container) => {
                container.phase = ContainerPhase::Running;
                container.started_at = Some(now);
                Ok(())
            }
            ContainerPhase::Created => Err(RuntimeError::Other("sandbox container is not running")),
            _ => Err(RuntimeError::Other(
                "container is in CONTAINER_EXITED state",
            )),
        }
    }

    /// A container exits.
    pub fn exit(&mut self, id: &str, code: i32, reason: &str, now: Timestamp) -> bool {
        let Some(container) = self.containers.get_mut(id) else {
            return false;
        };
        if container.phase != ContainerPhase::Running {
            return false;
        }
        self.disturbed.insert(container.pod.uid.clone());
        container.phase = ContainerPhase::Exited;
        container.exit_code = code;
        container.reason = reason.to_owned();
        container.finished_at = Some(now);
        container.kill_at = None;
        true
    }

    /// Aborts a start after the death of its caller.
    pub fn abort_start(&mut self, id: &str, now: Timestamp) {
        if let Some(container) = self.containers.get_mut(id)
            && container.phase == ContainerPhase::Created
        {
            container.phase = ContainerPhase::Exited;
            container.exit_code = 128;
            container.reason = "StartError".to_owned();
            container.message = "failed to start: context canceled".to_owned();
            container.finished_at = Some(now);
        }
    }

    /// Stops a sandbox and its containers.
    pub fn stop_sandbox(&mut self, id: &str, now: Timestamp) {
        let inside: Vec<String> = self
            .containers
            .values()
            .filter(|c| c.sandbox_id == id)
            .map(|c| c.id.clone())
            .collect();
        for container in inside {
            self.exit(&container, 137, "Error", now);
        }
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            self.disturbed.insert(sandbox.pod.uid.clone());
            sandbox.ready = false;
        }
    }

    /// Removes a container.
    pub fn remove_container(&mut self, id: &str) {
        if let Some(removed) = self.containers.remove(id) {
            let name = (removed.pod.uid, removed.name, removed.attempt);
            self.container_names.remove(&name);
        }
    }

    /// Removes a sandbox and its containers.
    pub fn remove_sandbox(&mut self, id: &str) {
        let inside: Vec<String> = self
            .containers
            .values()
            .filter(|c| c.sandbox_id == id)
            .map(|c| c.id.clone())
            .collect();
        for container in inside {
            self.remove_container(&container);
        }
        if let Some(removed) = self.sandboxes.remove(id) {
            self.sandbox_names
                .remove(&(removed.pod.uid, removed.attempt));
        }
    }

    /// The running containers of a pod.
    pub fn running<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a SimContainer> {
        self.containers
            .values()
            .filter(move |c| c.pod.uid == uid && c.phase == ContainerPhase::Running)
    }

    /// Whether there is a sandbox or container of a pod.
    pub fn has_pod(&self, uid: &str) -> bool {
        self.sandboxes.values().any(|s| s.pod.uid == uid)
            || self.containers.values().any(|c| c.pod.uid == uid)
    }

    /// Kills the containers at the end of their grace period, and returns their ids.
    pub fn reap(&mut self, now: Timestamp) -> Vec<String> {
        let due: Vec<String> = self
            .containers
            .values()
            .filter(|c| c.kill_at.is_some_and(|at| at <= now))
            .map(|c| c.id.clone())
            .collect();
        for id in &due {
            self.exit(id, 137, "Error", now);
        }
        due
    }

    /// When the next container is killed.
    pub fn due(&self) -> Option<Timestamp> {
        self.containers.values().filter_map(|c| c.kill_at).min()
    }

    /// Stops a container: it is killed after the grace period.
    pub fn stop_container(&mut self, id: &str, grace: u32, now: Timestamp) {
        if let Some(container) = self.containers.get_mut(id)
            && container.phase == ContainerPhase::Running
        {
            let at = now.checked_add(SignedDuration::from_secs(grace.into()));
            let at = at.unwrap_or(now);
            container.kill_at = Some(container.kill_at.map_or(at, |known| known.min(at)));
        }
    }

    /// All sandboxes and containers by pod.
    pub fn listing(&self) -> PodListing {
        let mut all = PodListing::new();
        for sandbox in self.sandboxes.values() {
            let view = ListedSandbox {
                ready: sandbox.ready,
                attempt: sandbox.attempt,
                created_at: Some(sandbox.created_at),
            };
            let pod: &mut ListedPod = all.entry(sandbox.pod.uid.clone().into()).or_default();
            pod.pod = identity(&sandbox.pod);
            pod.sandboxes.insert(sandbox.id.clone(), view);
        }
        for container in self.containers.values() {
            let view = ListedContainer {
                phase: container.phase,
                sandbox_id: container.sandbox_id.clone(),
                name: container.name.clone(),
                attempt: container.attempt,
                created_at: Some(container.created_at),
            };
            let pod: &mut ListedPod = all.entry(container.pod.uid.clone().into()).or_default();
            pod.pod = identity(&container.pod);
            pod.containers.insert(container.id.clone(), view);
        }
        all
    }

    /// The status of a sandbox.
    pub fn sandbox_status(&self, id: &str) -> Option<SandboxStatus> {
        let known = self.sandboxes.get(id)?;
        let with_address = known.ready && !known.host_network;
        Some(SandboxStatus {
            id: known.id.clone(),
            attempt: known.attempt,
            ready: known.ready,
            ips: if with_address {
                vec!["10.0.0.7".to_owned()]
            } else {
                Vec::new()
            },
            created_at: Some(known.created_at),
            host_network: known.host_network,
            ..SandboxStatus::default()
        })
    }

    /// The status of a container.
    pub fn container_status(&self, id: &str) -> Option<ContainerStatus> {
        let known = self.containers.get(id)?;
        Some(ContainerStatus {
            sandbox_id: known.sandbox_id.clone(),
            name: known.name.clone(),
            attempt: known.attempt,
            image: self
                .images
                .get(&known.image_id)
                .cloned()
                .unwrap_or_default(),
            image_id: known.image_id.clone(),
            exit_code: known.exit_code,
            reason: known.reason.clone(),
            message: known.message.clone(),
            created_at: Some(known.created_at),
            started_at: known.started_at,
            finished_at: known.finished_at,
            annotations: known.annotations.clone().into_iter().collect(),
            ..ContainerStatus::new(&known.id, known.phase)
        })
    }
}

fn identity(pod: &PodRef) -> PodIdentity {
    PodIdentity {
        uid: pod.uid.clone().into(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
    }
}
