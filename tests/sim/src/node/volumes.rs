//! volume-manager: its real state over the simulated disk.

use std::sync::Arc;

use polylet_sync_coordinator::act::Job;
use polylet_sync_coordinator::core::learn::Trouble;
use polylet_volume_manager::convert;
use polylet_volume_manager::core::declare::Refusal;
use polylet_volume_manager::core::layout::{self, Layout};
use polylet_volume_manager::core::manifest;
use polylet_volume_manager::core::plan::Step;
use polylet_volume_manager::core::spec::{Allocatable, PodName};
use polylet_volume_manager::core::state::{Found, FoundVolume, Outcome, State};
use polylet_watch::Store;
use polylet_wire::volume::v1::PodVolumes;

use crate::calls::{Work, trouble};
use crate::laws;
use crate::world::{Who, World};

/// A life of it.
pub struct Volumes {
    /// Which.
    pub life: u32,
    state: State,
    store: Store<String, PodVolumes>,
}

impl Volumes {
    /// When it wants to do something though nothing happens.
    pub fn due(&self) -> Option<jiff::Timestamp> {
        self.state.wake_at()
    }
}

/// Finds what is on the disk.
pub fn start(world: &mut World, life: u32) {
    let found = world.disk.pods.iter().map(|(uid, dir)| {
        let (name, host_paths) = dir.note.clone().unwrap_or_default();
        let namespace = if name.is_empty() { "" } else { "default" };
        let pod = PodName {
            uid: uid.clone(),
            namespace: namespace.to_owned(),
            name,
        };
        let volumes = dir.volumes.iter().map(|(slot, ready)| {
            let found = FoundVolume {
                ready: *ready,
                in_use: None,
            };
            (slot.clone(), found)
        });
        Found {
            pod,
            volumes: volumes.collect(),
            host_paths,
        }
    });
    let state = State::new(Layout::new("/root"), found.collect());
    let store = Store::new(&format!("volumes-{life}"));
    world.stores.volumes = Some((life, store.clone()));
    world.volumes = Some(Volumes { life, state, store });
    publish(world);
    if let Some(volumes) = &world.volumes {
        volumes.store.mark_whole();
    }
}

fn publish(world: &mut World) {
    let now = world.now;
    let Some(volumes) = &mut world.volumes else {
        return;
    };
    for (uid, view) in volumes.state.changes(now) {
        match view {
            Some(view) => drop(
                volumes
                    .store
                    .upsert(uid.clone(), convert::volumes(&view, None)),
            ),
            None => drop(volumes.store.remove(&uid)),
        }
        // Written aside of everything; that it comes late is part of the game elsewhere.
        if let Some((pod, host_paths)) = volumes.state.note(&uid) {
            let dir = world.disk.pods.entry(uid).or_default();
            dir.note = Some((pod.name, host_paths));
        }
    }
}

/// Starts what is to be done, and tells.
pub fn act(world: &mut World) {
    let now = world.now;
    let Some(volumes) = &mut world.volumes else {
        return;
    };
    let life = volumes.life;
    for step in volumes.state.next(now) {
        world.call(Who::Volumes, life, Work::Volume { step, begun: false });
    }
    publish(world);
}

fn refused(refusal: Refusal) -> Trouble {
    Trouble {
        followed: matches!(refusal, Refusal::Followed(_)),
        ..trouble("VolumeError", &refusal.to_string())
    }
}

fn declared(world: &mut World, job: &Job, released: bool) -> Result<PodVolumes, Trouble> {
    act(world);
    let Some(volumes) = &world.volumes else {
        return Err(trouble("VolumeError", "away"));
    };
    let uid = job.pod.uid.clone();
    let gone = || PodVolumes {
        r#ref: Some(convert::pod_ref(&volumes.state.pod(&uid))),
        ..PodVolumes::default()
    };
    let told = volumes.store.get(&uid).unwrap_or_else(gone);
    world.say(|| {
        format!(
            "volumes: {} of {uid} accepted",
            if released { "release" } else { "declaration" }
        )
    });
    Ok(told)
}

fn name(job: &Job) -> PodName {
    PodName {
        uid: job.pod.uid.clone(),
        namespace: job.pod.namespace.clone(),
        name: job.pod.name.clone(),
    }
}

/// `ApplyPod`.
pub fn apply(world: &mut World, declarer: &str, job: &Job) -> Result<PodVolumes, Trouble> {
    let Some(volumes) = &mut world.volumes else {
        return Err(trouble("VolumeError", "away"));
    };
    let raw = job
        .manifest
        .as_ref()
        .map(|m| m.raw().to_vec())
        .unwrap_or_default();
    let spec = manifest::read(&raw, Allocatable::default());
    let spec = spec.map_err(|e| trouble("VolumeError", &e.to_string()))?;
    let said = volumes
        .state
        .apply(declarer, job.sequence, name(job), Arc::new(spec));
    said.map_err(refused)?;
    declared(world, job, false)
}

/// `ReleasePod`.
pub fn release(
    world: &mut World,
    declarer: &str,
    job: &Job,
    sequence: u64,
) -> Result<PodVolumes, Trouble> {
    let Some(volumes) = &mut world.volumes else {
        return Err(trouble("VolumeError", "away"));
    };
    let said = volumes.state.release(declarer, sequence, name(job));
    said.map_err(refused)?;
    declared(world, job, true)
}

/// `CompleteDesired`.
pub fn complete(world: &mut World, declarer: &str, pods: u32) -> Result<(), Trouble> {
    let Some(volumes) = &mut world.volumes else {
        return Err(trouble("VolumeError", "away"));
    };
    let said = volumes.state.complete(declarer, pods).map_err(refused);
    act(world);
    said
}

/// A step does its work on the disk.
pub fn carry_out(world: &mut World, step: &Step, whole: bool) {
    match step {
        // What is asked of drivers changes nothing on the disk.
        Step::Ask(..) => {}
        Step::SetUp(id, _) if id.plugin == layout::HOST_PATH => {}
        Step::SetUp(id, _) => {
            let dir = world.disk.pods.entry(id.uid.clone()).or_default();
            let slot = (id.plugin.clone(), id.name.clone());
            let ready = dir.volumes.entry(slot).or_insert(false);
            *ready |= whole;
        }
        Step::TearDown(id) => {
            laws::unmounts(world, &id.uid, &id.name);
            if let Some(dir) = world.disk.pods.get_mut(&id.uid) {
                let slot = (id.plugin.clone(), id.name.clone());
                match whole {
                    true => drop(dir.volumes.remove(&slot)),
                    false => drop(dir.volumes.get_mut(&slot).map(|ready| *ready = false)),
                }
            }
        }
        Step::RemovePod(uid) => {
            laws::unmounts(world, uid, "its directory");
            if whole {
                world.disk.pods.remove(uid);
            }
        }
    }
}

/// A step has ended.
pub fn finished(world: &mut World, step: Step, result: Result<(), String>) {
    let now = world.now;
    if let Some(volumes) = &mut world.volumes {
        let result = result.map_err(Into::into);
        volumes.state.finished(Outcome { step, result }, now);
    }
    act(world);
}
