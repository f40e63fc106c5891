//! What must hold after each step, whoever was killed and whatever was lost.

pub mod status;

use std::collections::{BTreeMap, BTreeSet};

use polylet_model::{ContainerKind, Manifest};
use polylet_sync_coordinator::act::Job;
use polylet_sync_coordinator::core::step::Step;
use polylet_wire::pleg::v1::ContainerPhase;

use crate::calls::Work;
use crate::world::World;

/// The laws, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// No two running containers of one name in a pod.
    OneOfAName,
    /// No container runs twice under one name and number.
    NumbersRise,
    /// No sandbox number is asked for twice, unless the first call is known to have failed.
    OneCallANumber,
    /// Two static pods of one full name never overlap; the cluster's own may.
    NoOverlap,
    /// A pod that was decided to have ended never starts anything.
    TheEndIsTheEnd,
    /// Init containers before main ones, one after the other, in each sandbox.
    InitOrder,
    /// Nothing is made for a pod that no source is known to want.
    OnlyWhatIsWanted,
    /// Containers start when the volumes that they mount are there.
    VolumesFirst,
    /// Nothing is unmounted under a running container.
    NotUnderTheFeet,
    /// Nothing is destroyed for not being wanted before all sources and the runtime were heard.
    HearAllFirst,
    /// A pod that is wanted as it was is not stopped, and nothing of it taken away.
    Undisturbed,
    /// No record is dropped that a restart count stands on, and nothing that runs is removed.
    RecordsStand,
    /// A pod's phase and its containers' restart counts never go back.
    StatusGoesForward,
    /// A pod that was ready, and to which nothing happened, stays ready.
    ReadinessStands,
    /// No image goes that a container was made from before it was looked at.
    UsedImagesStay,
    /// When all is calm, what runs is what is wanted.
    ComesToRest,
    /// When all is calm, nothing is left of what nobody wants.
    NoLeaks,
    /// When all is calm, a restart of everything changes nothing.
    RestartsAreSilent,
}

/// A law that was broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which.
    pub law: Law,
    /// How.
    pub why: String,
}

/// What the laws remember.
#[derive(Debug, Default)]
pub struct Memory {
    started: BTreeSet<(String, String, u32)>,
    /// Containers that were started, by sandbox and name.
    begun: BTreeSet<(String, String)>,
    /// The last manifest of each pod.
    pub manifests: BTreeMap<String, Manifest>,
    /// Pods of which it was written down that they have ended.
    pub ended: BTreeSet<String>,
    /// The statuses that were told last.
    pub told: BTreeMap<String, Vec<u8>>,
    /// Containers whose hook failed.
    pub hooks_failed: BTreeSet<String>,
    /// Calls to the runtime that change something.
    pub changes: u64,
}

/// The coordinator decided on a step.
pub fn issues(world: &mut World, job: &Job) {
    let uid = job.pod.uid.as_str();
    let makes = matches!(
        job.step,
        Step::CreateSandbox { .. } | Step::CreateContainer { .. } | Step::StartContainer { .. }
    );
    let touches = matches!(
        job.step,
        Step::StopContainer { .. }
            | Step::StopSandbox { .. }
            | Step::RemoveContainer { .. }
            | Step::RemoveSandbox { .. }
    );
    if makes || touches {
        world.memory.changes += 1;
    }
    let Some(node) = &world.coordinator else {
        return;
    };
    let (known, all_heard) = (node.hears_of(uid), node.has_heard_all());
    if makes {
        if !known {
            world.breaks(Law::OnlyWhatIsWanted, format!("{uid}: {:?}", job.step));
        }
        let ended = world
            .disk
            .journal
            .get(uid)
            .is_some_and(|j| j.terminal.is_some());
        if ended {
            world.breaks(Law::TheEndIsTheEnd, format!("{uid}: {:?}", job.step));
        }
        return;
    }
    let destroys = matches!(
        job.step,
        Step::StopContainer { .. }
            | Step::StopSandbox { .. }
            | Step::RemoveContainer { .. }
            | Step::RemoveSandbox { .. }
            | Step::ReleaseVolumes
            | Step::RemoveCgroup
            | Step::RemoveFiles
    );
    if destroys && job.manifest.is_none() && !all_heard {
        world.breaks(Law::HearAllFirst, format!("{uid}: {:?}", job.step));
    }
    if !destroys || !world.is_steady(uid) {
        return;
    }
    let changed = world.truth.changed.contains(uid);
    let stands = |id: &str| world.runtime.sandboxes.get(id).is_some_and(|s| s.ready);
    let standing = world
        .runtime
        .sandboxes
        .values()
        .filter(|s| s.pod.uid == uid && s.ready)
        .count();
    // Only the newest sandbox is the pod's, whether it still stands or not.
    let superseded = |id: &str| {
        let of_pod = || {
            world
                .runtime
                .sandboxes
                .values()
                .filter(|s| s.pod.uid == uid)
        };
        let mine = of_pod().find(|s| s.id == id).map(|s| s.attempt);
        mine.is_some_and(|mine| of_pod().any(|s| s.attempt > mine))
    };
    let fair = match &job.step {
        Step::StopContainer { id, .. } => match world.runtime.containers.get(id) {
            Some(c) => {
                changed
                    || c.was_unwell
                    || world.memory.hooks_failed.contains(id)
                    || c.phase != ContainerPhase::Running
                    || !stands(&c.sandbox_id)
                    || standing > 1
            }
            None => true,
        },
        Step::StopSandbox { id } => !stands(id) || standing > 1 || superseded(id),
        Step::RemoveContainer { .. } => true,
        Step::RemoveSandbox { id } => !stands(id),
        _ => false,
    };
    if !fair {
        world.breaks(Law::Undisturbed, format!("{uid}: {:?}", job.step));
    }
}

/// A sandbox is asked for.
pub fn asks_for_sandbox(world: &mut World, job: &Job, attempt: u32) {
    let same = world.calls.iter().any(|call| match &call.work {
        Work::Step {
            job: other,
            begun: true,
            outcome: None,
            ..
        } => other.pod.uid == job.pod.uid && other.step == job.step,
        _ => false,
    });
    // What was asked for without hearing the end stands on the disk.
    let made = world.disk.intents.get(&job.pod.uid) == Some(&attempt);
    if same || made {
        let why = format!(
            "{}: sandbox {attempt} which another call was made for",
            job.pod.uid
        );
        world.breaks(Law::OneCallANumber, why);
    }
}

/// A container is made.
pub fn creates(world: &mut World, job: &Job, mounts: bool) {
    let uid = &job.pod.uid;
    if !mounts {
        return;
    }
    let whole = world.disk.pods.get(uid).is_some_and(|dir| {
        dir.volumes
            .iter()
            .any(|((_, name), ready)| name == "data" && *ready)
    });
    if !whole {
        world.breaks(Law::VolumesFirst, format!("{uid}: {:?}", job.step));
    }
}

/// A container starts.
pub fn starts(world: &mut World, id: &str) {
    let Some(me) = world.runtime.containers.get(id).cloned() else {
        return;
    };
    let stands = world
        .runtime
        .sandboxes
        .get(&me.sandbox_id)
        .is_some_and(|s| s.ready);
    if me.phase != ContainerPhase::Created || !stands {
        return;
    }
    let uid = me.pod.uid.as_str();
    let who = format!("{uid} {} {} ({id})", me.name, me.attempt);
    let twin = world
        .runtime
        .running(uid)
        .find(|c| c.name == me.name && c.id != me.id);
    if let Some(twin) = twin.map(|c| c.id.clone()) {
        world.breaks(Law::OneOfAName, format!("{who} while {twin} runs"));
    }
    let fixed = |uid: &str| world.truth.fixed.contains(uid);
    let overlap = world.runtime.containers.values().find(|c| {
        let other = c.pod.uid != uid && c.pod.name == me.pod.name;
        other && c.phase == ContainerPhase::Running && fixed(uid) && fixed(&c.pod.uid)
    });
    if let Some(other) = overlap.map(|c| c.pod.uid.clone()) {
        world.breaks(Law::NoOverlap, format!("{who} while {other} runs"));
    }
    let key = (uid.to_owned(), me.name.clone(), me.attempt);
    // A pod that was put back in the middle of its end may begin anew.
    let anew = world.truth.disowned.contains(uid);
    if !world.memory.started.insert(key) && !anew {
        world.breaks(Law::NumbersRise, who.clone());
    }
    let begun = (me.sandbox_id.clone(), me.name.clone());
    world.memory.begun.insert(begun);
    if let Some(why) = out_of_order(world, &me.name, &me.sandbox_id, uid) {
        world.breaks(Law::InitOrder, format!("{who}: {why}"));
    }
}

fn out_of_order(world: &World, name: &str, sandbox: &str, uid: &str) -> Option<String> {
    let manifest = world.memory.manifests.get(uid)?;
    let (kind, _) = manifest.container(name)?;
    if kind == ContainerKind::Init {
        let is_main = |name: &str| manifest.containers().iter().any(|c| c.name == name);
        let mut inside = world.runtime.containers.values();
        if inside.any(|c| c.sandbox_id == sandbox && is_main(&c.name)) {
            return Some("after a main container".to_owned());
        }
    }
    for (before, spec) in manifest.all_containers() {
        if spec.name == name || before == ContainerKind::Regular {
            return None;
        }
        let of_it = world.runtime.containers.values();
        let mut of_it = of_it.filter(|c| c.name == spec.name && c.sandbox_id == sandbox);
        let fine = match before {
            ContainerKind::Init => {
                of_it.any(|c| c.phase == ContainerPhase::Exited && c.exit_code == 0)
            }
            // The record of its first start may be gone by the time it starts again.
            ContainerKind::Sidecar => {
                let begun = (sandbox.to_owned(), spec.name.clone());
                world.memory.begun.contains(&begun)
            }
            _ => true,
        };
        if !fine {
            return Some(format!("{} has not done its part", spec.name));
        }
    }
    None
}

/// Something of a pod's volumes goes.
pub fn unmounts(world: &mut World, uid: &str, what: &str) {
    let under = world
        .runtime
        .running(uid)
        .find(|c| c.mounts)
        .map(|c| c.id.clone());
    if let Some(id) = under {
        world.breaks(
            Law::NotUnderTheFeet,
            format!("{uid}: {what} while {id} runs"),
        );
    }
}

/// Something that containers of a pod stand on goes.
pub fn takes_away(world: &mut World, uid: &str, what: &str) {
    let under = world.runtime.running(uid).next().map(|c| c.id.clone());
    if let Some(id) = under {
        world.breaks(
            Law::NotUnderTheFeet,
            format!("{uid}: {what} while {id} runs"),
        );
    }
}

/// A sandbox is stopped.
pub fn stops_sandbox(world: &mut World, id: &str) {
    let Some(sandbox) = world.runtime.sandboxes.get(id) else {
        return;
    };
    let uid = sandbox.pod.uid.clone();
    let standing = world.runtime.sandboxes.values();
    let standing = standing.filter(|s| s.pod.uid == uid && s.ready).count();
    let inside = world.runtime.running(&uid).find(|c| c.sandbox_id == id);
    // A start that was lost may come to its end while a pod that goes is stopped.
    let fair = standing > 1 || !world.is_steady(&uid);
    if let Some(inside) = inside.map(|c| c.id.clone()).filter(|_| !fair) {
        world.breaks(
            Law::NotUnderTheFeet,
            format!("sandbox {id} while {inside} runs"),
        );
    }
}

/// A container's record goes.
pub fn removes_container(world: &mut World, id: &str) {
    let Some(gone) = world.runtime.containers.get(id) else {
        return;
    };
    let uid = gone.pod.uid.clone();
    if gone.phase == ContainerPhase::Running {
        world.breaks(Law::RecordsStand, format!("{id} runs"));
        return;
    }
    let mut others = world.runtime.containers.values();
    let newer = others.any(|c| c.pod.uid == uid && c.name == gone.name && c.attempt > gone.attempt);
    if !newer && world.is_steady(&uid) {
        world.breaks(
            Law::RecordsStand,
            format!("{uid}: {id} is the last of its name"),
        );
    }
}

/// A sandbox's record goes.
pub fn removes_sandbox(world: &mut World, id: &str) {
    let runs = |c: &&crate::runtime::SimContainer| {
        c.sandbox_id == id && c.phase == ContainerPhase::Running
    };
    let inside = world
        .runtime
        .containers
        .values()
        .find(runs)
        .map(|c| c.id.clone());
    if let Some(inside) = inside {
        world.breaks(
            Law::RecordsStand,
            format!("sandbox {id} while {inside} runs"),
        );
    }
}

/// An image goes that was looked at then.
pub fn removes_image(world: &mut World, id: &str, looked: jiff::Timestamp) {
    let mut containers = world.runtime.containers.values();
    let user = containers.find(|c| c.image_id == id && c.created_at < looked);
    if let Some(user) = user.map(|c| c.id.clone()) {
        world.breaks(Law::UsedImagesStay, format!("{id} of {user}"));
    }
}

/// The coordinator forgets a pod: should it come back, it begins anew.
pub fn forgotten(world: &mut World, uid: &str) {
    world.memory.started.retain(|(of, _, _)| of != uid);
    world.memory.ended.remove(uid);
    world.disk.failed.remove(uid);
}
