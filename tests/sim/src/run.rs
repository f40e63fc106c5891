//! Runs a seed: chaos, convergence without faults, and a restart of all services.

use crate::final_checks;
use crate::invariants::{Invariant, Violation};
use crate::mutations::Mutation;
use crate::node::{coordinator, devices, eviction, pleg, prober, status, volumes};
use crate::world::{ServiceId, World};
use crate::{chaos, quiesce};

/// The result of a seed.
#[derive(Debug)]
pub struct Report {
    /// The first violation, if there is one.
    pub violation: Option<Violation>,
    /// The log, if requested.
    pub log: Vec<String>,
    /// A digest of the log, the same for the same seed.
    pub digest: u64,
}

/// The average number of steps of chaos.
const STEPS: usize = 800;

/// Runs one seed.
pub fn seed(seed: u64, mutation: Option<Mutation>, log: bool) -> Report {
    let mut world = World::new(seed, mutation, log);
    let steps = STEPS / 2 + world.rng.below(STEPS);
    // Fault rates differ by seed: with constant kills, services never get far.
    world.fault_profile.kills = [2, 8, 25][world.rng.below(3)];
    world.fault_profile.rare_faults = [2, 8, 25][world.rng.below(3)];
    // With few pods that request devices there are enough for all of them, with many there are not.
    world.sources.device_pods = [0, 10, 50][world.rng.below(3)];
    for _ in 0..steps {
        chaos::step(&mut world);
        if world.violation.is_some() {
            break;
        }
    }
    if world.violation.is_none() {
        quiesce::settle(&mut world);
        if world.violation.is_none() {
            final_checks::check(&mut world);
        }
    }
    if world.violation.is_none() {
        restart_all(&mut world);
    }
    Report {
        violation: world.violation.take(),
        digest: world.digest,
        log: world.log.take().unwrap_or_default(),
    }
}

/// Runs the services with due timers.
pub fn fire_timers(world: &mut World) -> bool {
    let now = world.now;
    let due = |at: Option<jiff::Timestamp>| at.is_some_and(|at| at <= now);
    let mut any = false;
    if due(world
        .coordinator
        .as_ref()
        .and_then(coordinator::CoordinatorInstance::due))
    {
        coordinator::tick(world);
        any = true;
    }
    if due(world.pleg.as_ref().and_then(|p| p.manager.next_due())) {
        pleg::act(world);
        any = true;
    }
    if due(world.prober.as_ref().and_then(|p| p.manager.next_due())) {
        prober::act(world);
        any = true;
    }
    any |= status::save(world);
    if due(world.eviction.as_ref().map(|e| e.next_sync)) {
        eviction::synchronize(world);
        any = true;
    }
    if due(world.devices.as_ref().and_then(|d| d.settles_at)) {
        devices::settle(world);
        any = true;
    }
    if due(world.volumes.as_ref().and_then(volumes::Volumes::due)) {
        volumes::act(world);
        any = true;
    }
    any
}

/// Starts a service that was killed.
pub fn start_stopped(world: &mut World) -> bool {
    let stopped: Vec<ServiceId> = ServiceId::ALL
        .into_iter()
        .filter(|service| world.incarnation(*service).is_none())
        .collect();
    let Some(service) = world.rng.pick(&stopped).copied() else {
        return false;
    };
    world.start(service);
    true
}

/// Restarts all services, which must not change anything.
fn restart_all(world: &mut World) {
    let before = (world.memory.changes, world.runtime.containers.len());
    world.runtime.disturbed.clear();
    for service in ServiceId::ALL {
        world.kill(service);
    }
    quiesce::settle(world);
    let after = (world.memory.changes, world.runtime.containers.len());
    if before != after {
        world.report_violation(
            Invariant::RestartsChangeNothing,
            format!("{before:?} became {after:?}"),
        );
    }
    if world.violation.is_none() {
        final_checks::check(world);
    }
}
