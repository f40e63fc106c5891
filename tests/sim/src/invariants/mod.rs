//! Invariants that hold after each step, with any service killed and any message lost.

pub mod devices;
/// What is unmounted, stopped and removed.
pub mod removal;
pub mod status;

use std::collections::{BTreeMap, BTreeSet};

use polylet_model::status::ContainerPhase;
use polylet_model::{ContainerKind, Manifest};
use polylet_sync_coordinator::core::step::Step;
use polylet_sync_coordinator::runtime::StepContext;

use crate::calls::Work;
use crate::world::World;

/// An invariant of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A pod never has two running containers of the same name.
    OneRunningContainerPerName,
    /// No two containers of a pod start with the same name and attempt.
    UniqueContainerAttempts,
    /// No sandbox is created twice with the same attempt, unless the first call is known to have failed.
    UniqueSandboxAttempts,
    /// Containers of two static pods with the same full name never run at the same time.
    NoStaticPodOverlap,
    /// A pod with a persisted termination starts nothing.
    TerminatedPodsStayTerminated,
    /// In each sandbox, init containers run in order and before regular ones.
    InitOrder,
    /// Nothing is created for a pod that no source has.
    OnlyDesiredPodsAreCreated,
    /// Containers are created after their volumes are mounted.
    VolumesBeforeContainers,
    /// Containers have as many devices as they request, which no other running container has, and
    /// those of a pod keep them.
    DevicesAreExclusive,
    /// Volumes, cgroups, files and sandboxes of running containers are not removed.
    ResourcesInUseAreRetained,
    /// Nothing is removed as an orphan before all sources and the runtime have synced.
    NoRemovalBeforeSync,
    /// A pod that has not changed is not stopped or removed, not even in part.
    UnchangedPodsKeepRunning,
    /// No running container is removed, and none that its restart count depends on.
    LastContainersAreRetained,
    /// Pod phases and restart counts never decrease.
    StatusIsMonotonic,
    /// A ready pod stays ready unless something happens to it.
    ReadinessIsStable,
    /// No image is removed that was in use when the images were listed.
    UsedImagesAreRetained,
    /// Without faults, the node converges to the desired state.
    Convergence,
    /// After convergence nothing is left of pods that no source has.
    NoLeaks,
    /// After convergence, restarting all services changes nothing.
    RestartsChangeNothing,
}

/// A violation of an invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// The details.
    pub why: String,
}

/// The history that the invariants need.
#[derive(Debug, Default)]
pub struct Memory {
    started: BTreeSet<(String, String, u32)>,
    /// Started containers, by sandbox and name.
    started_names: BTreeSet<(String, String)>,
    /// Devices of started containers, by pod uid and name.
    devices: BTreeMap<(String, String), BTreeSet<String>>,
    /// The last manifest of each pod.
    pub manifests: BTreeMap<String, Manifest>,
    /// Pods with a persisted termination.
    pub ended: BTreeSet<String>,
    /// The statuses published last.
    pub published: BTreeMap<String, Vec<u8>>,
    /// Containers with a failed hook.
    pub hooks_failed: BTreeSet<String>,
    /// The number of calls to the runtime that change something.
    pub changes: u64,
}

/// Checks a step when the coordinator starts it.
pub fn check_step(world: &mut World, context: &StepContext) {
    let uid = context.pod.uid.as_str();
    let makes = matches!(
        context.step,
        Step::CreateSandbox { .. } | Step::CreateContainer { .. } | Step::StartContainer { .. }
    );
    let touches = matches!(
        context.step,
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
    let (known, has_synced) = (node.has_pod(uid), node.has_synced());
    if makes {
        if !known {
            world.report_violation(
                Invariant::OnlyDesiredPodsAreCreated,
                format!("{uid}: {:?}", context.step),
            );
        }
        let ended = world
            .disk
            .checkpoints
            .get(uid)
            .is_some_and(|j| j.termination.is_some());
        if ended {
            world.report_violation(
                Invariant::TerminatedPodsStayTerminated,
                format!("{uid}: {:?}", context.step),
            );
        }
        return;
    }
    let destroys = matches!(
        context.step,
        Step::StopContainer { .. }
            | Step::StopSandbox { .. }
            | Step::RemoveContainer { .. }
            | Step::RemoveSandbox { .. }
            | Step::ReleaseVolumes
            | Step::RemoveCgroup
            | Step::RemoveFiles
    );
    if destroys && context.manifest.is_none() && !has_synced {
        world.report_violation(
            Invariant::NoRemovalBeforeSync,
            format!("{uid}: {:?}", context.step),
        );
    }
    if !destroys || !world.is_steady(uid) {
        return;
    }
    let changed = world.sources.changed.contains(uid);
    let is_ready = |id: &str| world.runtime.sandboxes.get(id).is_some_and(|s| s.ready);
    let ready_sandboxes = world
        .runtime
        .sandboxes
        .values()
        .filter(|s| s.pod.uid == uid && s.ready)
        .count();
    // Sandboxes before the newest one may be stopped.
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
    let is_allowed = match &context.step {
        Step::StopContainer { id, .. } => match world.runtime.containers.get(id) {
            Some(c) => {
                changed
                    || c.was_unhealthy
                    || world.memory.hooks_failed.contains(id)
                    || c.phase != ContainerPhase::Running
                    || !is_ready(&c.sandbox_id)
                    || ready_sandboxes > 1
            }
            None => true,
        },
        Step::StopSandbox { id } => !is_ready(id) || ready_sandboxes > 1 || superseded(id),
        Step::RemoveContainer { .. } => true,
        Step::RemoveSandbox { id } => !is_ready(id),
        _ => false,
    };
    if !is_allowed {
        world.report_violation(
            Invariant::UnchangedPodsKeepRunning,
            format!("{uid}: {:?}", context.step),
        );
    }
}

/// Checks a sandbox creation.
pub fn check_sandbox_creation(world: &mut World, context: &StepContext, attempt: u32) {
    let same = world.calls.iter().any(|call| match &call.work {
        Work::Step {
            context: other,
            started: true,
            outcome: None,
            ..
        } => other.pod.uid == context.pod.uid && other.step == context.step,
        _ => false,
    });
    // A creation without a known outcome is on disk.
    let made = world.disk.sandbox_intents.get(&context.pod.uid) == Some(&attempt);
    if same || made {
        let why = format!(
            "{}: sandbox {attempt} is already being created",
            context.pod.uid
        );
        world.report_violation(Invariant::UniqueSandboxAttempts, why);
    }
}

/// Checks a container creation.
pub fn check_container_creation(world: &mut World, context: &StepContext, mounts: bool) {
    let uid = &context.pod.uid;
    if !mounts {
        return;
    }
    let is_mounted = world.disk.pods.get(uid).is_some_and(|dir| {
        dir.volumes
            .iter()
            .any(|((_, name), ready)| name == "data" && *ready)
    });
    if !is_mounted {
        world.report_violation(
            Invariant::VolumesBeforeContainers,
            format!("{uid}: {:?}", context.step),
        );
    }
}

/// Checks a container start.
pub fn check_container_start(world: &mut World, id: &str) {
    let Some(me) = world.runtime.containers.get(id).cloned() else {
        return;
    };
    let is_ready = world
        .runtime
        .sandboxes
        .get(&me.sandbox_id)
        .is_some_and(|s| s.ready);
    if me.phase != ContainerPhase::Created || !is_ready {
        return;
    }
    let uid = me.pod.uid.as_str();
    let container = format!("{uid} {} {} ({id})", me.name, me.attempt);
    let other = world
        .runtime
        .running(uid)
        .find(|c| c.name == me.name && c.id != me.id);
    if let Some(other) = other.map(|c| c.id.clone()) {
        world.report_violation(
            Invariant::OneRunningContainerPerName,
            format!("{container} while {other} runs"),
        );
    }
    let fixed = |uid: &str| world.sources.static_pods.contains(uid);
    let overlap = world.runtime.containers.values().find(|c| {
        let other = c.pod.uid != uid && c.pod.name == me.pod.name;
        other && c.phase == ContainerPhase::Running && fixed(uid) && fixed(&c.pod.uid)
    });
    if let Some(other) = overlap.map(|c| c.pod.uid.clone()) {
        world.report_violation(
            Invariant::NoStaticPodOverlap,
            format!("{container} while {other} runs"),
        );
    }
    devices::check_start(world, &me);
    let key = (uid.to_owned(), me.name.clone(), me.attempt);
    // A pod that returned during its termination may start again.
    let may_repeat = world.sources.withdrawn.contains(uid);
    if !world.memory.started.insert(key) && !may_repeat {
        world.report_violation(Invariant::UniqueContainerAttempts, container.clone());
    }
    let started = (me.sandbox_id.clone(), me.name.clone());
    world.memory.started_names.insert(started);
    if let Some(why) = out_of_order(world, &me.name, &me.sandbox_id, uid) {
        world.report_violation(Invariant::InitOrder, format!("{container}: {why}"));
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
            // The first container of a sidecar may have been removed by its restart.
            ContainerKind::Sidecar => {
                let started = (sandbox.to_owned(), spec.name.clone());
                world.memory.started_names.contains(&started)
            }
            _ => true,
        };
        if !fine {
            return Some(format!("{} has not completed", spec.name));
        }
    }
    None
}

/// Forgets a pod together with the coordinator: it may start again.
pub fn forget_pod(world: &mut World, uid: &str) {
    world.memory.started.retain(|(of, _, _)| of != uid);
    world.memory.devices.retain(|(of, _), _| of != uid);
    world.memory.ended.remove(uid);
    world.disk.failed.remove(uid);
}
