//! Checks of the converged state.

use polylet_model::RestartPolicy;
use polylet_model::status::ContainerPhase;
use polylet_watch::PressureItemKey;
use polylet_wire::podconfig::v1::PodSource;
use polylet_wire::sync::v1::SyncPhase;
use polylet_wire::time::from_wire_opt;

use crate::invariants::{self, Invariant};
use crate::pods::SimulatedPod;
use crate::world::World;

/// Compares the node with the desired state.
pub fn check(world: &mut World) {
    leaks(world);
    let evictions = world.stores.pressure.as_ref().map(|(_, s)| s.snapshot());
    let evictions = evictions.unwrap_or_default().into_keys();
    let evictions = evictions.filter(|key| matches!(key, PressureItemKey::Pod(_)));
    let evictions: Vec<String> = evictions.map(|key| format!("{key:?}")).collect();
    for eviction in evictions.into_iter().chain(world.disk.evictions.pods()) {
        world.report_violation(
            Invariant::Convergence,
            format!("the eviction {eviction} has not been removed"),
        );
    }
    let desired_pods: Vec<SimulatedPod> = world.sources.desired_pods.values().cloned().collect();
    for desired in &desired_pods {
        // One of two pods with the same full name waits.
        let same_name = |other: &&SimulatedPod| {
            other.uid() != desired.uid() && other.manifest.name() == desired.manifest.name()
        };
        if let Some(other) = desired_pods.iter().find(same_name)
            && waits_for_name(world, desired)
        {
            if waits_for_name(world, other) {
                let why = format!("{} and {} wait for each other", desired.uid(), other.uid());
                world.report_violation(Invariant::Convergence, why);
            }
            continue;
        }
        if let Some(why) = problem(world, desired) {
            world.report_violation(Invariant::Convergence, format!("{}: {why}", desired.uid()));
        }
    }
}

fn waits_for_name(world: &World, desired: &SimulatedPod) -> bool {
    let status = world.stores.sync.as_ref();
    let status = status.and_then(|(_, s)| s.get(desired.uid().to_owned().as_str()));
    let name = |w: &polylet_wire::sync::v1::WaitingFor| w.what.contains("of the same name");
    status.is_none_or(|status| status.waiting_for.iter().any(name))
}

fn leaks(world: &mut World) {
    let is_desired = |uid: &String| world.sources.desired_pods.contains_key(uid);
    let runtime = &world.runtime;
    let status = world.stores.sync.as_ref().map(|(_, s)| s.snapshot());
    let states = world.stores.states.as_ref().map(|(_, s)| s.snapshot());
    let volumes = world.stores.volumes.as_ref().map(|(_, s)| s.snapshot());
    let mut all: Vec<(&str, String)> = Vec::new();
    all.extend(
        runtime
            .sandboxes
            .values()
            .map(|s| ("a sandbox", s.pod.uid.clone())),
    );
    all.extend(
        runtime
            .containers
            .values()
            .map(|c| ("a container", c.pod.uid.clone())),
    );
    all.extend(
        world
            .disk
            .checkpoints
            .keys()
            .map(|uid| ("a checkpoint", uid.clone())),
    );
    all.extend(
        world
            .disk
            .sandbox_intents
            .keys()
            .map(|uid| ("a pending sandbox", uid.clone())),
    );
    all.extend(
        world
            .disk
            .lifecycles
            .keys()
            .map(|uid| ("a stop or hook", uid.clone())),
    );
    all.extend(
        world
            .disk
            .cgroups
            .iter()
            .map(|uid| ("a cgroup", uid.clone())),
    );
    all.extend(world.disk.logs.iter().map(|uid| ("logs", uid.clone())));
    all.extend(
        world
            .disk
            .pods
            .keys()
            .map(|uid| ("a pod directory", uid.clone())),
    );
    all.extend(
        status
            .into_iter()
            .flatten()
            .map(|(uid, _)| ("a status of the coordinator", uid.to_string())),
    );
    all.extend(
        states
            .into_iter()
            .flatten()
            .map(|(uid, _)| ("a state of pleg", uid.to_string())),
    );
    all.extend(
        volumes
            .into_iter()
            .flatten()
            .map(|(uid, _)| ("a volume state", uid.to_string())),
    );
    let left: Vec<_> = all
        .into_iter()
        .filter(|(_, uid)| !is_desired(uid))
        .collect();
    for (what, uid) in left {
        world.report_violation(Invariant::NoLeaks, format!("{what} of {uid} is left"));
    }
}

/// A container that runs although its pod was removed and added again since.
fn container_of_former_run<'a>(world: &'a World, uid: &'a str) -> Option<&'a str> {
    let (_, files) = world.stores.pods.get(&PodSource::File)?.as_ref()?;
    let served = files.get(uid.to_owned().as_str())?;
    let removed_at = from_wire_opt(served.removed_at.as_ref())?;
    let mut running = world.runtime.running(uid);
    let former = running.find(|container| container.created_at < removed_at);
    former.map(|container| container.id.as_str())
}

fn problem(world: &World, desired: &SimulatedPod) -> Option<String> {
    let uid = desired.uid();
    let running: Vec<&str> = world
        .runtime
        .running(uid)
        .map(|c| c.name.as_str())
        .collect();
    let status = world
        .stores
        .sync
        .as_ref()
        .and_then(|(_, s)| s.get(uid.to_owned().as_str()));
    let Some(status) = status else {
        return Some("no status of the coordinator".to_owned());
    };
    if desired.is_deleting() {
        let left = world.runtime.has_pod(uid) || world.disk.pods.contains_key(uid);
        return left.then(|| "deleted, but not removed".to_owned());
    }
    let checkpoints = world.disk.checkpoints.get(uid);
    let Some(checkpoints) = checkpoints else {
        return Some("no checkpoint".to_owned());
    };
    if let Some(left) = container_of_former_run(world, uid) {
        return Some(format!("{left} runs since before the pod was added again"));
    }
    if checkpoints.termination.is_some() {
        if !running.is_empty() {
            return Some(format!("terminated, but {running:?} run"));
        }
        let left = world.disk.cgroups.contains(uid) || world.disk.pods.contains_key(uid);
        if left || !checkpoints.terminated || status.phase() != SyncPhase::Terminated {
            return Some(format!(
                "terminated, but not cleaned up: {checkpoints:?} {status:?}"
            ));
        }
        return None;
    }
    if status.phase() != SyncPhase::Syncing || !status.waiting_for.is_empty() {
        return Some(format!("not converged: {status:?}"));
    }
    let ready_sandboxes = world.runtime.sandboxes.values();
    let ready_sandboxes = ready_sandboxes
        .filter(|s| s.pod.uid == uid && s.ready)
        .count();
    if ready_sandboxes != 1 {
        return Some(format!("{ready_sandboxes} ready sandboxes"));
    }
    for container in desired.manifest.containers() {
        let runs = running.contains(&container.name.as_str());
        let ended = world.runtime.containers.values().any(|c| {
            c.pod.uid == uid && c.name == container.name && c.phase == ContainerPhase::Exited
        });
        let policy = desired.manifest.restart_policy();
        if !runs && (policy == RestartPolicy::Always || !ended) {
            return Some(format!("{} does not run", container.name));
        }
    }
    for init in desired.manifest.init_containers() {
        let runs = running.contains(&init.name.as_str());
        if desired.manifest.is_sidecar(init) && !runs {
            return Some(format!("sidecar {} does not run", init.name));
        }
    }
    invariants::devices::missing(world, desired)
}
