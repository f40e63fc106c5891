//! A container runtime that keeps CRI's promises and no others: names are reserved from the call on,
//! calls may end late or unheard, containers and sandboxes end when they like.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use polylet_pleg::core::{ContainerView, Listing, PodView, SandboxView};
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::{Container, ContainerPhase, Sandbox};
use polylet_wire::time::to_wire;

/// A sandbox.
#[derive(Clone, Debug)]
pub struct SimSandbox {
    /// The runtime's id.
    pub id: String,
    /// The pod.
    pub pod: PodRef,
    /// Its number.
    pub attempt: u32,
    /// Whether it stands.
    pub ready: bool,
    /// On the host's network.
    pub host_network: bool,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A container.
#[derive(Clone, Debug)]
pub struct SimContainer {
    /// The runtime's id.
    pub id: String,
    /// The pod.
    pub pod: PodRef,
    /// Where it is.
    pub sandbox_id: String,
    /// Its name.
    pub name: String,
    /// Its restart count.
    pub attempt: u32,
    /// Where it stands.
    pub phase: ContainerPhase,
    /// How it ended.
    pub exit_code: i32,
    /// The runtime's word for its end.
    pub reason: String,
    /// And more words.
    pub message: String,
    /// What was written on it.
    pub annotations: BTreeMap<String, String>,
    /// The image by its id.
    pub image_id: String,
    /// Uses the pod's volumes.
    pub mounts: bool,
    /// What its probes find.
    pub well: bool,
    /// Its probes found it unwell once.
    pub was_unwell: bool,
    /// When it was made, started, ended.
    pub created_at: Timestamp,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Asked to end, and killed then.
    pub kill_at: Option<Timestamp>,
}

/// Why the runtime refuses.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// The name is another call's.
    Reserved,
    /// The image is not there.
    NoImage,
    /// Anything else.
    Because(&'static str),
}

/// All that the runtime holds.
#[derive(Debug, Default)]
pub struct Runtime {
    /// Whether it answers.
    pub up: bool,
    /// Sandboxes by id.
    pub sandboxes: BTreeMap<String, SimSandbox>,
    /// Containers by id.
    pub containers: BTreeMap<String, SimContainer>,
    /// Images by id, and what names each.
    pub images: BTreeMap<String, String>,
    /// Pods to which anything happened that may end their readiness.
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

    /// A sandbox's name is taken.
    pub fn reserve_sandbox(&mut self, pod: &PodRef, attempt: u32) -> Result<(), Refused> {
        let free = self.sandbox_names.insert((pod.uid.clone(), attempt));
        if free { Ok(()) } else { Err(Refused::Reserved) }
    }

    /// The sandbox of a name that was taken stands, or does not come about.
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

    /// The image of a name, if it is there.
    pub fn image(&self, name: &str) -> Option<String> {
        let found = self.images.iter().find(|(_, known)| *known == name);
        found.map(|(id, _)| id.clone())
    }

    /// An image comes.
    pub fn pulled(&mut self, name: &str) -> String {
        let id = format!("sha256:{}", name.replace(['/', ':', '.'], "-"));
        self.images.insert(id.clone(), name.to_owned());
        id
    }

    /// Makes a container.
    pub fn create(&mut self, mut made: SimContainer) -> Result<String, Refused> {
        if !self
            .sandboxes
            .get(&made.sandbox_id)
            .is_some_and(|s| s.ready)
        {
            return Err(Refused::Because("sandbox container is not running"));
        }
        let name = (made.pod.uid.clone(), made.name.clone(), made.attempt);
        if self.container_names.contains(&name) {
            return Err(Refused::Reserved);
        }
        if !self.images.contains_key(&made.image_id) {
            return Err(Refused::NoImage);
        }
        self.container_names.insert(name);
        made.id = self.id("c");
        let id = made.id.clone();
        self.containers.insert(id.clone(), made);
        Ok(id)
    }

    /// Starts a container.
    pub fn start(&mut self, id: &str, now: Timestamp) -> Result<(), Refused> {
        let stands = |sandboxes: &BTreeMap<String, SimSandbox>, c: &SimContainer| {
            sandboxes.get(&c.sandbox_id).is_some_and(|s| s.ready)
        };
        let Some(container) = self.containers.get_mut(id) else {
            return Err(Refused::Because("no such container"));
        };
        match container.phase {
            // "is in CONTAINER_RUNNING state": the caller takes that for done.
            ContainerPhase::Running => Ok(()),
            ContainerPhase::Created if stands(&self.sandboxes, container) => {
                container.phase = ContainerPhase::Running;
                container.started_at = Some(now);
                Ok(())
            }
            ContainerPhase::Created => Err(Refused::Because("sandbox container is not running")),
            _ => Err(Refused::Because("container is in CONTAINER_EXITED state")),
        }
    }

    /// A container ends.
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

    /// A start whose caller vanished is undone.
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

    /// A sandbox falls, and all in it.
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

    /// A container's record goes.
    pub fn remove_container(&mut self, id: &str) {
        if let Some(gone) = self.containers.remove(id) {
            let name = (gone.pod.uid, gone.name, gone.attempt);
            self.container_names.remove(&name);
        }
    }

    /// A sandbox's record goes, and those in it.
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
        if let Some(gone) = self.sandboxes.remove(id) {
            self.sandbox_names.remove(&(gone.pod.uid, gone.attempt));
        }
    }

    /// Running containers of a pod.
    pub fn running<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a SimContainer> {
        self.containers
            .values()
            .filter(move |c| c.pod.uid == uid && c.phase == ContainerPhase::Running)
    }

    /// Whether anything of a pod is there.
    pub fn knows(&self, uid: &str) -> bool {
        self.sandboxes.values().any(|s| s.pod.uid == uid)
            || self.containers.values().any(|c| c.pod.uid == uid)
    }

    /// Kills what was given its time; when the next one is due.
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

    /// Asks a container to end.
    pub fn ask_to_end(&mut self, id: &str, grace: u32, now: Timestamp) {
        if let Some(container) = self.containers.get_mut(id)
            && container.phase == ContainerPhase::Running
        {
            let at = now.checked_add(SignedDuration::from_secs(grace.into()));
            let at = at.unwrap_or(now);
            container.kill_at = Some(container.kill_at.map_or(at, |known| known.min(at)));
        }
    }

    /// The lists, by pod.
    pub fn listing(&self) -> Listing {
        let mut all = Listing::new();
        for sandbox in self.sandboxes.values() {
            let view = SandboxView {
                ready: sandbox.ready,
                attempt: sandbox.attempt,
                created_at: nanos(sandbox.created_at),
            };
            let pod: &mut PodView = all.entry(sandbox.pod.uid.clone()).or_default();
            pod.pod = sandbox.pod.clone();
            pod.sandboxes.insert(sandbox.id.clone(), view);
        }
        for container in self.containers.values() {
            let view = ContainerView {
                phase: container.phase,
                sandbox_id: container.sandbox_id.clone(),
                name: container.name.clone(),
                attempt: container.attempt,
                created_at: nanos(container.created_at),
            };
            let pod: &mut PodView = all.entry(container.pod.uid.clone()).or_default();
            pod.pod = container.pod.clone();
            pod.containers.insert(container.id.clone(), view);
        }
        all
    }

    /// A sandbox as its status tells it.
    pub fn sandbox_status(&self, id: &str) -> Option<Sandbox> {
        let known = self.sandboxes.get(id)?;
        let with_address = known.ready && !known.host_network;
        Some(Sandbox {
            id: known.id.clone(),
            attempt: known.attempt,
            ready: known.ready,
            ips: if with_address {
                vec!["10.0.0.7".to_owned()]
            } else {
                Vec::new()
            },
            created_at: Some(to_wire(known.created_at)),
            host_network: known.host_network,
            ..Sandbox::default()
        })
    }

    /// A container as its status tells it.
    pub fn container_status(&self, id: &str) -> Option<Container> {
        let known = self.containers.get(id)?;
        Some(Container {
            id: known.id.clone(),
            sandbox_id: known.sandbox_id.clone(),
            name: known.name.clone(),
            attempt: known.attempt,
            image: self
                .images
                .get(&known.image_id)
                .cloned()
                .unwrap_or_default(),
            image_id: known.image_id.clone(),
            phase: known.phase.into(),
            exit_code: known.exit_code,
            reason: known.reason.clone(),
            message: known.message.clone(),
            created_at: Some(to_wire(known.created_at)),
            started_at: known.started_at.map(to_wire),
            finished_at: known.finished_at.map(to_wire),
            annotations: known.annotations.clone().into_iter().collect(),
            ..Container::default()
        })
    }
}

fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(0)
}
