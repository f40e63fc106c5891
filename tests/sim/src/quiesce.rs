//! Runs the simulation without faults until it converges.

use polylet_model::status::ContainerPhase;
use polylet_pleg::core::RuntimeEventKind;

use crate::invariants::Invariant;
use crate::node::{config, coordinator, devices, eviction, images, prober, status};
use crate::pods;
use crate::run::{fire_timers, start_stopped};
use crate::world::{ServiceId, World};

/// The limit of iterations.
const MAX_ITERATIONS: usize = 12_000;

/// Ends all faults, and runs until nothing happens for a while.
pub fn settle(world: &mut World) {
    world.record(|| "faults end".to_owned());
    world.quiescing = true;
    world.runtime.up = true;
    world.short = None;
    world.plugin.repair();
    pods::repair_manifests(world);
    for container in world.runtime.containers.values_mut() {
        container.healthy = true;
    }
    while start_stopped(world) {}
    for source in config::SOURCES {
        config::read(world, source, false);
    }
    let mut quiet_since = world.now;
    for iteration in 0..MAX_ITERATIONS {
        if world.violation.is_some() {
            return;
        }
        let mut any = false;
        for which in 0..coordinator::LINKS {
            any |= coordinator::listen(world, which);
        }
        for which in 0..prober::LINKS {
            any |= prober::listen(world, which);
        }
        for which in 0..status::LINKS {
            any |= status::listen(world, which);
        }
        for which in 0..images::LINKS {
            any |= images::listen(world, which);
        }
        for which in 0..eviction::LINKS {
            any |= eviction::listen(world, which);
        }
        for which in 0..devices::LINKS {
            any |= devices::listen(world, which);
        }
        let mut at = 0;
        let mut coordinator_moved = false;
        while at < world.calls.len() {
            let before = world.calls.len();
            let coordinators = world
                .calls
                .get(at)
                .is_some_and(|c| c.service == ServiceId::Coordinator);
            let moved = world.advance(at);
            coordinator_moved |= moved && coordinators;
            any |= moved;
            // A call that is still in flight stays in its place.
            if world.calls.len() >= before {
                at += 1;
            }
        }
        any |= finish_inits(world);
        any |= fire_timers(world);
        if coordinator_moved {
            quiet_since = world.now;
        }
        if any {
            continue;
        }
        let coordinator = world
            .coordinator
            .as_ref()
            .and_then(coordinator::CoordinatorInstance::due);
        if coordinator.is_none() && world.now.duration_since(quiet_since).as_secs() > 40 {
            world.record(|| format!("converged after {iteration} iterations"));
            return;
        }
        let next = world.next_due().unwrap_or(world.now);
        let millis = next.duration_since(world.now).as_millis().clamp(1, 60_000);
        world.advance_clock(i64::try_from(millis).unwrap_or(1));
    }
    let due = world.next_due();
    let coordinator = world
        .coordinator
        .as_ref()
        .and_then(coordinator::CoordinatorInstance::due);
    world.report_violation(
        Invariant::Convergence,
        format!("no convergence; next at {due:?}, by the coordinator at {coordinator:?}"),
    );
}

fn finish_inits(world: &mut World) -> bool {
    let now = world.now;
    let inits: Vec<(String, String)> = world
        .runtime
        .containers
        .values()
        .filter(|c| c.phase == ContainerPhase::Running)
        .filter(|c| {
            let manifest = world.memory.manifests.get(&c.pod.uid);
            let kind = manifest
                .and_then(|m| m.container(&c.name))
                .map(|(kind, _)| kind);
            kind == Some(polylet_model::ContainerKind::Init)
        })
        .map(|c| (c.id.clone(), c.pod.uid.clone()))
        .collect();
    for (id, uid) in &inits {
        world.runtime.exit(id, 0, "Completed", now);
        world.send_event(uid, id, RuntimeEventKind::Stopped);
    }
    !inits.is_empty()
}
